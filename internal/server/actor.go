package server

import (
	"context"
	"crypto/sha256"

	"google.golang.org/protobuf/proto"

	"policyd.dev/policyd/internal/policy"
	"policyd.dev/policyd/store"
)

// actorOf is on whose behalf a change is made, with the hash that tells a repeated request from another one.
func actorOf(ctx context.Context, message, requestID string, req proto.Message) store.Actor {
	a := store.Actor{Name: callerFrom(ctx).String(), Message: message, RequestID: requestID}
	if requestID != "" {
		a.RequestHash = requestHash(req)
	}
	return a
}

// requestHash is over the canonical encoding, which stays the same over versions of policyd, of
// the request without its id.
func requestHash(req proto.Message) []byte {
	m := proto.Clone(req)
	r := m.ProtoReflect()
	if f := r.Descriptor().Fields().ByName("request_id"); f != nil {
		r.Clear(f)
	}
	sum := sha256.New()
	sum.Write([]byte(r.Descriptor().FullName()))
	sum.Write([]byte{0})
	sum.Write(policy.Canonical(m))
	return sum.Sum(nil)
}
