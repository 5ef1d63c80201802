package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"policyd.dev/policyd/internal/testkernel"
)

// fileEvent is what happened to the store's file, in order.
type fileEvent struct {
	offset int64
	data   []byte // a write
	size   int64  // else a truncation to this size, when not 0
	sync   bool
	ack    string // else an acknowledged document
}

const sectorSize = 512 // what a disk writes whole

// childPowerLoss records the writes and syncs of a store, then loses power in each interval between syncs: of the
// writes since the last sync any sectors may have reached the disk.
func childPowerLoss(args []string) error {
	in, err := newInjector()
	if err != nil {
		fmt.Println("unavailable:", err)
		return nil
	}
	path := filepath.Join(args[0], "policyd.db")
	s, err := Open(path, Options{})
	if err != nil {
		return err
	}
	image, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var events []fileEvent
	in.mu.Lock()
	in.record = func(n seccompNotif) {
		e := fileEvent{}
		switch n.nr {
		case unix.SYS_PWRITE64:
			e.offset, e.data = int64(n.args[3]), make([]byte, n.args[2])
			local := []unix.Iovec{{Base: &e.data[0], Len: n.args[2]}}
			if _, err := unix.ProcessVMReadv(os.Getpid(), local, []unix.RemoteIovec{{Base: uintptr(n.args[1]), Len: int(n.args[2])}}, 0); err != nil {
				panic(err)
			}
		case unix.SYS_FTRUNCATE:
			e.size = int64(n.args[1])
		default:
			e.sync = true
		}
		events = append(events, e)
	}
	in.mu.Unlock()
	base := fragmentOf("local/base", "one")
	for i := range 14 {
		p := policy(fmt.Sprint("p", i%5), fmt.Sprint(i), base)
		p.Source = strings.Repeat("x", rand.IntN(100<<10))
		applied, err := s.Apply(context.Background(), alice, []Put{p})
		if err != nil {
			return err
		}
		in.mu.Lock()
		events = append(events, fileEvent{ack: fmt.Sprintf("%s@%d", p.Name, applied[0].Info.GetNumber())})
		in.mu.Unlock()
	}
	in.mu.Lock()
	in.record = nil
	in.mu.Unlock()
	if err := s.Close(); err != nil {
		return err
	}
	return losePower(filepath.Join(args[0], "lost.db"), image, events)
}

func losePower(path string, image []byte, events []fileEvent) error {
	durable := bytes.Clone(image)
	var pending []fileEvent
	var acknowledged []string
	losses, intervals := 0, 0
	interval := func() error {
		intervals++
		for try := range 8 {
			lost := bytes.Clone(durable)
			for _, e := range pending {
				lost = e.apply(lost, func() bool { return try == 0 || try > 1 && rand.IntN(try) > 0 }) // all, none, some
			}
			losses++
			if err := survives(path, lost, acknowledged); err != nil {
				return fmt.Errorf("interval %d, try %d, %d pending: %w", intervals, try, len(pending), err)
			}
		}
		return nil
	}
	for _, e := range events {
		switch {
		case e.ack != "":
			acknowledged = append(acknowledged, e.ack)
		case e.sync:
			if err := interval(); err != nil {
				return err
			}
			for _, p := range pending {
				durable = p.apply(durable, func() bool { return true })
			}
			pending = nil
		default:
			pending = append(pending, e)
		}
	}
	if len(pending) > 0 {
		return errors.New("the last commit was acknowledged before its sync")
	}
	if err := interval(); err != nil {
		return err
	}
	fmt.Printf("%d losses of power in %d intervals, %d acknowledged\n", losses, intervals, len(acknowledged))
	return nil
}

// apply gives the file after the event, with those of its sectors that reach the disk.
func (e fileEvent) apply(file []byte, reaches func() bool) []byte {
	grow := func(size int64) {
		if int64(len(file)) < size {
			file = append(file, make([]byte, size-int64(len(file)))...)
		}
	}
	if e.size > 0 && reaches() {
		grow(e.size)
	}
	for at := 0; at < len(e.data); at += sectorSize {
		if sector := e.data[at:min(at+sectorSize, len(e.data))]; reaches() {
			grow(e.offset + int64(at+len(sector)))
			copy(file[e.offset+int64(at):], sector)
		}
	}
	return file
}

// survives opens what a loss of power left.
func survives(path string, file []byte, acknowledged []string) error {
	if err := os.WriteFile(path, file, 0o600); err != nil {
		return err
	}
	problems, _, _, err := CheckFile(context.Background(), path)
	if err != nil || len(problems) > 0 {
		return fmt.Errorf("check: %v %w", problems, err)
	}
	s, err := Open(path, Options{NoSync: true})
	if err != nil {
		return err
	}
	defer s.Close()
	for _, ref := range acknowledged {
		if _, err := s.Get(KindLandlockPolicy, ref); err != nil {
			return fmt.Errorf("acknowledged %s: %w", ref, err)
		}
	}
	_, err = s.Apply(context.Background(), alice, []Put{policy("after", "one")})
	return err
}

func TestPowerLoss(t *testing.T) {
	out := runChild(t, "power-loss", false, t.TempDir())
	if strings.HasPrefix(out, "unavailable") {
		testkernel.Skip(t, out, "a kernel with seccomp user notification (5.7)")
	}
	t.Log(out)
}
