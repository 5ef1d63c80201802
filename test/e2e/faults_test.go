package e2e_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// Everything that is wrong is refused with words that help, nothing is started, and nothing changes.
// The exit status is 125 to 127 as with env(1): all others are the program's own.
func TestBadStarts(t *testing.T) {
	dir := t.TempDir()
	d := startDaemon(t, filepath.Join(dir, "state"))
	fifo := filepath.Join(dir, "fifo")
	if err := syscall.Mkfifo(fifo, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, l := range [][2]string{{"loop", "loop"}, {"self", "/proc/self"}} {
		if err := os.Symlink(l[1], filepath.Join(dir, l[0])); err != nil {
			t.Fatal(err)
		}
	}
	noexec := filepath.Join(dir, "noexec")
	script := filepath.Join(dir, "script")
	if err := os.WriteFile(noexec, []byte("#!/bin/sh\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(script, []byte("#!"+dir+"/interpreter\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "interpreter"), []byte("#!/bin/sh\necho ran\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	d.apply(policy("plain"))
	d.apply(policy("fifo", "{allow: [read, write], at: ["+fifo+", /dev/null, /dev/zero]}"))
	d.apply(policy("missing", "{allow: [read], at: [/nonexistent/one]}", "{allow: [read], at: [/nonexistent/two]}"))
	d.apply(policy("loop", "{allow: [read], at: ["+dir+"/loop]}"))
	d.apply(policy("self", "{allow: [read], at: ["+dir+"/self]}"))
	d.apply(policy("script", "{allow: [read, execute], at: ["+script+"]}", "{allow: [read], at: ["+dir+"/interpreter]}"))
	before := d.must("ps", "-a", "-o", "name")

	for _, tc := range []struct {
		name string
		args []string
		code int
		says []string
	}{
		{"policy that is not there", []string{"run", "nobody", "--", "true"}, 125, []string{"nobody", "not found"}},
		{"version that is not there", []string{"run", "plain@7", "--", "true"}, 125, []string{"plain@7"}},
		{"program that is not there", []string{"run", "plain", "--", "/nonexistent/program"}, 127, []string{"/nonexistent/program"}},
		{"program not in PATH", []string{"run", "plain", "--", "no-such-program"}, 127, []string{"no-such-program"}},
		{"program without execute permission", []string{"run", "plain", "--", noexec}, 126, []string{noexec}},
		{"program the policy does not grant", []string{"run", "plain", "--", script}, 126, []string{script, "execute"}},
		{"interpreter the policy does not grant", []string{"run", "script", "--", script}, 126, []string{dir + "/interpreter", "execute"}},
		{"directory as program", []string{"run", "plain", "--", "/usr"}, 126, []string{"/usr"}},
		{"no program", []string{"run", "plain"}, 125, []string{"--"}},
		{"missing paths are all named", []string{"run", "missing", "--", "true"}, 125, []string{"/nonexistent/one", "/nonexistent/two"}},
		{"symlink loop", []string{"run", "loop", "--", "true"}, 125, []string{dir + "/loop"}},
		{"way into /proc/self", []string{"run", "self", "--", "true"}, 125, []string{"/proc"}},
		{"unknown parameter", []string{"run", "plain", "--set", "a=/b", "--", "true"}, 125, []string{"a"}},
		{"parameter without value", []string{"run", "plain", "--set", "a", "--", "true"}, 125, []string{"NAME=VALUE"}},
		{"directory that is not there", []string{"run", "plain", "--dir", "/nonexistent", "--", "true"}, 125, []string{"/nonexistent"}},
		{"user that is not there", []string{"run", "plain", "--user", "no-such-user", "--", "true"}, 125, []string{"no-such-user"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d := *d
			d.t = t
			r := d.ctl(tc.args...)
			if r.code != tc.code {
				t.Errorf("exit status %d, want %d", r.code, tc.code)
			}
			for _, s := range tc.says {
				if !strings.Contains(r.stderr, s) {
					t.Errorf("the message does not say %q", s)
				}
			}
			if strings.Contains(r.stdout, "ran") || t.Failed() {
				t.Error(r)
			}
		})
	}
	if after := d.must("ps", "-o", "name"); after != "" {
		t.Errorf("something is running: %s (before: %s)", after, before)
	}
	// FIFO, device and socket are paths like others: opening them must not block.
	d.must("run", "fifo", "--", "true")
}

// Bad documents: every one is refused with its place and changes nothing.
func TestBadDocuments(t *testing.T) {
	d := startDaemon(t, t.TempDir())
	d.apply(policy("good"))
	head := "apiVersion: policyd/v1\nkind: LandlockPolicy\nmetadata: {name: bad}\nspec:\n  abi: 4\n"
	rules := func(s string) string { return head + "  layers:\n    - name: one\n" + s }
	bomb := "apiVersion: policyd/v1\nkind: LandlockPolicy\nmetadata: {name: bad}\nspec:\n  abi: 4\n  variables:\n    a: &a [/x, /x]\n"
	for c := 'b'; c < 'z'; c++ {
		bomb += fmt.Sprintf("    %c: &%c [*%c, *%c, *%c, *%c, *%c]\n", c, c, c-1, c-1, c-1, c-1, c-1)
	}
	for _, tc := range []struct{ name, text, says string }{
		{"unknown key", head + "  layerz: []\n", "<stdin>:6:"},
		{"wrong type", head + "  layers: yes\n", "<stdin>:6:"},
		{"repeated key", head + "  abi: 5\n", "<stdin>:6:"},
		{"port 65536", rules("      ports: [{allow: [bind_tcp], port: [65536]}]\n"), "65536"},
		{"port -1", rules("      ports: [{allow: [bind_tcp], port: [-1]}]\n"), "-1"},
		{"relative path", rules("      paths: [{allow: [read], at: [etc]}]\n"), "absolute"},
		{"path with ..", rules("      paths: [{allow: [read], at: [/etc/../root]}]\n"), ".."},
		{"NUL", rules("      paths: [{allow: [read], at: [\"/etc/\\0x\"]}]\n"), "NUL"},
		{"path of 1 MB", rules("      paths: [{allow: [read], at: [/" + strings.Repeat("a", 1<<20) + "]}]\n"), "1048577 bytes"},
		{"bomb of aliases", bomb, "alias"},
		{"not YAML", "{", "<stdin>:"},
		{"unknown right", rules("      paths: [{allow: [raed], at: [/etc]}]\n"), "read"},
		{"right of a newer ABI", rules("      paths: [{allow: [ioctl_dev], at: [/dev]}]\n"), "5"},
		{"unknown kind", strings.Replace(head, "LandlockPolicy", "LandlockPolcy", 1), "LandlockPolicy"},
		{"duplicate name", policy("twice") + "---\n" + policy("twice"), "twice"},
		{"one good, one bad", policy("fine") + "---\n" + head + "  layerz: []\n", "layerz"},
		{"nothing", "", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d := *d
			d.t = t
			stdin := tc.text
			if stdin == "" {
				stdin = "\n"
			}
			r := d.ctlIn(stdin, "apply", "-f", "-")
			if r.code != 1 && r.code != 2 {
				t.Errorf("exit status %d", r.code)
			}
			if !strings.Contains(r.stderr, tc.says) {
				t.Errorf("the message does not say %q", tc.says)
			}
			if len(r.stderr) > 8000 {
				t.Errorf("the message has %d bytes", len(r.stderr))
			}
			if t.Failed() {
				t.Logf("%.2000s", r.stderr)
			}
		})
	}
	if got := d.must("get", "policies", "-o", "name"); got != "policy/good@1" {
		t.Errorf("after all that the store holds %s", got)
	}
}

// Of many writers that expect the same version one wins.
func TestConcurrentExpect(t *testing.T) {
	d := startDaemon(t, t.TempDir())
	d.apply(policy("race"))
	var wg sync.WaitGroup
	codes := make([]int, 8)
	for i := range codes {
		wg.Go(func() {
			codes[i] = d.ctlIn(policy("race", fmt.Sprintf("{allow: [read], at: [/x%d], missing: skip}", i)), "apply", "-f", "-", "--expect", "1").code
		})
	}
	wg.Wait()
	won := 0
	for _, c := range codes {
		if c == 0 {
			won++
		}
	}
	if won != 1 {
		t.Errorf("%d of %d won: %v", won, len(codes), codes)
	}
	if got := d.must("get", "policy", "race", "-o", "name"); got != "policy/race@2" {
		t.Error(got)
	}
}

// A second policyd on the same store says who is in the way, and does no harm.
func TestSecondDaemon(t *testing.T) {
	d := startDaemon(t, t.TempDir())
	r := run(t, exec.Command(filepath.Join(binDir, "policyd"), "--state-dir", d.state, "--listen", "unix://"+t.TempDir()+"/other.sock"))
	if r.code == 0 || !strings.Contains(r.stderr, "policyd.db") {
		t.Errorf("second daemon: %s", r)
	}
	d.must("status")
}

// Ordinary use while the store's file system is full: refused in words, and fine again when space is freed.
func TestDiskFull(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("mounting a small tmpfs needs root; the suite runs as root too")
	}
	dir := t.TempDir()
	if err := syscall.Mount("small", dir, "tmpfs", 0, "size=1m"); err != nil {
		t.Skipf("no tmpfs can be mounted here: %v", err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
	d := startDaemon(t, filepath.Join(dir, "state"))
	d.apply(policy("early"))
	filler := filepath.Join(dir, "filler")
	fill(t, filler)
	refused := false
	for n := range 50 {
		r := d.ctlIn(policy(fmt.Sprintf("late-%d", n), "{allow: [read], at: [/"+strings.Repeat("long/", 700)+"], missing: skip}"), "apply", "-f", "-")
		if r.code != 0 {
			refused = true
			if !strings.Contains(r.stderr, "no space left") {
				t.Errorf("what was said: %s", r)
			}
			break
		}
	}
	if !refused {
		t.Fatal("the disk never got full")
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	d.apply(policy("after"))
	d.must("get", "policy", "early")
	d.must("db", "check")
	d.stop(syscall.SIGKILL)
	d.start()
	d.must("get", "policy", "after")
}

// fill writes a file until no space is left.
func fill(t *testing.T, path string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	block := make([]byte, 4096)
	for {
		if _, err := f.Write(block); err != nil {
			return
		}
	}
}

// A store that cannot be written is told at start.
func TestStoreReadOnly(t *testing.T) {
	dir := t.TempDir()
	d := startDaemon(t, dir)
	d.apply(policy("kept"))
	d.stop(syscall.SIGTERM)
	if os.Getuid() == 0 {
		if err := syscall.Mount(dir, dir, "", syscall.MS_BIND, ""); err != nil {
			t.Skipf("no bind mount can be made here: %v", err)
		}
		t.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
		if err := syscall.Mount("", dir, "", syscall.MS_REMOUNT|syscall.MS_BIND|syscall.MS_RDONLY, ""); err != nil {
			t.Fatal(err)
		}
	} else if err := os.Chmod(filepath.Join(dir, "policyd.db"), 0o400); err != nil {
		t.Fatal(err)
	}
	r := run(t, exec.Command(filepath.Join(binDir, "policyd"), "--state-dir", dir))
	if r.code == 0 || !strings.Contains(r.stderr, "read-only") {
		t.Errorf("policyd on a read-only store: %s", r)
	}
	if os.Getuid() == 0 {
		_ = syscall.Unmount(dir, syscall.MNT_DETACH)
	} else if err := os.Chmod(filepath.Join(dir, "policyd.db"), 0o600); err != nil {
		t.Fatal(err)
	}
	d.start()
	d.must("get", "policy", "kept")
}
