package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"policyd.dev/policyd/internal/ask"
	"policyd.dev/policyd/internal/containers"
)

// patience bounds the question to policyd; engines wait a few seconds longer.
const patience = 10 * time.Second

// maxProfile is profile.MaxEncoded: package profile decides, and is not needed to hand bytes on.
const maxProfile = 64 << 20

// known is a profile that is there as a file, and what it is of.
type known struct {
	Digest     string
	Version    string // NAME@NUMBER
	SmackLabel string
	Binding    string
	Missing    []string
	// Last tells that policyd did not answer and this is what it said before.
	Last bool

	file string
	lock *os.File // as long as it is held, files of profiles stay
}

// profile asks policyd for a profile and keeps it as a file. One by Bindings is
// never one from earlier: which it was depended on all that was known then.
func (s *settings) profile(q *ask.Question) (*known, error) {
	k, encoded, err := s.answer(q)
	if err != nil {
		return nil, err
	}
	if k.lock, err = s.place(k, encoded); err != nil {
		return nil, fmt.Errorf("keep it: %w", err)
	}
	return k, nil
}

func (s *settings) answer(q *ask.Question) (*known, []byte, error) {
	remember := s.Unreachable == "last-known" && q.Ref != ""
	a, err := ask.Profile(s.Socket, q, patience)
	if remember && ask.NoAnswer(err) {
		k, encoded, err2 := s.lastKnown(q)
		if err2 != nil {
			return nil, nil, fmt.Errorf("%w; and none is known from earlier: %w", err, err2)
		}
		return k, encoded, nil
	}
	if err == nil {
		err = refused(a)
	}
	if err != nil {
		if remember {
			s.forget(q) // what is refused now must not be given when policyd is away
		}
		return nil, nil, err
	}
	k := &known{Digest: a.Digest, Version: a.Version, SmackLabel: a.SmackLabel, Binding: a.Binding, Missing: a.Missing}
	if remember {
		if err := s.remember(q, k, a.Profile); err != nil {
			return nil, nil, fmt.Errorf("keep it for when policyd does not answer: %w", err)
		}
	}
	return k, a.Profile, nil
}

// refused says why no container is started by an answer.
func refused(a *ask.Answer) error {
	switch {
	case a.SmackError != "":
		return fmt.Errorf("its Smack label %s: %s", a.SmackLabel, a.SmackError)
	case len(a.Process) > 0:
		// Whoever runs a container says those, and exec's are told anew each time.
		return fmt.Errorf("%s has process.%s, which policyd-runc gives no container: take it out of the policy, and set it where the container is made", a.Version, strings.Join(a.Process, ", process."))
	case len(a.Profile) == 0:
		return errors.New("this kernel can enforce nothing of it")
	case digestOf(a.Profile) != a.Digest:
		return errors.New("policyd's answer does not match its digest")
	}
	return nil
}

// profiles is the folder of the files that containers have mounted, named by
// their digests: containers of one profile share one. It is beside the records,
// and goes with the boot as the containers do.
func (s *settings) profiles() string { return filepath.Join(filepath.Dir(s.Records), "profiles") }

func (s *settings) profileFile(digest string) string {
	return filepath.Join(s.profiles(), strings.ReplaceAll(digest, ":", "-"))
}

// place makes the profile's file, unless it is there. The lock it gives is held
// until the container's record is written, which then keeps the file: whoever
// removes files holds the lock alone.
func (s *settings) place(k *known, encoded []byte) (lock *os.File, err error) {
	k.file = s.profileFile(k.Digest)
	name := filepath.Join(s.profiles(), ".lock")
	lock, err = os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
	if errors.Is(err, os.ErrNotExist) {
		if err = s.makeFolders(); err == nil {
			lock, err = os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
		}
	}
	if err != nil {
		return nil, err
	}
	if err = flock(lock, syscall.LOCK_SH); err == nil && !holds(k.file, encoded) {
		s.removeUnused(lock)
		if err = flock(lock, syscall.LOCK_SH); err == nil {
			err = keep(k.file, encoded, 0o444, false)
		}
	}
	if err != nil {
		lock.Close()
		return nil, err
	}
	return lock, nil
}

// makeFolders leaves policyd's runtime folder, where its socket will be, to everybody.
func (s *settings) makeFolders() error {
	return errors.Join(os.MkdirAll(filepath.Dir(filepath.Dir(s.profiles())), 0o755), os.MkdirAll(s.profiles(), 0o700))
}

// removeUnused removes the files of profiles under which no container is known.
// It is done when one is added: then as many stay as there are in use, and those
// since the last one was added. A container that is being started elsewhere holds
// the lock, and nothing is removed then.
func (s *settings) removeUnused(lock *os.File) {
	if flock(lock, syscall.LOCK_EX|syscall.LOCK_NB) != nil {
		return
	}
	_ = containers.Prune(s.Records) // what it leaves counts as in use: also what the runtime does not know yet
	all, bad := containers.Records(s.Records)
	entries, err := os.ReadDir(s.profiles())
	if len(bad) > 0 || err != nil {
		return // which are in use cannot be told
	}
	used := map[string]bool{".lock": true}
	for _, c := range all {
		used[filepath.Base(s.profileFile(c.Digest))] = true
	}
	for _, e := range entries {
		if !used[e.Name()] {
			_ = os.Remove(filepath.Join(s.profiles(), e.Name())) // the next time tries again
		}
	}
}

func flock(f *os.File, how int) error {
	for {
		if err := syscall.Flock(int(f.Fd()), how); !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}

// holds tells that a file is there with just this content. A file that a loss of
// power has cut off is so made anew, and none needs to be synced.
func holds(path string, content []byte) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	have := make([]byte, len(content)+1)
	n, err := io.ReadFull(f, have)
	return errors.Is(err, io.ErrUnexpectedEOF) && bytes.Equal(have[:n], content)
}

// keep writes a file whole.
func keep(path string, content []byte, mode os.FileMode, sync bool) error {
	dir := filepath.Dir(path)
	f, err := os.CreateTemp(dir, ".new-*")
	if errors.Is(err, os.ErrNotExist) {
		if err = os.MkdirAll(dir, 0o700); err == nil {
			f, err = os.CreateTemp(dir, ".new-*")
		}
	}
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	err = errors.Join(err, f.Chmod(mode))
	if sync {
		err = errors.Join(err, f.Sync())
	}
	err = errors.Join(err, f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		os.Remove(f.Name())
	}
	return err
}
