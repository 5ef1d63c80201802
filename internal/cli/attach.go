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

	"google.golang.org/grpc"

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

	stream grpc.BidiStreamingClient[apiv1.RunRequest, apiv1.RunResponse]
	send   sync.Mutex

	mu         sync.Mutex
	id         string
	interrupts int         // of SIGINT, each soon after the one before
	interrupt  time.Time   // the last one
	early      []os.Signal // came before the program ran
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
	a.stream = stream
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
		m, err := a.stream.Recv()
		if err != nil {
			return nil, a.lost(err)
		}
		switch m := m.GetResponse().(type) {
		case *apiv1.RunResponse_Started:
			a.begin(ctx, m.Started)
		case *apiv1.RunResponse_Stdout:
			broken = a.output(ctx, a.Stdout, m.Stdout, broken)
		case *apiv1.RunResponse_Stderr:
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
			if n > 0 {
				m := &apiv1.RunRequest{Request: &apiv1.RunRequest_Stdin{Stdin: append([]byte(nil), buf[:n]...)}}
				if a.write(m) != nil {
					return // Recv tells why
				}
			}
			if err != nil {
				break
			}
		}
	}
	_ = a.write(&apiv1.RunRequest{Request: &apiv1.RunRequest_CloseStdin{CloseStdin: true}})
}

func (a *Attached) write(m *apiv1.RunRequest) error {
	a.send.Lock()
	defer a.send.Unlock()
	return a.stream.Send(m)
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
		if a.Window != nil {
			if size := a.Window(); size != nil {
				_ = a.write(&apiv1.RunRequest{Request: &apiv1.RunRequest_Resize{Resize: size}})
			}
		}
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
		a.signal(ctx, id, syscall.SIGKILL, true)
	default:
		a.forward(ctx, sig)
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
		_ = a.write(&apiv1.RunRequest{Request: &apiv1.RunRequest_Signal{Signal: int32(n)}})
		return
	}
	a.signal(ctx, id, n, false)
}

func (a *Attached) signal(ctx context.Context, id string, sig syscall.Signal, all bool) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	// A program that has ended meanwhile is no failure: its status is on its way.
	_, _ = a.Client.Sandboxes.Signal(ctx, &apiv1.SignalRequest{Id: id, Signal: int32(sig), All: all})
}
