package fleet

import (
	"encoding/hex"
	"fmt"
	"strings"

	"policyd.dev/policyd/internal/errs"
)

// Root is the prefix of everything policyd keeps in etcd.
const Root = "/policyd/v1/"

// Layout gives the names of a fleet's keys in etcd.
//
//	/policyd/v1/<fleet>/pub/blob/<hex>         a Blob by its bundle's digest; made once, never changed
//	/policyd/v1/<fleet>/pub/channel/<channel>  a signed Pointer
//	/policyd/v1/<fleet>/pub/halt               a Hold of the whole fleet
//	/policyd/v1/<fleet>/pub/halt/<channel>     a Hold of one channel
//	/policyd/v1/<fleet>/nodes/<node>/spec      a Spec: channel and labels, written by admins
//	/policyd/v1/<fleet>/nodes/<node>/status    a Status under the node's lease
//	/policyd/v1/<fleet>/nodes/<node>/last      the same without a lease
//	/policyd/v1/<fleet>/ctl/leader             the election of the controller
//	/policyd/v1/<fleet>/ctl/event/<channel>    the controller's last decision on a channel
type Layout struct{ Fleet string }

// Prefix is that of everything of the fleet.
func (l Layout) Prefix() string { return Root + l.Fleet + "/" }

// Pub is the prefix of what every node may read.
func (l Layout) Pub() string { return l.Prefix() + "pub/" }

// Blobs is the prefix of the blobs.
func (l Layout) Blobs() string { return l.Pub() + "blob/" }

// Blob is the key of a bundle's blob; digest is one that ValidDigest accepts.
func (l Layout) Blob(digest string) string {
	return l.Blobs() + strings.TrimPrefix(digest, digestPrefix)
}

// Channels is the prefix of the pointers.
func (l Layout) Channels() string { return l.Pub() + "channel/" }

// Channel is the key of a channel's pointer.
func (l Layout) Channel(name string) string { return l.Channels() + name }

// Halt is the key of a channel's Hold; of the whole fleet's for "".
func (l Layout) Halt(channel string) string {
	if channel == "" {
		return l.Pub() + "halt"
	}
	return l.Pub() + "halt/" + channel
}

// Nodes is the prefix of all nodes.
func (l Layout) Nodes() string { return l.Prefix() + "nodes/" }

// Node is the prefix of one node.
func (l Layout) Node(node string) string { return l.Nodes() + node + "/" }

// Spec is the key of a node's Spec.
func (l Layout) Spec(node string) string { return l.Node(node) + "spec" }

// Status is the key of a node's Status under its lease.
func (l Layout) Status(node string) string { return l.Node(node) + "status" }

// Last is the key of a node's Status that outlives the lease.
func (l Layout) Last(node string) string { return l.Node(node) + "last" }

// SplitNode cuts a key below Nodes into the node and what of it (spec, status, last).
func (l Layout) SplitNode(key string) (node, what string, ok bool) {
	rest, ok := strings.CutPrefix(key, l.Nodes())
	if !ok {
		return "", "", false
	}
	node, what, ok = strings.Cut(rest, "/")
	return node, what, ok && ValidName(node) == nil
}

// Control is the prefix of the controller's keys.
func (l Layout) Control() string { return l.Prefix() + "ctl/" }

// Leader is the prefix of the controllers' election.
func (l Layout) Leader() string { return l.Control() + "leader" }

// Event is the key of the controller's last decision on a channel.
func (l Layout) Event(channel string) string { return l.Control() + "event/" + channel }

const maxName = 63

// ValidName checks the name of a fleet, a channel, a node or a label: letters,
// digits, and - _ . within, at most 63 bytes. Such a name is one component of a
// key in etcd and one word in a signed text.
func ValidName(s string) error {
	if s == "" || len(s) > maxName {
		return fmt.Errorf("%w: name %q has %d bytes, want 1 to %d", errs.ErrInvalid, clip(s), len(s), maxName)
	}
	for i := range len(s) {
		c := s[i]
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' {
			continue
		}
		if i > 0 && i < len(s)-1 && (c == '-' || c == '_' || c == '.') {
			continue
		}
		return fmt.Errorf("%w: name %q: want letters, digits, and - _ . within", errs.ErrInvalid, s)
	}
	return nil
}

const digestPrefix = "sha256:"

// ValidDigest checks that s is sha256: and 64 digits in lower case.
func ValidDigest(s string) error {
	rest, ok := strings.CutPrefix(s, digestPrefix)
	if raw, err := hex.DecodeString(rest); !ok || err != nil || len(raw) != 32 || strings.ToLower(rest) != rest {
		return fmt.Errorf("%w: digest %q: want sha256: and 64 digits", errs.ErrInvalid, clip(s))
	}
	return nil
}

// clip keeps what others wrote short in a message.
func clip(s string) string {
	const most = 100
	if len(s) > most {
		return s[:most] + "..."
	}
	return s
}
