package store

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"policyd.dev/policyd/internal/errs"
	"policyd.dev/policyd/internal/testkernel"
)

// fillUp applies documents until the store says that it is full, and returns how many were acknowledged. Text that
// cannot be written as it is must be gone whole.
func fillUp(s *Store, label string) (acknowledged int, err error) {
	noise := make([]byte, 30<<10)
	for i := range 10000 {
		rand.Read(noise)
		p := policy(fmt.Sprint(label, i), "one")
		p.Source = hex.EncodeToString(noise)
		_, err := s.Apply(context.Background(), alice, []Put{p})
		if errors.Is(err, errs.ErrStoreFull) {
			if _, err := s.Get(KindLandlockPolicy, p.Name); !errors.Is(err, errs.ErrNotFound) {
				return i, fmt.Errorf("what was refused is there: %v", err)
			}
			return i, nil
		}
		if err != nil {
			return i, err
		}
	}
	return 0, errors.New("the store never got full")
}

// fullAndAgain fills the store up three times, with more space in between, and checks it each time.
func fullAndAgain(path string, moreSpace func() error) error {
	s, err := Open(path, Options{})
	if err != nil {
		return err
	}
	want := 0
	check := func(when string) error {
		list, _, err := s.List(KindLandlockPolicy, Filter{})
		if err != nil || len(list) != want {
			return fmt.Errorf("%s: %d documents (%v), %d were acknowledged", when, len(list), err, want)
		}
		problems, _, _, err := s.Check(context.Background())
		if err != nil || len(problems) > 0 {
			return fmt.Errorf("%s: check: %v %v", when, problems, err)
		}
		return nil
	}
	for round := range 3 {
		n, err := fillUp(s, fmt.Sprint("r", round, "-"))
		if err != nil {
			return fmt.Errorf("round %d: %w", round, err)
		}
		want += n
		for range 5 { // full is told each time, and nothing piles up
			big := policy("more", "one")
			big.Source = strings.Repeat("x", 8<<20) // more than any free run of pages
			if _, err := s.Apply(context.Background(), alice, []Put{big}); !errors.Is(err, errs.ErrStoreFull) {
				return fmt.Errorf("round %d, after %d documents, while full: %v", round, n, err)
			}
		}
		if err := check(fmt.Sprintf("round %d, full", round)); err != nil {
			return err
		}
		if err := moreSpace(); err != nil {
			return err
		}
		if _, err := s.Apply(context.Background(), alice, []Put{policy(fmt.Sprint("after", round), "one")}); err != nil {
			return fmt.Errorf("round %d: after space was made: %w", round, err)
		}
		want++
		if err := check(fmt.Sprintf("round %d, after", round)); err != nil {
			return err
		}
	}
	if err := s.Close(); err != nil {
		return err
	}
	if s, err = Open(path, Options{}); err != nil {
		return err
	}
	defer s.Close()
	fmt.Println(want)
	return check("opened again")
}

// childDiskFull runs in a mount namespace of its own.
func childDiskFull(args []string) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	if err := unix.Mount("tmpfs", args[0], "tmpfs", 0, "size=1m"); err != nil {
		return err
	}
	size := 1
	return fullAndAgain(filepath.Join(args[0], "policyd.db"), func() error {
		size++
		return unix.Mount("", args[0], "", unix.MS_REMOUNT, fmt.Sprintf("size=%dm", size))
	})
}

// TestDiskFull fills a small tmpfs.
func TestDiskFull(t *testing.T) {
	requireNamespaces(t)
	t.Logf("acknowledged and found again: %s", runChild(t, "disk-full", true, t.TempDir()))
}

// childFileLimit lets file sizes run out (EFBIG), which no user needs a namespace for.
func childFileLimit(args []string) error {
	limit := func(size uint64) error {
		return unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: size, Max: unix.RLIM_INFINITY})
	}
	size := uint64(2 << 20)
	if err := limit(size); err != nil {
		return err
	}
	return fullAndAgain(filepath.Join(args[0], "policyd.db"), func() error {
		size += 1 << 20
		return limit(size)
	})
}

func TestFileSizeLimit(t *testing.T) {
	t.Logf("acknowledged and found again: %s", runChild(t, "file-limit", false, t.TempDir()))
}

// requireNamespaces skips the test where a mount namespace cannot be had.
func requireNamespaces(t *testing.T) {
	t.Helper()
	probe := child("hold", true, "-")
	if err := probe.Run(); err != nil {
		testkernel.Skip(t, fmt.Sprintf("a mount namespace (%v)", err), "run go test as root, or allow user namespaces")
	}
}

// childReadOnly tries a store on a file system mounted read-only, and read-write again.
func childReadOnly(args []string) error {
	dir, path := args[0], filepath.Join(args[0], "policyd.db")
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=8m"); err != nil {
		return err
	}
	remount := func(flags uintptr) error { return unix.Mount("", dir, "", unix.MS_REMOUNT|flags, "") }
	if err := remount(unix.MS_RDONLY); err != nil {
		return err
	}
	if _, err := Open(path, Options{}); !errors.Is(err, errs.ErrStoreReadOnly) {
		return fmt.Errorf("new store: %w", err)
	}
	if err := remount(0); err != nil {
		return err
	}
	s, err := Open(path, Options{})
	if err != nil {
		return err
	}
	if _, err := s.Apply(context.Background(), alice, []Put{policy("web", "one")}); err != nil {
		return err
	}
	if err := s.Close(); err != nil {
		return err
	}
	before, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := remount(unix.MS_RDONLY); err != nil {
		return err
	}
	if _, err := Open(path, Options{}); !errors.Is(err, errs.ErrStoreReadOnly) {
		return fmt.Errorf("old store: %w", err)
	}
	if _, err := Restore(bytesReader(before), path, true); !errors.Is(err, errs.ErrStoreReadOnly) {
		return fmt.Errorf("restore: %w", err)
	}
	if _, _, err := Compact(path); !errors.Is(err, errs.ErrStoreReadOnly) {
		return fmt.Errorf("compact: %w", err)
	}
	s, err = Open(path, Options{ReadOnly: true})
	if err != nil {
		return fmt.Errorf("open for reading: %w", err)
	}
	if v, err := s.Get(KindLandlockPolicy, "web"); err != nil || v.GetInfo().GetNumber() != 1 {
		return fmt.Errorf("get: %v %w", v, err)
	}
	if _, err := s.Apply(context.Background(), alice, []Put{policy("web", "two")}); !errors.Is(err, errs.ErrStoreReadOnly) {
		return fmt.Errorf("apply: %w", err)
	}
	return s.Close()
}

func TestReadOnlyFileSystem(t *testing.T) {
	requireNamespaces(t)
	runChild(t, "read-only", true, t.TempDir())
}
