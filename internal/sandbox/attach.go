package sandbox

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
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

	stop   func() bool // of the context's watcher
	sendMu sync.Mutex

	inMu sync.Mutex // held by who writes input
	in   input

	mu        sync.Mutex
	state     linkState
	out       [2]tail       // stdout, stderr; with mu
	left      bool          // the state was linkLeft when it became linkSuspended, or of the earlier policyd
	suspended chan struct{} // closed when the state becomes linkSuspended
	patience  *time.Timer   // of linkAwaited
	pumped    chan struct{} // of linkLeft: closed when all output is in the logs
	over      chan struct{} // closed when nobody carries the streams any more
}

// linkState is who carries the streams of an attached sandbox.
type linkState int

const (
	linkCarried   linkState = iota // a client
	linkAwaited                    // nobody: its client shall come back after a restart
	linkLeft                       // policyd, into logs: the client did not come back
	linkSuspended                  // nobody any more here: the next policyd
	linkGone                       // nobody: they are closed
)

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
	a.suspended, a.pumped, a.over = make(chan struct{}), make(chan struct{}), make(chan struct{})
	if m.cfg.HandOver != nil {
		a.out[0].keep, a.out[1].keep = tailKept, tailKept
	}
	b.sess = a
	if io.term {
		b.term = io.in
	}
	m.register(a)
}

// Sandbox is the record as it was when the program was executed.
func (a *Attached) Sandbox() *apiv1.Sandbox { return a.m.shown(a.b.rec.Load()) }

// WriteStdin gives p to the program. It blocks while the program does not read, so a
// caller that also carries signals in the same stream holds them back meanwhile; use
// [Manager.Signal] for those. What the program will never read is dropped.
func (a *Attached) WriteStdin(p []byte) error {
	a.inMu.Lock()
	defer a.inMu.Unlock()
	if len(p) == 0 || a.io.in == nil {
		return nil
	}
	n, err := writeAll(a.io.in, p)
	if n > 0 {
		a.in.Given += uint64(n)
		a.in.MidLine = p[n-1] != '\n'
	}
	return err
}

// CloseStdin ends the input; output goes on. A terminal gets its end-of-file character.
// The second time nothing happens.
func (a *Attached) CloseStdin() error {
	a.inMu.Lock()
	defer a.inMu.Unlock()
	if a.in.Closed || a.isSuspended() {
		return nil // the client says it again to the next policyd
	}
	a.in.Closed = true
	if a.io.term {
		return endOfInput(a.io.in, a.in.MidLine)
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
// stood for going away ends it with that context's cause, and [Manager.Suspend] with
// errs.ErrRestart.
func (a *Attached) Stream(ctx context.Context, send func(*apiv1.RunResponse) error) error {
	result := make(chan error, 2)
	n := a.copyAll(result, func(stream int, p []byte) error {
		a.sendMu.Lock()
		defer a.sendMu.Unlock()
		if stream == 0 {
			return send(stdoutMessage(p))
		}
		return send(stderrMessage(p))
	})
	var err error
	for range n {
		if perr := <-result; perr != nil && err == nil {
			err = perr
			a.m.hangup(a.b) // closes the streams, which ends the other pump
		}
	}
	if a.isSuspended() {
		return a.restarts()
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
	case <-a.suspended:
		return a.restarts()
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-a.m.life.Done():
		return errs.ErrShutdown
	}
	return send(&apiv1.RunResponse{Response: &apiv1.RunResponse_Exit{Exit: a.b.rec.Load().GetExit()}})
}

// copyAll carries each stream of output to use in a goroutine of its own, and says how many results will come.
func (a *Attached) copyAll(result chan<- error, use func(stream int, p []byte) error) (n int) {
	for i, f := range []*os.File{a.io.out, a.io.err} {
		if f == nil {
			continue
		}
		n++
		go func() {
			result <- a.pump(f, i, func(p []byte) error {
				if err := use(i, p); err != nil {
					return err
				}
				a.mu.Lock()
				a.out[i].sent += uint64(len(p))
				a.mu.Unlock()
				return nil
			})
		}()
	}
	return n
}

// drain bounds how long output is still waited for: when every process has ended nobody
// writes any more, or only somebody outside.
func (a *Attached) drain() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.state == linkSuspended {
		return
	}
	deadline := time.Now().Add(drainGrace)
	_ = a.io.out.SetReadDeadline(deadline) // closed: nothing to wait for
	if a.io.err != nil {
		_ = a.io.err.SetReadDeadline(deadline)
	}
}

// pump carries one stream to its end; first what was read of it and not sent.
func (a *Attached) pump(f *os.File, stream int, use func(p []byte) error) error {
	if err := a.repeat(stream, use); err != nil {
		return err
	}
	read := a.reader(stream)
	for {
		n, err := readChunk(f, read, use)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return rest(f, read, use)
		}
		if n > 0 && err == nil {
			continue
		}
		if a.isGone() {
			return errCut
		}
		return err
	}
}

// errCut says that the streams were closed under a pump.
var errCut = errors.New("streams are closed")

// rest carries what lies in the pipe after the deadline.
func rest(f *os.File, read reader, use func(p []byte) error) error {
	for {
		if n, err := readRest(f, read, use); n == 0 || err != nil {
			return err
		}
	}
}

// Close gives everything back. A sandbox that still runs is hung up, as if ctx of Run
// had ended; but for one that was suspended, which is the next policyd's.
func (a *Attached) Close() {
	a.stop()
	if a.isSuspended() {
		return
	}
	select {
	case <-a.b.done:
		a.cut()
	default:
		a.m.hangup(a.b)
	}
}

// cut closes our side: the program reads end of file, its writes fail, a terminal's
// session gets SIGHUP from the kernel. It does nothing to a suspended one, and says so.
func (a *Attached) cut() bool {
	a.mu.Lock()
	switch a.state {
	case linkSuspended:
		a.mu.Unlock()
		return false
	case linkGone:
		a.mu.Unlock()
		return true
	}
	a.state = linkGone
	if a.patience != nil {
		a.patience.Stop()
	}
	a.mu.Unlock()
	a.io.closeOurs()
	a.m.unregister(a)
	return true
}

func stdoutMessage(p []byte) *apiv1.RunResponse {
	return &apiv1.RunResponse{Response: &apiv1.RunResponse_Stdout{Stdout: p}}
}

func stderrMessage(p []byte) *apiv1.RunResponse {
	return &apiv1.RunResponse{Response: &apiv1.RunResponse_Stderr{Stderr: p}}
}
