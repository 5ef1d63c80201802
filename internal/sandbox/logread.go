package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/internal/errs"
)

// LogOptions of [Manager.Logs].
type LogOptions struct {
	// Follow goes on as output comes, until the sandbox ends.
	Follow bool
	// Tail, when not 0, is how many of the last lines of each stream are wanted.
	Tail uint32
}

// A reader that follows looks for more output followMin after it found some, and less
// and less often up to followMax.
const (
	followMin = 10 * time.Millisecond
	followMax = 250 * time.Millisecond
)

// Logs sends the kept output of a detached sandbox, each stream in its order, at most
// 32 KiB a message. What rotation dropped is told in bytes before what follows it,
// including the rest of a line that was cut off. The bytes of a message are valid
// until send returns; while send blocks nothing is read. Errors: errs.ErrNotFound,
// errs.ErrInvalid for an attached sandbox, those of send, the cause of ctx.
func (m *Manager) Logs(ctx context.Context, id string, o LogOptions, send func(*apiv1.LogsResponse) error) error {
	rec, b, err := m.find(id)
	if err != nil {
		return err
	}
	if !keepsOutput(rec) {
		return fmt.Errorf("%w: the output of attached sandbox %s went to its client", errs.ErrInvalid, rec.GetId())
	}
	streams, err := m.logs.readers(rec.GetId(), o)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("logs of sandbox %s: %w", rec.GetId(), errs.ErrNotFound)
		}
		return fmt.Errorf("logs of sandbox %s: %w", rec.GetId(), err)
	}
	defer func() {
		for _, r := range streams {
			r.close()
		}
	}()
	var done <-chan struct{} // nil: has ended
	if b != nil {
		done = b.done
	}
	wait := followMin
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for {
		ended := done == nil || closed(done)
		any, err := m.sendLogs(ctx, streams, send)
		if err != nil {
			return err
		}
		switch {
		case any:
			wait = followMin
			continue
		case !o.Follow || ended: // the end was known before the last look
			return nil
		}
		timer.Reset(wait)
		wait = min(2*wait, followMax)
		select {
		case <-timer.C:
		case <-done:
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-m.life.Done():
			return errs.ErrShutdown
		}
	}
}

// sendLogs sends a chunk of each stream that has one.
func (m *Manager) sendLogs(ctx context.Context, streams []*logReader, send func(*apiv1.LogsResponse) error) (any bool, err error) {
	if ctx.Err() != nil {
		return false, context.Cause(ctx)
	}
	buf := chunks.Get().(*[chunk]byte)
	defer chunks.Put(buf)
	for i, r := range streams {
		n, dropped, err := r.next(buf[:])
		if err != nil {
			return false, err
		}
		if dropped > 0 {
			if err := send(&apiv1.LogsResponse{Data: &apiv1.LogsResponse_Dropped{Dropped: uint64(dropped)}}); err != nil {
				return false, err
			}
		}
		if n == 0 {
			continue
		}
		any = true
		msg := &apiv1.LogsResponse{Data: &apiv1.LogsResponse_Stdout{Stdout: buf[:n]}}
		if i == 1 {
			msg.Data = &apiv1.LogsResponse_Stderr{Stderr: buf[:n]}
		}
		if err := send(msg); err != nil {
			return false, err
		}
	}
	return any, nil
}

// readers opens both logs.
func (k *logKeeper) readers(id string, o LogOptions) ([]*logReader, error) {
	k.mu.Lock()
	b := k.boxes[id]
	k.mu.Unlock()
	var files [2]*logFile
	if b != nil {
		files = b.files
	} else {
		files = k.files(id)
	}
	var out []*logReader
	for _, f := range files {
		r, err := f.open(o.Tail, o.Follow)
		if err != nil {
			for _, r := range out {
				r.close()
			}
			return nil, err
		}
		out = append(out, r)
	}
	return out, nil
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
