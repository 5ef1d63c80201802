package kv

import (
	"context"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"

	"policyd.dev/policyd/internal/errs"
	"policyd.dev/policyd/internal/fleet"
)

// Resume takes a hold away and leaves in its place who did; errs.ErrNotFound when there is none.
func (s *Store) Resume(ctx context.Context, channel string, r *fleet.Resumed) error {
	raw, err := fleet.Marshal(r)
	if err != nil {
		return err
	}
	key := s.Layout.Halt(channel)
	res, err := s.Client.Txn(ctx).If(clientv3.Compare(clientv3.CreateRevision(key), ">", 0)).
		Then(clientv3.OpDelete(key), clientv3.OpPut(s.Layout.Resumed(channel), string(raw))).Commit()
	if err != nil {
		return Error(err)
	}
	if !res.Succeeded {
		return fmt.Errorf("hold: %w: nothing is held", errs.ErrNotFound)
	}
	return nil
}

// Resumed are those who took the holds of a channel and of the whole fleet away last; what cannot be read is left out.
func (s *Store) Resumed(ctx context.Context, channel string) ([]fleet.Resumed, error) {
	res, err := s.Client.Txn(ctx).Then(clientv3.OpGet(s.Layout.Resumed(channel)), clientv3.OpGet(s.Layout.Resumed(""))).Commit()
	if err != nil {
		return nil, Error(err)
	}
	var all []fleet.Resumed
	for _, one := range res.Responses {
		for _, kv := range one.GetResponseRange().Kvs {
			var r fleet.Resumed
			if fleet.Unmarshal(kv.Value, &r) == nil {
				all = append(all, r)
			}
		}
	}
	return all, nil
}
