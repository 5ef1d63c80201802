package kv

import (
	"bytes"
	"context"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"

	"policyd.dev/policyd/internal/errs"
	"policyd.dev/policyd/internal/fleet"
)

// Move is the change of a channel's pointer.
type Move struct {
	Channel string
	Signed  []byte
	// After is the revision of the pointer that was looked at; 0: there was none.
	After int64
	// PastHold allows it while the channel is held, and takes the channel's hold
	// away: a person's rollback. The whole fleet's hold is never passed.
	PastHold bool
	// Event is stored with it when not nil.
	Event []byte
	// If are further conditions (the controller's leadership).
	If []clientv3.Cmp
}

// PutPointer makes the move, or changes nothing: errs.ErrHalted when a hold is
// there, errs.ErrVersionMismatch when the pointer is another one by now.
func (s *Store) PutPointer(ctx context.Context, m Move) error {
	l := s.Layout
	conditions := append([]clientv3.Cmp{
		clientv3.Compare(clientv3.ModRevision(l.Channel(m.Channel)), "=", m.After),
		absent(l.Halt("")),
	}, m.If...)
	ops := []clientv3.Op{clientv3.OpPut(l.Channel(m.Channel), string(m.Signed))}
	if m.PastHold {
		ops = append(ops, clientv3.OpDelete(l.Halt(m.Channel)))
	} else {
		conditions = append(conditions, absent(l.Halt(m.Channel)))
	}
	if m.Event != nil {
		ops = append(ops, clientv3.OpPut(l.Event(m.Channel), string(m.Event)))
	}
	res, err := s.Client.Txn(ctx).If(conditions...).Then(ops...).Else(
		clientv3.OpGet(l.Halt("")), clientv3.OpGet(l.Halt(m.Channel)),
	).Commit()
	if err != nil {
		return Error(err)
	}
	if res.Succeeded {
		return nil
	}
	if len(res.Responses[0].GetResponseRange().Kvs) > 0 {
		return fmt.Errorf("%w: the whole fleet is", errs.ErrHalted)
	}
	if !m.PastHold && len(res.Responses[1].GetResponseRange().Kvs) > 0 {
		return fmt.Errorf("%w: channel %s is", errs.ErrHalted, m.Channel)
	}
	return fmt.Errorf("channel %s: %w: somebody else has moved it meanwhile", m.Channel, errs.ErrVersionMismatch)
}

func absent(key string) clientv3.Cmp { return clientv3.Compare(clientv3.CreateRevision(key), "=", 0) }

// PutHold holds a channel, or the whole fleet for "". A person's hold takes the
// place of any; a gate's only of none, so that it never hides a person's.
func (s *Store) PutHold(ctx context.Context, channel string, h *fleet.Hold, conditions ...clientv3.Cmp) error {
	raw, err := fleet.Marshal(h)
	if err != nil {
		return err
	}
	key := s.Layout.Halt(channel)
	if h.Gate {
		conditions = append(conditions, absent(key))
	}
	res, err := s.Client.Txn(ctx).If(conditions...).Then(clientv3.OpPut(key, string(raw))).Commit()
	if err != nil {
		return Error(err)
	}
	if !res.Succeeded {
		return fmt.Errorf("hold: %w", errs.ErrVersionMismatch)
	}
	return nil
}

// PutSpec writes a node's Spec.
func (s *Store) PutSpec(ctx context.Context, node string, spec *fleet.Spec) error {
	if err := fleet.ValidName(node); err != nil {
		return fmt.Errorf("node: %w", err)
	}
	raw, err := fleet.Marshal(spec)
	if err != nil {
		return err
	}
	_, err = s.Client.Put(ctx, s.Layout.Spec(node), string(raw))
	return Error(err)
}

// Spec reads a node's Spec, nil when it is not enrolled.
func (s *Store) Spec(ctx context.Context, node string) (*fleet.Spec, error) {
	res, err := s.Client.Get(ctx, s.Layout.Spec(node))
	if err != nil {
		return nil, Error(err)
	}
	if len(res.Kvs) == 0 {
		return nil, nil
	}
	spec := &fleet.Spec{}
	return spec, fleet.Unmarshal(res.Kvs[0].Value, spec)
}

// RemoveNode takes away all that is kept of a node.
func (s *Store) RemoveNode(ctx context.Context, node string) error {
	if err := fleet.ValidName(node); err != nil {
		return fmt.Errorf("node: %w", err)
	}
	res, err := s.Client.Delete(ctx, s.Layout.Node(node), clientv3.WithPrefix())
	if err != nil {
		return Error(err)
	}
	if res.Deleted == 0 {
		return fmt.Errorf("node %s: %w", node, errs.ErrNotFound)
	}
	return nil
}

// PutBlob publishes a blob under its bundle's digest. It is made once: created
// is false when the very same is there, and errs.ErrExists that another is.
func (s *Store) PutBlob(ctx context.Context, digest string, raw []byte) (created bool, err error) {
	if len(raw) > fleet.MaxBlobBytes {
		return false, fmt.Errorf("%w: a blob of %d bytes, at most %d in etcd; publish it by reference", errs.ErrTooLarge, len(raw), fleet.MaxBlobBytes)
	}
	key := s.Layout.Blob(digest)
	res, err := s.Client.Txn(ctx).If(absent(key)).Then(clientv3.OpPut(key, string(raw))).Else(clientv3.OpGet(key)).Commit()
	if err != nil {
		return false, Error(err)
	}
	if res.Succeeded {
		return true, nil
	}
	if kvs := res.Responses[0].GetResponseRange().Kvs; len(kvs) > 0 && bytes.Equal(kvs[0].Value, raw) {
		return false, nil
	}
	return false, fmt.Errorf("bundle %s: %w", digest, errs.ErrExists)
}

// Blob reads a blob's bytes; errs.ErrNotFound when it was never published.
func (s *Store) Blob(ctx context.Context, digest string) ([]byte, error) {
	if err := fleet.ValidDigest(digest); err != nil {
		return nil, err
	}
	res, err := s.Client.Get(ctx, s.Layout.Blob(digest))
	if err != nil {
		return nil, Error(err)
	}
	if len(res.Kvs) == 0 {
		return nil, fmt.Errorf("bundle %s: %w; publish it first", digest, errs.ErrNotFound)
	}
	return res.Kvs[0].Value, nil
}
