package owned

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

func TestOpen(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	for name, mode := range map[string]os.FileMode{"good": 0o644, "private": 0o600, "group": 0o664, "world": 0o646} {
		if err := errors.Join(os.WriteFile(at(name), nil, 0o600), os.Chmod(at(name), mode)); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(os.Symlink("good", at("link")), syscall.Mkfifo(at("fifo"), 0o600), os.Mkdir(at("folder"), 0o700)); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]error{
		"good": nil, "private": nil, "group": ErrOthers, "world": ErrOthers, "link": syscall.ELOOP, "fifo": ErrOthers, "folder": ErrOthers, "absent": fs.ErrNotExist,
	} {
		f, err := Open(at(name))
		if !errors.Is(err, want) || (err == nil) != (f != nil) {
			t.Errorf("%s: %v, want %v", name, err, want)
		}
		if f != nil {
			f.Close()
		}
	}
	if os.Geteuid() == 0 {
		if err := os.Chown(at("good"), 1, 1); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(at("good")); !errors.Is(err, ErrOthers) {
			t.Errorf("of another user: %v", err)
		}
	}
}
