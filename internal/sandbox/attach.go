package sandbox

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/internal/errs"
)

// drainGrace is how long output is waited for after every process of a sandbox has
// ended. Only a descriptor that was passed out of the sandbox can keep a stream open.
const drainGrace = 2 * time.Second

// Attached is the client's side of a sandbox started by [Manager.Run].
//
// One goroutine calls [Attached.Stream], another one WriteStdin, CloseStdin and Resize.
type Attached struct {
	m  *Manager
	b  *box
	io *stdio

	midLine atomic.Bool // the last byte of input was no end of a line
	stop    func() bool // of the context's watcher
	gone    atomic.Bool // our side was closed
	sendMu  sync.Mutex
}

// Run starts a sandbox whose streams the caller carries. When ctx ends the client is
// taken to be gone: the sandbox gets SIGHUP, and is ended after [Config.HangupGrace].
// The caller must call Stream, and Close in any case. Errors are those of Start; a
// repeated request is errs.ErrExists, since the first client has the streams.
func (m *Manager) Run(ctx context.Context, r *Request) (*Attached, error) {
	a := &Attached{}
	if _, err := m.launch(ctx, r, a); err != nil {
		return nil, err
	}
	a.stop = context.AfterFunc(ctx, func() { m.hangup(a.b) })
	return a, nil
}

// begin is called when the program was executed.
func (a *Attached) begin(m *Manager, b *box, io *stdio) {
	a.m, a.b, a.io = m, b, io
	b.sess = a
	if io.term {
		b.term = io.in
	}
}

// Sandbox is the record as it was when the program was executed.
func (a *Attached) Sandbox() *apiv1.Sandbox { return a.m.shown(a.b.rec.Load()) }

// WriteStdin gives p to the program. It blocks while the program does not read, so a
// caller that also carries signals in the same stream holds them back meanwhile; use
// [Manager.Signal] for those. What the program will never read is dropped.
func (a *Attached) WriteStdin(p []byte) error {
	if len(p) == 0 {
		return nil
	}
	a.midLine.Store(p[len(p)-1] != '\n')
	return writeAll(a.io.in, p)
}

// CloseStdin ends the input; output goes on. A terminal gets its end-of-file character.
func (a *Attached) CloseStdin() error {
	if a.io.term {
		return endOfInput(a.io.in, a.midLine.Load())
	}
	if err := a.io.in.Close(); err != nil && !errors.Is(err, os.ErrClosed) {
		return fmt.Errorf("standard input: %w", err)
	}
	return nil
}

// Resize sets the size of the terminal.
func (a *Attached) Resize(t *apiv1.Terminal) error {
	if !a.io.term {
		return fmt.Errorf("%w: resize: the sandbox has no terminal", errs.ErrInvalid)
	}
	return control(a.io.in, func(fd int) error { return setWindow(fd, t) })
}

// Signal sends a signal as [Manager.Signal] does; that the sandbox has ended is no error.
func (a *Attached) Signal(sig int) error {
	if err := a.m.signal(a.b, sig, false); !errors.Is(err, errs.ErrNotRunning) {
		return err
	}
	return nil
}

// Stream calls send with the output as it comes and at last with the exit status, when
// all output was sent. Calls do not overlap; the bytes of a message are valid until
// send returns. While send blocks nothing is read, so the program is held back and not
// memory filled. An error of send ends Stream with it. The client that ctx of Run
// stood for going away ends it with that context's cause.
func (a *Attached) Stream(ctx context.Context, send func(*apiv1.RunResponse) error) error {
	result := make(chan error, 2)
	copyTo := func(f *os.File, wrap func([]byte) *apiv1.RunResponse) {
		result <- a.pump(f, func(p []byte) error {
			a.sendMu.Lock()
			defer a.sendMu.Unlock()
			return send(wrap(p))
		})
	}
	n := 1
	go copyTo(a.io.out, stdoutMessage)
	if a.io.err != nil {
		n++
		go copyTo(a.io.err, stderrMessage)
	}
	var err error
	for range n {
		if perr := <-result; perr != nil && err == nil {
			err = perr
			a.m.hangup(a.b) // closes the streams, which ends the other pump
		}
	}
	if err != nil {
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.Is(err, errCut) && a.m.isStopping():
			return errs.ErrShutdown
		case errors.Is(err, errCut):
			return context.Canceled // by Close, or ctx of Run
		}
		return err
	}
	select {
	case <-a.b.done:
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-a.m.life.Done():
		return errs.ErrShutdown
	}
	return send(&apiv1.RunResponse{Response: &apiv1.RunResponse_Exit{Exit: a.b.rec.Load().GetExit()}})
}

// drain bounds how long output is still waited for: when every process has ended nobody
// writes any more, or only somebody outside.
func (a *Attached) drain() {
	deadline := time.Now().Add(drainGrace)
	_ = a.io.out.SetReadDeadline(deadline) // closed: nothing to wait for
	if a.io.err != nil {
		_ = a.io.err.SetReadDeadline(deadline)
	}
}

// pump carries one stream to its end.
func (a *Attached) pump(f *os.File, use func(p []byte) error) error {
	for {
		n, err := readChunk(f, use)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return rest(f, use)
		}
		if n > 0 && err == nil {
			continue
		}
		if a.gone.Load() {
			return errCut
		}
		return err
	}
}

// errCut says that the streams were closed under a pump.
var errCut = errors.New("streams are closed")

// rest carries what lies in the pipe after the deadline.
func rest(f *os.File, use func(p []byte) error) error {
	for {
		if n, err := readRest(f, use); n == 0 || err != nil {
			return err
		}
	}
}

// Close gives everything back. A sandbox that still runs is hung up, as if ctx of Run
// had ended.
func (a *Attached) Close() {
	a.stop()
	select {
	case <-a.b.done:
		a.cut()
	default:
		a.m.hangup(a.b)
	}
}

// cut closes our side: the program reads end of file, its writes fail, a terminal's
// session gets SIGHUP from the kernel.
func (a *Attached) cut() {
	a.gone.Store(true)
	a.io.closeOurs()
}

func stdoutMessage(p []byte) *apiv1.RunResponse {
	return &apiv1.RunResponse{Response: &apiv1.RunResponse_Stdout{Stdout: p}}
}

func stderrMessage(p []byte) *apiv1.RunResponse {
	return &apiv1.RunResponse{Response: &apiv1.RunResponse_Stderr{Stderr: p}}
}
