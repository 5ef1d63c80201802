package cli

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
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
