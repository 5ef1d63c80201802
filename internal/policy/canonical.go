package policy

import (
	"google.golang.org/protobuf/proto"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
)

// Canonical gives the one encoding of a message that digests are taken over:
// JSON with sorted keys, without spaces and without default values
// (docs/formats.md).
func Canonical(m proto.Message) []byte { return nil }

// ContentDigest is "sha256:" and the hash of a document's canonical content and
// pins. Equal digests mean equal content.
func ContentDigest(r *apiv1.Resource, pins []*apiv1.Pin) string { return "" }
