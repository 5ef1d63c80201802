package store

import (
	"context"
	"errors"
	"fmt"
)

// errProbe ends the transaction of a probe without a commit.
var errProbe = errors.New("probe")

// Probe goes the way of a change: through the queue, the writer and the lock of a write transaction, but writes nothing, so
// that it succeeds on a full disk too. An error is the context's while the writer is stuck, or errs.ErrShutdown.
func (s *Store) Probe(ctx context.Context) error {
	err := s.update(ctx, func(t *wtx) error {
		if t.tx.Size() <= 0 {
			return fmt.Errorf("store %s is empty", s.path)
		}
		return errProbe
	})
	if errors.Is(err, errProbe) {
		return nil
	}
	return err
}
