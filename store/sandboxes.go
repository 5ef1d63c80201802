package store

import (
	"bytes"
	"context"
	"fmt"

	bolt "go.etcd.io/bbolt"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/internal/errs"
)

const maxSandboxID = 128

func checkSandboxID(id string) error {
	if id == "" || len(id) > maxSandboxID {
		return fmt.Errorf("%w: a sandbox id has 1 to %d bytes, not %d", errs.ErrInvalid, maxSandboxID, len(id))
	}
	return nil
}

// isAlive tells whether a sandbox has not ended, as far as its record knows.
func isAlive(sb *apiv1.Sandbox) bool {
	return sb.GetState() == apiv1.SandboxState_SANDBOX_STATE_STARTING || sb.GetState() == apiv1.SandboxState_SANDBOX_STATE_RUNNING
}

func eachSandbox(tx *bolt.Tx, fn func(*apiv1.Sandbox) error) error {
	return tx.Bucket(bucketKeySandboxes).ForEach(func(k, v []byte) error {
		sb := &apiv1.Sandbox{}
		if err := unsealMessage(k, v, sb); err != nil {
			return err
		}
		return fn(sb)
	})
}

// PutSandboxes writes records of sandboxes, new or changed, and appends events, in one transaction.
func (s *Store) PutSandboxes(ctx context.Context, sandboxes []*apiv1.Sandbox, events []*apiv1.Event) error {
	keys, values := make([][]byte, len(sandboxes)), make([][]byte, len(sandboxes))
	for i, sb := range sandboxes {
		if err := checkSandboxID(sb.GetId()); err != nil {
			return err
		}
		payload, err := marshal(sb)
		if err != nil {
			return fmt.Errorf("%w: sandbox %s: %w", errs.ErrInvalid, quote(sb.GetId()), err)
		}
		keys[i], values[i] = []byte(sb.GetId()), payload
	}
	return s.update(ctx, func(t *wtx) error {
		for i := range keys {
			if err := t.put(t.bucket(bucketKeySandboxes), keys[i], values[i]); err != nil {
				return err
			}
		}
		return t.log(cloneEvents(events)...)
	})
}

// Sandbox returns the sandbox with that id, or the one whose id begins so. Errors wrap errs.ErrNotFound, or
// errs.ErrInvalid when more than one does.
func (s *Store) Sandbox(id string) (*apiv1.Sandbox, error) {
	if err := checkSandboxID(id); err != nil {
		return nil, err
	}
	sb := &apiv1.Sandbox{}
	err := s.view(func(tx *bolt.Tx) error {
		c := tx.Bucket(bucketKeySandboxes).Cursor()
		k, v := c.Seek([]byte(id))
		if !bytes.HasPrefix(k, []byte(id)) {
			return fmt.Errorf("%w: sandbox %s", errs.ErrNotFound, quote(id))
		}
		if len(k) > len(id) {
			if next, _ := c.Next(); bytes.HasPrefix(next, []byte(id)) {
				return fmt.Errorf("%w: more than one sandbox has an id that begins with %s", errs.ErrInvalid, quote(id))
			}
		}
		return unsealMessage(k, v, sb)
	})
	if err != nil {
		return nil, err
	}
	return sb, nil
}

// Sandboxes returns sandboxes by ascending id, and the token (SandboxFilter.After) of the next page, empty when there
// is none.
func (s *Store) Sandboxes(f SandboxFilter) (list []*apiv1.Sandbox, next string, err error) {
	err = s.view(func(tx *bolt.Tx) error {
		c := tx.Bucket(bucketKeySandboxes).Cursor()
		k, v := c.First()
		if f.After != "" {
			if k, v = c.Seek([]byte(f.After)); string(k) == f.After {
				k, v = c.Next()
			}
		}
		for ; k != nil; k, v = c.Next() {
			sb := &apiv1.Sandbox{}
			if err := unsealMessage(k, v, sb); err != nil {
				return err
			}
			if !f.Ended && !isAlive(sb) || f.Policy != "" && sb.GetPolicy() != f.Policy {
				continue
			}
			if f.Limit > 0 && len(list) == f.Limit {
				next = list[len(list)-1].GetId()
				return nil
			}
			list = append(list, sb)
		}
		return nil
	})
	if err != nil {
		return nil, "", err
	}
	return list, next, nil
}

// DeleteSandbox forgets the records of sandboxes; an id that is not there is no error.
func (s *Store) DeleteSandbox(ctx context.Context, ids ...string) error {
	return s.update(ctx, func(t *wtx) error {
		b := t.bucket(bucketKeySandboxes)
		for _, id := range ids {
			if b.Get([]byte(id)) == nil {
				continue
			}
			if err := t.del(b, []byte(id)); err != nil {
				return err
			}
		}
		return nil
	})
}
