package cli

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"policyd.dev/policyd/internal/policy"
)

func TestReadSources(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"b.yaml": "b", "a.yml": "a", "sub/c.yaml": "c", "note.txt": "no", ".hidden.yaml": "no", ".git/x.yaml": "no",
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	files, err := ReadSources([]string{dir, "-", filepath.Join(dir, "note.txt")}, strings.NewReader("stdin"))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range files {
		got = append(got, string(f.GetContent()))
	}
	if strings.Join(got, " ") != "a b c stdin no" {
		t.Errorf("got %q", got)
	}
	if files[3].GetName() != "<stdin>" {
		t.Errorf("name of standard input: %q", files[3].GetName())
	}
	if _, err := ReadSources([]string{t.TempDir()}, nil); err == nil {
		t.Error("an empty folder is no error")
	}
	if _, err := ReadSources([]string{filepath.Join(dir, "none")}, nil); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
	if _, err := ReadSources(nil, nil); ExitCode(err) != ExitUsage {
		t.Error(err)
	}
}

func TestWriteAtomically(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "f")
	write := func(text string, fail error) error {
		return WriteAtomically(path, 0o640, func(w io.Writer) error {
			_, err := io.WriteString(w, text)
			return errors.Join(err, fail)
		})
	}
	if err := write("one", nil); err != nil {
		t.Fatal(err)
	}
	broken := errors.New("broken")
	if err := write("two, cut sh", broken); !errors.Is(err, broken) {
		t.Fatal(err)
	}
	b, err := os.ReadFile(path)
	if err != nil || string(b) != "one" {
		t.Errorf("%q %v", b, err)
	}
	if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o640 {
		t.Errorf("%v %v", st.Mode(), err)
	}
	if left, _ := os.ReadDir(dir); len(left) != 1 {
		t.Errorf("left behind: %v", left)
	}
}

// What has no end is read as far as it takes to refuse it.
func TestReadSourcesWithoutEnd(t *testing.T) {
	zero, err := os.Open("/dev/zero")
	if err != nil {
		t.Fatal(err)
	}
	defer zero.Close()
	files, err := ReadSources([]string{"/dev/zero", "-"}, zero)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if n := len(f.GetContent()); n != policy.MaxFileBytes+1 {
			t.Errorf("%s: %d bytes", f.GetName(), n)
		}
	}
}

// A device, a pipe or a symbolic link is written to, never replaced.
func TestWriteIntoWhatIsThere(t *testing.T) {
	dir := t.TempDir()
	pipe, link, nowhere, file := filepath.Join(dir, "pipe"), filepath.Join(dir, "link"), filepath.Join(dir, "nowhere"), filepath.Join(dir, "file")
	if err := errors.Join(syscall.Mkfifo(pipe, 0o600), os.Symlink("file", link), os.Symlink("new", nowhere), os.WriteFile(file, []byte("something longer"), 0o600)); err != nil {
		t.Fatal(err)
	}
	reader, err := os.OpenFile(pipe, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	for _, path := range []string{pipe, link, nowhere} {
		before, err := os.Lstat(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := WriteAtomically(path, 0o644, func(w io.Writer) error { _, err := io.WriteString(w, "text"); return err }); err != nil {
			t.Errorf("%s: %v", path, err)
		}
		if after, err := os.Lstat(path); err != nil || !os.SameFile(before, after) {
			t.Errorf("%s was replaced (%v)", path, err)
		}
	}
	got := make([]byte, 9)
	if n, err := reader.Read(got); err != nil || string(got[:n]) != "text" {
		t.Errorf("through the pipe %q, %v", got[:n], err)
	}
	for _, name := range []string{file, filepath.Join(dir, "new")} {
		if b, err := os.ReadFile(name); err != nil || string(b) != "text" {
			t.Errorf("%s: %q, %v", name, b, err)
		}
	}
	refused := errors.New("refused")
	if err := WriteAtomically(link, 0o644, func(io.Writer) error { return refused }); !errors.Is(err, refused) {
		t.Errorf("error %v", err)
	}
	if b, err := os.ReadFile(file); err != nil || string(b) != "text" {
		t.Errorf("%q, %v after a failure", b, err)
	}
	if err := WriteAtomically("/dev/full", 0o644, func(w io.Writer) error { _, err := io.WriteString(w, "x"); return err }); !errors.Is(err, syscall.ENOSPC) && !errors.Is(err, fs.ErrPermission) {
		t.Errorf("/dev/full: %v", err)
	}
}
