package smackfs

import (
	"compress/gzip"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"policyd.dev/policyd/internal/errs"
	"policyd.dev/policyd/smack"
)

func TestFind(t *testing.T) {
	const (
		mounts  = "21 28 0:20 / /sys rw - sysfs sysfs rw\n"
		smackfs = "30 21 0:25 / /sys/fs/smackfs rw - smackfs smackfs rw\n"
		old     = `31 21 0:25 / /smack\040x ro - smackfs none ro` + "\n"
	)
	for _, tc := range []struct {
		name  string
		files map[string]string
		dir   Dir
		err   error
	}{
		{name: "usual", files: map[string]string{"proc/self/mountinfo": mounts + old + smackfs}, dir: "/sys/fs/smackfs"},
		{name: "elsewhere", files: map[string]string{"proc/self/mountinfo": mounts + old}, dir: "/smack x"},
		{name: "read-only beside another", files: map[string]string{"proc/self/mountinfo": mounts + strings.Replace(smackfs, "smackfs rw", "smackfs ro", 1) + strings.Replace(strings.Replace(old, " ro ", " rw ", 1), "none ro", "none rw", 1)}, dir: "/smack x"},
		{name: "read-only as a whole", files: map[string]string{"proc/self/mountinfo": mounts + strings.Replace(old, " ro ", " rw ", 1) + strings.Replace(smackfs, "smackfs rw\n", "smackfs ro\n", 1)}, dir: "/sys/fs/smackfs"},
		{name: "covered by a read-only one", files: map[string]string{"proc/self/mountinfo": mounts + smackfs + strings.Replace(smackfs, "smackfs rw", "smackfs ro", 1)}, dir: "/sys/fs/smackfs"},
		{name: "one file of it", files: map[string]string{
			"proc/self/mountinfo": "30 21 0:25 /load2 /masked rw - smackfs smackfs rw\n" + old,
		}, dir: "/smack x"},
		{name: "not mounted", files: map[string]string{"proc/self/mountinfo": mounts, "proc/filesystems": "nodev\tsysfs\nnodev\tsmackfs\n"}, err: errs.ErrSmackNotMounted},
		{name: "not enabled", files: map[string]string{
			"proc/self/mountinfo": mounts, "proc/filesystems": "nodev\tsysfs\n", "sys/kernel/security/lsm": "landlock,apparmor",
			"proc/config.gz": "CONFIG_SECURITY=y\nCONFIG_SECURITY_SMACK=y\n",
		}, err: errs.ErrSmackDisabled},
		{name: "not built", files: map[string]string{
			"proc/self/mountinfo": mounts, "proc/filesystems": "nodev\tsysfs\n", "sys/kernel/security/lsm": "landlock,apparmor",
			"proc/config.gz": "CONFIG_SECURITY=y\n# CONFIG_SECURITY_SMACK is not set\n",
		}, err: errs.ErrSmackNotBuilt},
		{name: "nobody says", files: map[string]string{"proc/self/mountinfo": mounts, "proc/filesystems": "nodev\tsysfs\n"}, err: errs.ErrSmackDisabled},
		{name: "no proc", err: fs.ErrNotExist},
	} {
		t.Run(tc.name, func(t *testing.T) {
			root := t.TempDir()
			for name, text := range tc.files {
				path := filepath.Join(root, name)
				if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := writeText(path, text); err != nil {
					t.Fatal(err)
				}
			}
			dir, err := findIn(root)
			if dir != tc.dir || !errors.Is(err, tc.err) {
				t.Errorf("%q, %v", dir, err)
			}
			if lsm := tc.files["sys/kernel/security/lsm"]; lsm != "" && !strings.Contains(err.Error(), lsm) {
				t.Errorf("the active LSMs are not named: %v", err)
			}
		})
	}
}

func writeText(path, text string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer f.Close()
	if !strings.HasSuffix(path, ".gz") {
		_, err = f.WriteString(text)
		return err
	}
	z := gzip.NewWriter(f)
	if _, err := z.Write([]byte(text)); err != nil {
		return err
	}
	return z.Close()
}

// TestCanWrite: what is in the way, on the model.
func TestCanWrite(t *testing.T) {
	m := newModel()
	for name, tc := range map[string]struct {
		caller Caller
		err    error
	}{
		"root":           {Root, nil},
		"a user":         {Caller{}, errs.ErrSmackPrivilege},
		"a capable user": {Caller{MacAdmin: true}, errs.ErrSmackPrivilege},
		"no capability":  {Caller{Root: true}, errs.ErrSmackPrivilege},
	} {
		if err := CanWrite(m.As(tc.caller)); !errors.Is(err, tc.err) {
			t.Errorf("%s: %v", name, err)
		}
		r, err := Load(t.Context(), m.As(tc.caller), setOf(t, "A B r"), nil, Options{})
		if !errors.Is(err, tc.err) || r == nil || (err != nil) != (r.Writes == 0) {
			t.Errorf("%s: load: %v, %+v", name, err, r)
		}
		load(t, m, &smack.Set{}, setOf(t, "A B r"), Options{})
	}
	if err := writeFile(m, fileOnlycap, []byte("System")); err != nil {
		t.Fatal(err)
	}
	if err := CanWrite(m.As(Caller{Label: "Other", Root: true, MacAdmin: true})); !errors.Is(err, errs.ErrSmackOnlycap) || !strings.Contains(err.Error(), `"Other", onlycap names System`) {
		t.Errorf("onlycap: %v", err)
	}
	if err := CanWrite(m.As(Caller{Label: "System", Root: true, MacAdmin: true})); err != nil {
		t.Errorf("onlycap: %v", err)
	}
	ro := &hookFS{FS: newModel(), hook: func(int, string, []byte) ([]byte, error) {
		return nil, &os.PathError{Op: "open", Path: "load2", Err: unix.EROFS}
	}}
	if err := Revoke(ro, "A"); !errors.Is(err, errs.ErrSmackNotMounted) {
		t.Errorf("read-only: %v", err)
	}
	if err := Revoke(m, "-A"); !errors.Is(err, errs.ErrInvalid) {
		t.Errorf("revoke: %v", err)
	}
}

// testPrivilege: the same on a kernel, and on the model beside it.
func testPrivilege(t *testing.T, kernel FS, k ModelKernel) {
	dir, err := Find()
	if err != nil || dir != "/sys/fs/smackfs" {
		t.Errorf("%q, %v", dir, err)
	}
	var st unix.Statfs_t
	if err := unix.Statfs(string(dir), &st); err != nil || st.Type != Magic {
		t.Errorf("type %x, %v", st.Type, err)
	}

	// While onlycap names another label, a thread that has it undoes that.
	undo, undone := make(chan struct{}), make(chan struct{})
	ready := make(chan struct{})
	go asThread(t, "Keeper", func() {
		if err := writeFile(kernel, fileOnlycap, []byte("Keeper")); err != nil {
			t.Error(err)
		}
		close(ready)
		<-undo
		if err := writeFile(kernel, fileOnlycap, []byte("-")); err != nil {
			t.Error(err)
		}
		close(undone)
	})
	<-ready
	m := NewModel(k)
	if err := writeFile(m, fileOnlycap, []byte("Keeper")); err != nil {
		t.Fatal(err)
	}
	compareRefusals(t, m.As(Root), kernel)
	before := rulesOf(t, kernel)
	if _, err := Load(t.Context(), kernel, setOf(t, "Priv1 Priv2 r"), nil, Options{}); !errors.Is(err, errs.ErrSmackOnlycap) {
		t.Errorf("onlycap: %v", err)
	}
	same(t, "onlycap", rulesOf(t, kernel), before)
	close(undo)
	<-undone

	// A thread without capabilities, and one of a user.
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // ends with the goroutine
		hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		var data [2]unix.CapUserData
		if err := unix.Capget(&hdr, &data[0]); err != nil {
			t.Error(err)
			return
		}
		data[1].Effective &^= 1 << (unix.CAP_MAC_ADMIN - 32)
		if err := unix.Capset(&hdr, &data[0]); err != nil {
			t.Error(err)
			return
		}
		compareRefusals(t, NewModel(k).As(Caller{Root: true}), kernel)
		if err := CanWrite(kernel); !errors.Is(err, errs.ErrSmackPrivilege) || !errors.Is(err, unix.EPERM) {
			t.Errorf("no capability: %v", err)
		}
		if _, _, errno := unix.RawSyscall(unix.SYS_SETFSUID, 65534, 0, 0); errno != 0 {
			t.Error(errno)
			return
		}
		compareRefusals(t, NewModel(k).As(Caller{}), kernel)
		if err := CanWrite(kernel); !errors.Is(err, errs.ErrSmackPrivilege) || !errors.Is(err, unix.EACCES) {
			t.Errorf("a user: %v", err)
		}
	}()
	<-done
}

// compareRefusals writes to every file as a caller who may not, and reads it.
func compareRefusals(t *testing.T, model, kernel FS) {
	t.Helper()
	for _, name := range slices.Concat(shown, []string{fileAccess, fileAccess2, "no-such-file"}) {
		if name == fileSelf || name == fileSelf2 || name == fileAccess || name == fileAccess2 {
			op := kernelOp{file: name, data: "Unpriv1 Unpriv2 r", ask: name == fileAccess || name == fileAccess2}
			if got, want := op.do(kernel), op.do(model); got != want {
				t.Errorf("%s: the kernel %s, the model %s", op, got, want)
			}
			continue
		}
		for _, data := range []string{"A B r", "A", "1", "10.0.0.0/8 A", ""} {
			op := kernelOp{file: name, data: data}
			if got, want := op.do(kernel), op.do(model); got != want {
				t.Errorf("%s: the kernel %s, the model %s", op, got, want)
			}
		}
		if _, err := readFile(kernel, name); (err != nil) != (name == "no-such-file") && name != fileUnconf {
			t.Errorf("read %s: %v", name, err)
		}
	}
}

// testFiles: the kernel has the files the model has, with the same modes.
func testFiles(t *testing.T, k ModelKernel) {
	entries, err := os.ReadDir("/sys/fs/smackfs")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, e := range entries {
		ops, ok := modelFiles[e.Name()]
		if !ok {
			t.Errorf("the model lacks %s", e.Name())
			continue
		}
		seen[e.Name()] = true
		st, err := e.Info()
		if err != nil {
			t.Fatal(err)
		}
		if want := map[bool]os.FileMode{true: 0o666, false: 0o644}[ops.anyone]; st.Mode().Perm() != want {
			t.Errorf("%s has mode %v, want %v", e.Name(), st.Mode(), want)
		}
	}
	for name := range modelFiles {
		if !seen[name] && (name != fileUnconf || k.Bringup) {
			t.Errorf("the kernel lacks %s", name)
		}
	}
}
