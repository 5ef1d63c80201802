package store

import (
	"context"
	"fmt"

	bolt "go.etcd.io/bbolt"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/internal/errs"
)

// keySmackState is the only key of its bucket.
var keySmackState = []byte("state")

// smackState reads the record; one without fields when there is none.
func smackState(tx *bolt.Tx) (*apiv1.SmackState, error) {
	st := &apiv1.SmackState{}
	b := tx.Bucket(bucketKeySmack)
	if b == nil { // an older store, opened for reading
		return st, nil
	}
	if value := b.Get(keySmackState); value != nil {
		return st, unsealMessage(keySmackState, value, st)
	}
	return st, nil
}

// SmackState returns what is kept of the host's smackfs, an empty message when nothing is.
func (s *Store) SmackState() (st *apiv1.SmackState, err error) {
	err = s.view(func(tx *bolt.Tx) error {
		st, err = smackState(tx)
		return err
	})
	return st, err
}

// SetSmackState replaces what is kept of the host's smackfs, and appends events in the same transaction. The versions it
// names must be there: errors wrap errs.ErrNotFound, errs.ErrDeleted or one of the store's.
func (s *Store) SetSmackState(ctx context.Context, st *apiv1.SmackState, events ...*apiv1.Event) error {
	return s.update(ctx, func(t *wtx) error {
		if err := t.putSmackState(st); err != nil {
			return err
		}
		return t.log(cloneEvents(events)...)
	})
}

func (t *wtx) putSmackState(st *apiv1.SmackState) error {
	payload, err := marshal(st)
	if err != nil {
		return fmt.Errorf("%w: state of smackfs: %w", errs.ErrInvalid, err)
	}
	for _, ref := range smackRefs(st) {
		if _, err := resolve(t.tx, KindSmackPolicy, ref); err != nil {
			return err
		}
	}
	return t.put(t.bucket(bucketKeySmack), keySmackState, payload)
}

// smackRefs are the versions a state names.
func smackRefs(st *apiv1.SmackState) (refs []Ref) {
	if st.GetAssigned() != "" {
		refs = append(refs, Ref{Name: st.GetAssigned(), Number: st.GetAssignedVersion()})
	}
	if st.GetPolicy() != "" {
		refs = append(refs, Ref{Name: st.GetPolicy(), Number: st.GetVersion()})
	}
	return refs
}
