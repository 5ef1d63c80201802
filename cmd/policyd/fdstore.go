package main

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"policyd.dev/policyd/internal/sandbox"
)

const (
	// storedPrefix begins the names of all descriptors in the service manager's store: then the sandbox's id, a dot, and what it is.
	storedPrefix = "policyd.sandbox."
	// fdStoreEnv is set by policyd's units to their FileDescriptorStoreMax=. systemd itself tells of its store only
	// since 254, by the other one.
	fdStoreEnv        = "POLICYD_FDSTORE"
	fdStoreSystemdEnv = "FDSTORE"
	// barrierPatience is how long the service manager may take to have read what it was sent.
	barrierPatience = 5 * time.Second
)

// fdStore keeps descriptors for the next policyd: the service manager's (FileDescriptorStoreMax= of systemd.service(5)).
type fdStore struct {
	notify notifier
	free   int
}

// newFDStore is nil when the service manager keeps no descriptors. It takes the variables out of the environment.
func newFDStore(n notifier, log *slog.Logger) *fdStore {
	most := -1
	for _, name := range []string{fdStoreEnv, fdStoreSystemdEnv} {
		text := os.Getenv(name)
		os.Unsetenv(name) // not for children
		if text == "" {
			continue
		}
		v, err := strconv.Atoi(text)
		if err != nil || v < 0 {
			log.Warn("variable is no number of descriptors, none are stored", "variable", name, "value", text)
			v = 0
		}
		if most < 0 || v < most {
			most = v
		}
	}
	if n.socket == "" || most <= 0 {
		return nil
	}
	return &fdStore{notify: n, free: most}
}

// handOver is nil without a store.
func (s *fdStore) handOver() func(string, sandbox.Handed) error {
	if s == nil {
		return nil
	}
	return s.put
}

// put stores the descriptors of a sandbox, all or none, and returns when the service manager has them.
func (s *fdStore) put(id string, h sandbox.Handed) error {
	if s.free < len(h) {
		return errors.New("the service manager's store has no room left (FileDescriptorStoreMax=)")
	}
	var names []string
	var err error
	for part, f := range h {
		name := storedPrefix + id + "." + part
		// Without FDPOLL=0 it drops pipes whose other end is closed, and what is in them.
		if err = s.notify.sendFile(f, "FDSTORE=1", "FDPOLL=0", "FDNAME="+name); err != nil {
			break
		}
		names = append(names, name)
	}
	if err == nil {
		err = s.notify.barrier()
	}
	if err != nil {
		s.free = 0 // the next ones would wait as long
		return errors.Join(err, s.remove(names))
	}
	s.free -= len(h)
	return nil
}

// remove takes descriptors out of the store, so that they are closed when policyd closes them.
func (s *fdStore) remove(names []string) error {
	for _, name := range names {
		if err := s.notify.send("FDSTOREREMOVE=1", "FDNAME="+name); err != nil {
			return err
		}
	}
	return nil
}

// handed sorts what came from the store by sandbox; strange names are closed.
func handed(stored map[string]*os.File) (byID map[string]sandbox.Handed, names []string) {
	byID = map[string]sandbox.Handed{}
	for name, f := range stored {
		names = append(names, name)
		id, part, ok := strings.Cut(strings.TrimPrefix(name, storedPrefix), ".")
		if !ok {
			f.Close()
			continue
		}
		if byID[id] == nil {
			byID[id] = sandbox.Handed{}
		}
		byID[id][part] = f
	}
	slices.Sort(names)
	return byID, names
}

// forget empties the store of what this process took out of it.
func forget(n notifier, names []string) error {
	if len(names) == 0 {
		return nil
	}
	if err := (&fdStore{notify: n}).remove(names); err != nil {
		return err
	}
	return n.barrier()
}

// sendFile is send with a descriptor, which stays the caller's.
func (n notifier) sendFile(f *os.File, lines ...string) error {
	c, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: n.socket, Net: "unixgram"})
	if err != nil {
		return fmt.Errorf("notify the service manager: %w", err)
	}
	defer c.Close()
	if err := c.SetWriteDeadline(time.Now().Add(barrierPatience)); err != nil {
		return fmt.Errorf("notify the service manager: %w", err)
	}
	socket, err := c.SyscallConn()
	if err != nil {
		return fmt.Errorf("notify the service manager: %w", err)
	}
	file, err := f.SyscallConn()
	if err != nil {
		return fmt.Errorf("notify the service manager: %w", err)
	}
	// Not WriteMsgUnix, which takes no connected socket of datagrams.
	var sent error
	err = file.Control(func(fd uintptr) {
		err := socket.Write(func(s uintptr) bool {
			sent = unix.Sendmsg(int(s), []byte(strings.Join(lines, "\n")), unix.UnixRights(int(fd)), nil, unix.MSG_NOSIGNAL)
			return !errors.Is(sent, unix.EAGAIN)
		})
		sent = cmp.Or(err, sent)
	})
	if err := cmp.Or(err, sent); err != nil {
		return fmt.Errorf("notify the service manager: %w", err)
	}
	return nil
}

// barrier waits until the service manager has acted on what it was sent before (sd_notify_barrier(3)): what a process
// sends that has ended by then is nobody's.
func (n notifier) barrier() error {
	r, w, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("barrier: %w", err)
	}
	defer r.Close()
	err = n.sendFile(w, "BARRIER=1")
	w.Close()
	if err != nil {
		return err
	}
	if err := r.SetReadDeadline(time.Now().Add(barrierPatience)); err != nil {
		return fmt.Errorf("barrier: %w", err)
	}
	if _, err := r.Read(make([]byte, 1)); errors.Is(err, os.ErrDeadlineExceeded) {
		return fmt.Errorf("the service manager does not read what it is told: %w", err)
	}
	return nil
}
