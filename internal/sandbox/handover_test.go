package sandbox

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/internal/errs"
)

// keeper keeps descriptors between two managers, as a service manager does.
type keeper struct {
	t    testing.TB
	mu   sync.Mutex
	kept map[string]Handed
	full bool
}

func (k *keeper) put(id string, h Handed) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.full {
		return errors.New("no room")
	}
	k.kept[id] = Handed{}
	for name, f := range h {
		raw, err := f.SyscallConn()
		if err != nil {
			return err
		}
		var fd int
		var derr error
		if err := raw.Control(func(own uintptr) {
			var flags int
			if flags, derr = unix.FcntlInt(own, unix.F_GETFD, 0); derr == nil && flags&unix.FD_CLOEXEC == 0 {
				k.t.Errorf("%s would be inherited by programs", name)
			}
			fd, derr = unix.FcntlInt(own, unix.F_DUPFD_CLOEXEC, 0)
		}); err != nil || derr != nil {
			return errors.Join(err, derr)
		}
		k.kept[id][name] = os.NewFile(uintptr(fd), name)
	}
	return nil
}

// restarting is a policyd that is restarted, with a client that knows how far it is.
type restarting struct {
	t   testing.TB
	cfg Config
	k   *keeper
	m   *Manager
}

func newRestarting(t testing.TB, containment string) *restarting {
	k := &keeper{t: t, kept: map[string]Handed{}}
	cfg := testConfig(t, containment)
	cfg.HandOver = k.put
	r := &restarting{t: t, cfg: cfg, k: k}
	r.start()
	t.Cleanup(func() { stopAll(t, r.m) })
	return r
}

func (r *restarting) start() {
	r.t.Helper()
	cfg := r.cfg
	cfg.Handed, r.k.kept = r.k.kept, map[string]Handed{}
	m, err := New(r.t.Context(), cfg)
	if err != nil {
		r.t.Fatal(err)
	}
	r.m = m
}

// stop stops policyd and gives what the stream ended with.
func (r *restarting) stop() {
	r.t.Helper()
	r.m.Suspend()
	if err := r.m.Stop(r.t.Context()); err != nil {
		r.t.Fatal(err)
	}
}

func (o *output) offsets() Offsets {
	o.mu.Lock()
	defer o.mu.Unlock()
	return Offsets{uint64(o.stdout.Len()), uint64(o.stderr.Len())}
}

// again attaches the client that has o.
func (r *restarting) again(id string, o *output) (*Attached, <-chan error) {
	r.t.Helper()
	a, err := r.m.Attach(r.t.Context(), id, o.offsets())
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(a.Close)
	done := make(chan error, 1)
	go func() { done <- a.Stream(r.t.Context(), o.send) }()
	return a, done
}

func wantRestart(t testing.TB, finished <-chan error) {
	t.Helper()
	if err := <-finished; !errors.Is(err, errs.ErrRestart) {
		t.Fatalf("the stream ended with %v, want ErrRestart", err)
	}
}

// TestHandOver: a program that copies goes on through restarts, and not a byte is lost or doubled in either direction.
func TestHandOver(t *testing.T) {
	eachContainment(t, func(t *testing.T, containment string) {
		r := newRestarting(t, containment)
		sent := make([]byte, 8<<20)
		_, _ = rand.Read(sent)
		a, o, finished := attach(t, r.m, shell(t, t.TempDir(), `cat; echo end >&2; exit 7`))
		id := a.Sandbox().GetId()
		for round := range 4 {
			from := a.StdinOffset()
			feeding := make(chan struct{})
			go func() {
				defer close(feeding)
				for off := int(from); off < len(sent)*(round+1)/4; off += 64 << 10 {
					if a.WriteStdin(sent[off:min(off+64<<10, len(sent))]) != nil {
						return
					}
				}
			}()
			time.Sleep(3 * time.Millisecond)
			r.stop()
			<-feeding
			wantRestart(t, finished)
			a.Close()
			r.start()
			a, finished = r.again(id, o)
		}
		if err := a.WriteStdin(sent[a.StdinOffset():]); err != nil {
			t.Fatal(err)
		}
		if err := a.CloseStdin(); err != nil {
			t.Fatal(err)
		}
		awaitEnd(t, finished)
		if o.exit.GetCode() != 7 || o.stderr.String() != "end\n" || !bytes.Equal(o.stdout.Bytes(), sent) {
			t.Errorf("exit %v, stderr %q, %d of %d bytes, the same: %v", o.exit, &o.stderr, o.stdout.Len(), len(sent), bytes.Equal(o.stdout.Bytes(), sent))
		}
		if len(r.k.kept) > 0 {
			t.Errorf("kept: %v", r.k.kept)
		}
	})
}

// TestHandOverOfUnsent: what was read of the program but does not reach the client before the stream ends comes with the next one.
func TestHandOverOfUnsent(t *testing.T) {
	r := newRestarting(t, "supervisor")
	a, err := r.m.Run(t.Context(), shell(t, t.TempDir(), `seq 100000; echo done; sleep 1000`))
	if err != nil {
		t.Fatal(err)
	}
	stuck, entered := make(chan struct{}), make(chan struct{}, 10)
	finished := make(chan error, 1)
	go func() {
		finished <- a.Stream(t.Context(), func(*apiv1.RunResponse) error {
			entered <- struct{}{}
			<-stuck
			return errors.New("connection was closed")
		})
	}()
	<-entered
	r.stop()
	close(stuck)
	wantRestart(t, finished)
	a.Close()
	r.start()
	o := newOutput()
	r.again(a.Sandbox().GetId(), o)
	o.await(t, "done\n")
	if lines := strings.Count(o.text(), "\n"); lines != 100001 || !strings.HasPrefix(o.text(), "1\n2\n3\n") {
		t.Errorf("%d lines, from %.20q", lines, o.text())
	}
}

// TestHandOverTerminal: a terminal goes on with its size, its input and its foreground group.
func TestHandOverTerminal(t *testing.T) {
	eachContainment(t, func(t *testing.T, containment string) {
		r := newRestarting(t, containment)
		req := shell(t, t.TempDir(), `stty -echo; trap 'stty size' WINCH; trap 'echo got usr1' USR1; echo ready; while :; do read l && echo "line $l"; [ "$l" = quit ] && exit 3; done`)
		req.Spec.Terminal = &apiv1.Terminal{Rows: 10, Columns: 20}
		a, o, finished := attach(t, r.m, req)
		id := a.Sandbox().GetId()
		o.await(t, "ready")
		if err := a.WriteStdin([]byte("one\n")); err != nil {
			t.Fatal(err)
		}
		o.await(t, "line one")
		r.stop()
		wantRestart(t, finished)
		a.Close()
		r.start()
		a, finished = r.again(id, o)
		if err := a.Resize(&apiv1.Terminal{Rows: 30, Columns: 40}); err != nil {
			t.Fatal(err)
		}
		o.await(t, "30 40")
		if err := a.Signal(int(syscall.SIGUSR1)); err != nil {
			t.Fatal(err)
		}
		o.await(t, "got usr1")
		if err := a.WriteStdin([]byte("two\n")); err != nil {
			t.Fatal(err)
		}
		o.await(t, "line two")
		if err := a.WriteStdin([]byte("quit\n")); err != nil {
			t.Fatal(err)
		}
		awaitEnd(t, finished)
		if o.exit.GetCode() != 3 || strings.Count(o.text(), "line one") != 1 {
			t.Errorf("exit %v, output %q", o.exit, o.text())
		}
	})
}

// TestExitWhileNoPolicyd: the output and the status of a program that ends between two policyds are not lost, not even over a
// second restart, nor when the sandbox was to be forgotten.
func TestExitWhileNoPolicyd(t *testing.T) {
	eachContainment(t, func(t *testing.T, containment string) {
		r := newRestarting(t, containment)
		dir := t.TempDir()
		req := shell(t, dir, `echo begin; while ! [ -e "$1"/go ]; do sleep 0.01; done; echo bye; echo error >&2; : > "$1"/over; exit 9`, dir)
		req.Spec.Remove = true
		a, o, finished := attach(t, r.m, req)
		id := a.Sandbox().GetId()
		o.await(t, "begin")
		r.stop()
		wantRestart(t, finished)
		a.Close()
		if err := os.WriteFile(filepath.Join(dir, "go"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		eventually(t, "it ended", func() bool { _, err := os.Stat(filepath.Join(dir, "over")); return err == nil })
		time.Sleep(50 * time.Millisecond)
		r.start()
		if exit, err := r.m.Wait(t.Context(), id); err != nil || exit.GetCode() != 9 && kernelTells(t) {
			t.Errorf("exit %v, %v", exit, err)
		}
		r.stop()
		r.start()
		_, finished = r.again(id, o)
		awaitEnd(t, finished)
		if o.text() != "begin\nbye\n" || o.stderr.String() != "error\n" || o.exit.GetCode() != 9 && kernelTells(t) {
			t.Errorf("%q, %q, %v", o.text(), &o.stderr, o.exit)
		}
		r.m.mu.RLock()
		b := r.m.boxes[id]
		r.m.mu.RUnlock()
		if b != nil {
			b.sess.cut() // as Close of the client, which comes at the test's end
		}
		eventually(t, "it is forgotten", func() bool { _, err := r.m.Get(id); return errors.Is(err, errs.ErrNotFound) })
	})
}

// TestClientDoesNotComeBack: the program is not held up, its input ends, and its output is in logs from there on, over another restart as well.
func TestClientDoesNotComeBack(t *testing.T) {
	eachContainment(t, func(t *testing.T, containment string) {
		r := newRestarting(t, containment)
		r.cfg.AttachWait = 50 * time.Millisecond
		dir := t.TempDir()
		// Far more than a pipe holds, before and after the second restart.
		a, o, finished := attach(t, r.m, shell(t, dir, `echo begin; cat >/dev/null; seq 40000; while ! [ -e "$1"/go ]; do sleep 0.01; done; seq 40000; echo end >&2; exit 4`, dir))
		id := a.Sandbox().GetId()
		o.await(t, "begin")
		r.stop()
		wantRestart(t, finished)
		a.Close()
		r.start()
		follow := newOutput()
		eventually(t, "it has logs", func() bool { sb, err := r.m.Get(id); return err == nil && sb.GetOutputKept() })
		if _, err := r.m.Attach(t.Context(), id, o.offsets()); !errors.Is(err, errs.ErrInvalid) {
			t.Errorf("attach: %v", err)
		}
		eventually(t, "the first half is there", func() bool {
			out, _ := logText(t, r.m, id)
			return strings.HasSuffix(out, "\n40000\n")
		})
		r.stop()
		r.start()
		if err := os.WriteFile(filepath.Join(dir, "go"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		err := r.m.Logs(t.Context(), id, LogOptions{Follow: true}, func(m *apiv1.LogsResponse) error {
			return follow.send(&apiv1.RunResponse{Response: &apiv1.RunResponse_Stdout{Stdout: bytes.Clone(m.GetStdout())}})
		})
		if err != nil {
			t.Fatal(err)
		}
		exit, err := r.m.Wait(t.Context(), id)
		if err != nil || exit.GetCode() != 4 && kernelTells(t) {
			t.Errorf("exit %v, %v", exit, err)
		}
		out, stderr := logText(t, r.m, id)
		if strings.Count(out, "\n") != 80000 || out != follow.text() || stderr != "end\n" || strings.Contains(out, "begin") {
			t.Errorf("%d lines, %d followed, from %.20q; %q", strings.Count(out, "\n"), strings.Count(follow.text(), "\n"), out, stderr)
		}
		if err := r.m.Remove(t.Context(), id); err != nil {
			t.Error(err)
		}
	})
}

// TestNobodyTakesTheRest: the output of a program that has ended goes into logs, too, when its client does not come back.
func TestNobodyTakesTheRest(t *testing.T) {
	r := newRestarting(t, "supervisor")
	r.cfg.AttachWait = 50 * time.Millisecond
	dir := t.TempDir()
	a, o, finished := attach(t, r.m, shell(t, dir, `echo begin; read x; echo bye; exit 9`))
	id := a.Sandbox().GetId()
	o.await(t, "begin")
	r.stop()
	wantRestart(t, finished)
	if _, err := r.k.kept[id][handedStdout].Stat(); err != nil {
		t.Fatal(err)
	}
	a.Close()
	for name, f := range r.k.kept[id] {
		if name == handedStdin {
			f.Close() // it ends before the next policyd is there
			delete(r.k.kept[id], name)
			r.k.kept[id][handedState].Close()
			state, err := memory(handedLink{Version: 1, Input: input{Closed: true}, Output: [2]handedTail{{Read: 6, Sent: 6}}})
			if err != nil {
				t.Fatal(err)
			}
			r.k.kept[id][handedState] = state
		}
	}
	time.Sleep(50 * time.Millisecond)
	r.start()
	eventually(t, "its last words are in its logs", func() bool {
		sb, err := r.m.Get(id)
		if err != nil || !sb.GetOutputKept() {
			return false
		}
		out, _ := logText(t, r.m, id)
		return out == "bye\n"
	})
	eventually(t, "nobody looks at the logs any more", func() bool {
		r.m.logs.mu.Lock()
		defer r.m.logs.mu.Unlock()
		return r.m.logs.boxes[id] == nil && r.m.logs.ended[id].bytes == 4
	})
}

// TestHandOverRefused: who has no claim to streams gets none, and what cannot be handed over is hung up.
func TestHandOverRefused(t *testing.T) {
	r := newRestarting(t, "supervisor")
	dir := t.TempDir()
	a, o, finished := attach(t, r.m, shell(t, dir, `echo begin; sleep 1000`))
	id := a.Sandbox().GetId()
	o.await(t, "begin")
	if _, err := r.m.Attach(t.Context(), id, Offsets{}); !errors.Is(err, errs.ErrExists) {
		t.Errorf("beside its client: %v", err)
	}
	detached, err := r.m.Start(t.Context(), testRequest(t, dir, "sleep", "1000"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.m.Attach(t.Context(), detached.GetId(), Offsets{}); !errors.Is(err, errs.ErrInvalid) {
		t.Errorf("detached: %v", err)
	}
	if _, err := r.m.Attach(t.Context(), "ffffffffffff", Offsets{}); !errors.Is(err, errs.ErrNotFound) {
		t.Errorf("unknown: %v", err)
	}
	r.stop()
	wantRestart(t, finished)
	if _, err := r.m.Attach(t.Context(), id, o.offsets()); !errors.Is(err, errs.ErrRestart) {
		t.Errorf("at the policyd that stops: %v", err)
	}
	r.start()
	for _, at := range []Offsets{{Stdout: 7}, {Stderr: 1}, {Stdout: 1 << 63}} {
		if _, err := r.m.Attach(t.Context(), id, at); !errors.Is(err, errs.ErrInvalid) {
			t.Errorf("%+v: %v", at, err)
		}
	}
	// Once it is back, a client that goes away is one.
	ctx, cancel := context.WithCancel(t.Context())
	if a, err = r.m.Attach(ctx, id, o.offsets()); err != nil {
		t.Fatal(err)
	}
	cancel()
	exit, err := r.m.Wait(t.Context(), id)
	if err != nil || exit.GetSignal() != int32(syscall.SIGHUP) && kernelTells(t) {
		t.Errorf("exit %v, %v", exit, err)
	}
	a.Close()

	full, o, finished := attach(t, r.m, shell(t, dir, `echo begin; sleep 1000`))
	o.await(t, "begin")
	r.k.full = true
	r.stop()
	wantRestart(t, finished)
	full.Close()
	if rec, err := r.cfg.Store.Sandbox(full.Sandbox().GetId()); err != nil || rec.GetExit().GetSignal() != int32(syscall.SIGHUP) {
		t.Errorf("no room: %v, %v", rec, err)
	}
	r.start()
}

// TestHandedOddly: streams that cannot be used hang the sandbox up, and no descriptor is kept.
func TestHandedOddly(t *testing.T) {
	for name, spoil := range map[string]func(Handed){
		"no state":      func(h Handed) { delete(h, handedState) },
		"no JSON":       func(h Handed) { _ = h[handedState].Truncate(3) },
		"other version": func(h Handed) { h[handedState], _ = memory(handedLink{Version: 2}) },
		"contradiction": func(h Handed) {
			h[handedState], _ = memory(handedLink{Version: 1, Output: [2]handedTail{{Read: 1, Sent: 2}}})
		},
		"no output":    func(h Handed) { delete(h, handedStdout) },
		"no input":     func(h Handed) { delete(h, handedStdin) },
		"another type": func(h Handed) { h[handedStderr] = h[handedState] },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRestarting(t, "supervisor")
			a, o, finished := attach(t, r.m, shell(t, t.TempDir(), `echo begin; sleep 1000`))
			o.await(t, "begin")
			r.stop()
			wantRestart(t, finished)
			a.Close()
			id := a.Sandbox().GetId()
			spoil(r.k.kept[id])
			r.k.kept["strange"] = Handed{"x": os.NewFile(^uintptr(0), "none")}
			r.start()
			if exit, err := r.m.Wait(t.Context(), id); err != nil || exit.GetSignal() != int32(syscall.SIGHUP) && kernelTells(t) {
				t.Errorf("exit %v, %v", exit, err)
			}
			if _, err := r.m.Attach(t.Context(), id, o.offsets()); !errors.Is(err, errs.ErrNotRunning) {
				t.Errorf("attach: %v", err)
			}
		})
	}
}

// TestTail: what is kept of an output is its end.
func TestTail(t *testing.T) {
	tl := tail{keep: 10}
	for i := range 100 {
		tl.add(fmt.Appendf(nil, "%03d", i))
	}
	if p, ok := tl.from(290); !ok || string(p) != "6097098099" {
		t.Errorf("%q, %v", p, ok)
	}
	for _, offset := range []uint64{0, 280, 301} {
		if p, ok := tl.from(offset); ok {
			t.Errorf("%d: %q", offset, p)
		}
	}
	if p, ok := tl.from(300); !ok || len(p) > 0 {
		t.Errorf("%q, %v", p, ok)
	}
}
