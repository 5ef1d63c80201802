package spawn

import (
	"errors"
	"fmt"
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

// TestDirectory: a program's directory is entered as its user, and never by way of
// what policyd itself has open.
func TestDirectory(t *testing.T) {
	rs := openPolicy(t, support(t))
	s := newTestSpawner(t, 0)
	root := t.TempDir()
	open, closed, link := filepath.Join(root, "open"), filepath.Join(root, "closed"), filepath.Join(root, "link")
	below := filepath.Join(closed, "below")
	for _, dir := range []string{open, closed, below} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for d := root; d != os.TempDir() && d != "/"; d = filepath.Dir(d) {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	held, err := os.Open(below) // policyd's
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	magic := fmt.Sprintf("/proc/self/fd/%d", held.Fd())
	for name, target := range map[string]string{link: open, link + "-magic": magic} {
		if err := os.Symlink(target, name); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(root, "file"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(closed, 0o700); err != nil {
		t.Fatal(err)
	}
	type user struct {
		name string
		cred *Credential
	}
	users := []user{{"same", nil}}
	if os.Geteuid() == 0 {
		users = append(users, user{"other", &Credential{UID: 65534, GID: 65534}})
	}
	for _, u := range users {
		eachContainment(t, func(t *testing.T, c Containment) {
			for dir, want := range map[string]string{
				"": "/", "/": "/", open: open, link: open, below: below, closed: closed,
				magic: "", magic + "/..": "", link + "-magic": "", "/proc/self/cwd": "", "/proc/self/root": "",
				filepath.Join(root, "none"): "", filepath.Join(root, "file"): "",
			} {
				if u.cred != nil && (want == below || want == closed) {
					want = ""
				}
				cmd := sh("pwd -P; ls /proc/self/fd | wc -l")
				cmd.Dir, cmd.Credential, cmd.Group = dir, u.cred, newGroup(t, c)
				if want != "" {
					if out, st := output(t, s, cmd, rs); st.Code != 0 || out != want+"\n4\n" {
						t.Errorf("%s user, %q: %+v %q", u.name, dir, st, out)
					}
					continue
				}
				child, err := s.Start(cmd, rs)
				if err == nil {
					_ = cmd.Group.KillAll()
					wait(t, child)
				}
				if !errors.Is(err, errs.ErrStart) || !strings.Contains(err.Error(), fmt.Sprintf("directory %q", dir)) {
					t.Errorf("%s user, %q: error %v", u.name, dir, err)
				}
			}
		})
	}
}
