package kv

import (
	"context"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// Leader is the name of the controller that is elected, "" for none: the oldest key of the election
// (concurrency.Election.Leader, which needs a session). Whoever reads it need not believe it.
func (s *Store) Leader(ctx context.Context) (string, error) {
	res, err := s.Client.Get(ctx, s.Layout.Leader()+"/", clientv3.WithFirstCreate()...)
	if err != nil {
		return "", Error(err)
	}
	if len(res.Kvs) == 0 {
		return "", nil
	}
	return string(res.Kvs[0].Value), nil
}
