package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"syscall"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
)

// chunk is how much of standard input one message carries, bytes.
const chunk = 32 << 10

// interruptWindow is how soon after another an interrupt means that the first
// was of no use.
const interruptWindow = 3 * time.Second

// Attached is the client's half of a sandbox whose streams come here.
type Attached struct {
	Client         *Client
	Stdin          io.Reader // nil: closed from the start
	Stdout, Stderr io.Writer
	// Terminal is set when the program has a terminal of its own: signals then go
	// to its foreground group, and Window gives its size on SIGWINCH.
	Terminal *RawTerminal
	Window   func() *apiv1.Terminal
	// Signals are handed on to the program.
	Signals <-chan os.Signal
	// Interactive: a person sits at the keyboard, so a second SIGINT soon after the
	// first ends every process of the sandbox and a third leaves at once.
	Interactive bool
	// Started is called when the program runs. Notice tells the person something.
	Started func(*apiv1.Sandbox)
	Notice  func(format string, args ...any)

	recv     link               // of this moment; the receiver's
	received [2]uint64          // of stdout and stderr, bytes; the receiver's
	leave    context.CancelFunc // ends a link of Attach; the receiver's
	away     bool               // policyd is; the receiver's

	send   sync.Mutex
	link   link       // nil when it ended and the next one is not there; with send
	linked *sync.Cond // of send
	over   bool       // no link comes any more; with send
	in     sentInput  // with send

	mu         sync.Mutex
	id         string
	interrupts int         // of SIGINT, each soon after the one before
	interrupt  time.Time   // the last one
	early      []os.Signal // came while there was no way to send them
}

// Run starts the sandbox and carries its streams until its program has ended.
// Cancelling ctx leaves it.
func (a *Attached) Run(ctx context.Context, start *apiv1.StartRequest) (*apiv1.ExitStatus, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := a.Client.Sandboxes.Run(ctx)
	if err != nil {
		return nil, err
	}
	a.recv, a.link, a.linked = stream, stream, sync.NewCond(&a.send)
	defer a.end()
	first := &apiv1.RunRequest{Request: &apiv1.RunRequest_Start{Start: start}}
	if err := stream.Send(first); err != nil && !errors.Is(err, io.EOF) {
		return nil, a.Client.explain(err)
	} // io.EOF: Recv tells why
	go a.handleSignals(ctx, cancel)
	return a.receive(ctx)
}

func (a *Attached) receive(ctx context.Context) (*apiv1.ExitStatus, error) {
	broken := false // nobody reads our output any more
	for {
		m, err := a.recv.Recv()
		if err != nil {
			a.unlink()
			if err := a.comeBack(ctx, err); err != nil {
				return nil, err
			}
			continue
		}
		switch m := m.GetResponse().(type) {
		case *apiv1.RunResponse_Started:
			a.begin(ctx, m.Started)
		case *apiv1.RunResponse_Stdout:
			a.received[0] += uint64(len(m.Stdout))
			broken = a.output(ctx, a.Stdout, m.Stdout, broken)
		case *apiv1.RunResponse_Stderr:
			a.received[1] += uint64(len(m.Stderr))
			broken = a.output(ctx, a.Stderr, m.Stderr, broken)
		case *apiv1.RunResponse_Exit:
			return m.Exit, nil
		}
	}
}

func (a *Attached) begin(ctx context.Context, s *apiv1.Sandbox) {
	a.mu.Lock()
	a.id = s.GetId()
	early := a.early
	a.early = nil
	a.mu.Unlock()
	if a.Started != nil {
		a.Started(s)
	}
	for _, sig := range early {
		a.forward(ctx, sig)
	}
	go a.copyStdin()
}

// output writes what the program wrote. Once nobody reads it, the program is
// told by SIGPIPE as in a shell's pipeline, and its further output is dropped.
func (a *Attached) output(ctx context.Context, w io.Writer, b []byte, broken bool) bool {
	if _, err := w.Write(b); err != nil && !broken {
		a.forward(ctx, syscall.SIGPIPE)
		return true
	}
	return broken
}

func (a *Attached) lost(err error) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.id == "" {
		return err
	}
	if errors.Is(err, io.EOF) {
		err = errors.New("the stream ended without an exit status")
	}
	return fmt.Errorf("sandbox %s: connection lost, see `policyctl ps -a`: %w", a.id, err)
}

// onPanic gives the terminal back when a goroutine panics: the deferred calls of
// other goroutines do not run then.
func (a *Attached) onPanic() {
	if r := recover(); r != nil {
		if a.Terminal != nil {
			a.Terminal.Restore()
		}
		panic(r)
	}
}

func (a *Attached) copyStdin() {
	defer a.onPanic()
	if a.Stdin != nil {
		buf := make([]byte, chunk)
		for {
			n, err := a.Stdin.Read(buf)
			if !a.input(buf[:n], false) {
				return // Recv tells why
			}
			if err != nil {
				break
			}
		}
	}
	a.input(nil, true)
}

// input sends standard input. While no link is there it holds back who reads more; false when none comes any more.
func (a *Attached) input(p []byte, end bool) bool {
	a.send.Lock()
	defer a.send.Unlock()
	a.in.add(p)
	a.in.closed = end
	if len(p) > 0 || end {
		a.flush()
	}
	for a.link == nil && !a.over {
		a.linked.Wait()
	}
	return !a.over
}

// unlink has senders wait for the next link.
func (a *Attached) unlink() {
	a.send.Lock()
	defer a.send.Unlock()
	a.link = nil
}

// end lets them go.
func (a *Attached) end() {
	if a.leave != nil {
		a.leave()
	}
	a.send.Lock()
	defer a.send.Unlock()
	a.over, a.link = true, nil
	a.linked.Broadcast()
}

// write sends what is no input; an error: there is no link now.
func (a *Attached) write(m *apiv1.RunRequest) error {
	a.send.Lock()
	defer a.send.Unlock()
	if a.link == nil {
		return errNoLink
	}
	return a.link.Send(m)
}

var errNoLink = errors.New("policyd is away")

// later keeps a signal for the next link.
func (a *Attached) later(sig os.Signal) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.early = append(a.early, sig)
}

func (a *Attached) sandbox() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.id
}

func (a *Attached) handleSignals(ctx context.Context, cancel context.CancelFunc) {
	defer a.onPanic()
	for {
		select {
		case <-ctx.Done():
			return
		case sig := <-a.Signals:
			a.handle(ctx, cancel, sig)
		}
	}
}

func (a *Attached) handle(ctx context.Context, cancel context.CancelFunc, sig os.Signal) {
	if sig == syscall.SIGWINCH || sig == syscall.SIGCONT && a.Terminal != nil {
		if sig == syscall.SIGCONT {
			a.Terminal.Again()
		}
		a.resize()
		if sig == syscall.SIGWINCH {
			return
		}
	}
	a.mu.Lock()
	id := a.id
	if sig == syscall.SIGINT {
		if now := time.Now(); now.Sub(a.interrupt) > interruptWindow {
			a.interrupts, a.interrupt = 1, now
		} else {
			a.interrupts, a.interrupt = a.interrupts+1, now
		}
	}
	again := 0
	if a.Interactive && sig == syscall.SIGINT {
		again = a.interrupts
	}
	if id == "" {
		a.early = append(a.early, sig)
	}
	a.mu.Unlock()
	switch {
	case again >= 3 || id == "" && again == 2:
		cancel()
	case id == "":
		// Sent once the program runs.
	case again == 2:
		a.Notice("interrupted again: ending all processes of sandbox %s", id)
		_ = a.signal(ctx, id, syscall.SIGKILL, true) // the person sees that it goes on
	default:
		a.forward(ctx, sig)
	}
}

// resize tells the size of the terminal; the next link does so in any case.
func (a *Attached) resize() {
	if a.Window == nil {
		return
	}
	if size := a.Window(); size != nil {
		_ = a.write(&apiv1.RunRequest{Request: &apiv1.RunRequest_Resize{Resize: size}})
	}
}

// forward hands one signal to the program. Without a terminal it goes by a call
// of its own: the stream may be held up by input the program does not read.
func (a *Attached) forward(ctx context.Context, sig os.Signal) {
	n, ok := sig.(syscall.Signal)
	if !ok {
		return
	}
	a.mu.Lock()
	id := a.id
	a.mu.Unlock()
	if a.Terminal != nil {
		if a.write(&apiv1.RunRequest{Request: &apiv1.RunRequest_Signal{Signal: int32(n)}}) != nil {
			a.later(sig)
		}
		return
	}
	if a.signal(ctx, id, n, false) == nil {
		return
	}
	a.send.Lock()
	back := a.link != nil
	a.send.Unlock()
	if !back || a.signal(ctx, id, n, false) != nil {
		a.later(sig)
	}
}

// signal sends a signal by a call of its own; the error is that policyd cannot be reached.
func (a *Attached) signal(ctx context.Context, id string, sig syscall.Signal, all bool) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	_, err := a.Client.Sandboxes.Signal(ctx, &apiv1.SignalRequest{Id: id, Signal: int32(sig), All: all})
	switch status.Code(err) {
	case codes.Unavailable, codes.DeadlineExceeded:
		return err
	}
	// A program that has ended meanwhile is no failure: its status is on its way.
	return nil
}
