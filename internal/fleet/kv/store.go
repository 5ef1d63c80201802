package kv

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"policyd.dev/policyd/internal/errs"
	"policyd.dev/policyd/internal/fleet"
)

// Store is a fleet's records in etcd.
type Store struct {
	Client *clientv3.Client
	Layout fleet.Layout
}

// New gives the records of a fleet.
func New(c *clientv3.Client, name string) (*Store, error) {
	if err := fleet.ValidName(name); err != nil {
		return nil, fmt.Errorf("fleet: %w", err)
	}
	return &Store{c, fleet.Layout{Fleet: name}}, nil
}

// Error makes an error of etcd one of ours where it has a name there: not
// allowed, too large. Others keep their gRPC status.
func Error(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, rpctypes.ErrPermissionDenied), errors.Is(err, rpctypes.ErrAuthFailed),
		errors.Is(err, rpctypes.ErrUserEmpty), errors.Is(err, rpctypes.ErrInvalidAuthToken):
		return fmt.Errorf("%w: etcd: %v", errs.ErrNotAllowed, err) //nolint:errorlint // the sentinel is the one callers test
	case errors.Is(err, rpctypes.ErrRequestTooLarge):
		return fmt.Errorf("%w: etcd: %v", errs.ErrTooLarge, err) //nolint:errorlint // as above
	}
	return fmt.Errorf("etcd: %w", err)
}

// Channel is all that etcd holds of a channel. Nothing of it has been verified.
type Channel struct {
	Name string
	// Signed is the pointer, nil before the first rollout; ModRev its revision.
	Signed []byte
	ModRev int64
	// Hold is the channel's, FleetHold the whole fleet's.
	Hold, FleetHold *fleet.Hold
	// Event is the controller's last record on the channel, nil for none.
	Event []byte
}

// Holds are those in force, the channel's first.
func (c *Channel) Holds() (out []fleet.Hold) {
	for _, h := range []*fleet.Hold{c.Hold, c.FleetHold} {
		if h != nil {
			out = append(out, *h)
		}
	}
	return out
}

// Channel reads one channel, all of it at one revision.
func (s *Store) Channel(ctx context.Context, name string) (*Channel, error) {
	if err := fleet.ValidName(name); err != nil {
		return nil, fmt.Errorf("channel: %w", err)
	}
	l := s.Layout
	res, err := s.Client.Txn(ctx).Then(
		clientv3.OpGet(l.Channel(name)), clientv3.OpGet(l.Halt(name)), clientv3.OpGet(l.Halt("")), clientv3.OpGet(l.Event(name)),
	).Commit()
	if err != nil {
		return nil, Error(err)
	}
	value := func(i int) []byte {
		if kvs := res.Responses[i].GetResponseRange().Kvs; len(kvs) > 0 {
			return there(kvs[0])
		}
		return nil
	}
	c := &Channel{Name: name, Signed: value(0), Event: value(3), Hold: readHold(value(1)), FleetHold: readHold(value(2))}
	if kvs := res.Responses[0].GetResponseRange().Kvs; len(kvs) > 0 {
		c.ModRev = kvs[0].ModRevision
	}
	return c, nil
}

// there is the value of a key that is there, never nil: an empty hold holds, too.
func there(kv *mvccpb.KeyValue) []byte { return append([]byte{}, kv.Value...) }

// readHold reads a Hold. One that cannot be read holds too: its presence is what counts.
func readHold(raw []byte) *fleet.Hold {
	if raw == nil {
		return nil
	}
	h := &fleet.Hold{}
	if err := fleet.Unmarshal(raw, h); err != nil {
		return &fleet.Hold{Kind: fleet.HaltedAll, By: "somebody", Why: "the record cannot be read"}
	}
	return h
}

// Channels are the names of all channels that have a pointer, sorted. A key that
// is no channel's name is nobody's.
func (s *Store) Channels(ctx context.Context) ([]string, error) {
	return s.names(ctx, s.Layout.Channels(), fleet.ValidName)
}

// Bundles are the digests of all bundles published, sorted.
func (s *Store) Bundles(ctx context.Context) ([]string, error) {
	names, err := s.names(ctx, s.Layout.Blobs(), func(hex string) error { return fleet.ValidDigest("sha256:" + hex) })
	for i, n := range names {
		names[i] = "sha256:" + n
	}
	return names, err
}

func (s *Store) names(ctx context.Context, prefix string, valid func(string) error) ([]string, error) {
	res, err := s.Client.Get(ctx, prefix, clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil {
		return nil, Error(err)
	}
	var names []string
	for _, kv := range res.Kvs {
		if name := strings.TrimPrefix(string(kv.Key), prefix); valid(name) == nil {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names, nil
}

// nodesPage is how many keys are read at once, some 4 MB: an answer with all
// records of a large fleet would fill the memory of etcd, and keep others waiting.
const nodesPage = 10_000

// Nodes are all enrolled nodes, those of one channel when it is not "", sorted
// by name, as of one revision. A node without a Spec is not enrolled and is left
// out; one whose Spec cannot be read is Failed, and of no channel.
func (s *Store) Nodes(ctx context.Context, channel string) ([]fleet.Node, error) {
	type records struct{ spec, status, last []byte }
	byName := map[string]*records{}
	from, end := s.Layout.Nodes(), clientv3.GetPrefixRangeEnd(s.Layout.Nodes())
	for revision := int64(0); ; {
		res, err := s.Client.Get(ctx, from, clientv3.WithRange(end), clientv3.WithLimit(nodesPage), clientv3.WithRev(revision))
		if err != nil {
			return nil, Error(err)
		}
		for _, kv := range res.Kvs {
			name, what, ok := s.Layout.SplitNode(string(kv.Key))
			if !ok {
				continue
			}
			r := byName[name]
			if r == nil {
				r = &records{}
				byName[name] = r
			}
			switch what {
			case "spec":
				r.spec = there(kv)
			case "status":
				r.status = there(kv)
			case "last":
				r.last = there(kv)
			}
		}
		if !res.More || len(res.Kvs) == 0 {
			break
		}
		from, revision = string(res.Kvs[len(res.Kvs)-1].Key)+"\x00", res.Header.Revision
	}
	var nodes []fleet.Node
	for name, r := range byName {
		n := fleet.Node{Name: name, Alive: r.status != nil}
		if r.spec == nil {
			continue
		}
		if err := fleet.Unmarshal(r.spec, &n.Spec); err != nil {
			n.Spec, n.Alive = fleet.Spec{}, false
			n.Status = &fleet.Status{Node: name, State: fleet.Failed, Code: "INVALID", Message: "its spec cannot be read, so that it is of no channel: enroll it again"}
		} else {
			n.Status = readStatus(name, r.status, r.last)
		}
		if channel != "" && n.Spec.Channel != channel {
			continue
		}
		nodes = append(nodes, n)
	}
	slices.SortFunc(nodes, func(x, y fleet.Node) int { return strings.Compare(x.Name, y.Name) })
	return nodes, nil
}

// readStatus takes the leased status, else the last. What cannot be read, or is
// another node's, is a failure of the node.
func readStatus(node string, leased, last []byte) *fleet.Status {
	raw := leased
	if raw == nil {
		raw = last
	}
	if raw == nil {
		return nil
	}
	st := &fleet.Status{}
	if err := fleet.Unmarshal(raw, st); err != nil || st.Node != node {
		return &fleet.Status{Node: node, State: fleet.Failed, Code: "INVALID", Message: "its status cannot be read"}
	}
	return st
}
