package spawn

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"policyd.dev/policyd/internal/errs"
)

// TestLooksAsTheUser: neither the search for a program nor the words after a
// refusal tell a user what he may not see.
func TestLooksAsTheUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root's policyd starts programs as others")
	}
	sup := support(t)
	dir := t.TempDir()
	for d := dir; d != os.TempDir() && d != "/"; d = filepath.Dir(d) {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	secret := filepath.Join(dir, "secret")
	if err := os.Mkdir(secret, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, mode := range map[string]os.FileMode{"secret/program": 0o755, "secret/plain": 0o644, "unreadable": 0o711} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/hidden/interpreter\n"), mode); err != nil {
			t.Fatal(err)
		}
	}
	nobody := &Credential{UID: 65534, GID: 65534}
	var seen []string
	for _, name := range []string{"program", "plain", "missing", "program/below"} {
		path := filepath.Join(secret, name)
		_, err := LookPathAs(nobody, path, nil, "")
		if !errors.Is(err, errs.ErrProgramRefused) {
			t.Errorf("%s: %v", name, err)
		}
		seen = append(seen, strings.ReplaceAll(err.Error(), path, ""))
	}
	for _, text := range seen {
		if text != seen[0] {
			t.Errorf("answers differ: %q", seen)
		}
	}
	for _, name := range []string{"program", "plain", "missing"} {
		got, err := LookPathAs(nobody, name, []string{"PATH=" + secret + ":/usr/bin"}, "")
		if got != "" || !errors.Is(err, errs.ErrProgramRefused) {
			t.Errorf("%s in PATH: %q, %v", name, got, err)
		}
	}
	if got, err := LookPathAs(nobody, "sh", []string{"PATH=" + secret + ":/usr/bin"}, ""); got != "/usr/bin/sh" || err != nil {
		t.Errorf("sh behind a folder that is closed: %q, %v", got, err)
	}
	if _, err := LookPathAs(&Credential{UID: 0, GID: 0}, filepath.Join(secret, "program"), nil, ""); err != nil {
		t.Errorf("root: %v", err)
	}
	s := newTestSpawner(t, 1)
	_, err := s.Start(&Command{Path: filepath.Join(dir, "unreadable"), Credential: nobody}, openPolicy(t, sup))
	if err == nil || strings.Contains(err.Error(), "hidden") {
		t.Errorf("script that may not be read: %v", err)
	}
}
