package smackfs

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"policyd.dev/policyd/internal/errs"
)

// Magic is what statfs(2) gives as the type of a smackfs.
const Magic = 0x43415d53

// Find finds the mounted smackfs of this process's mount namespace, /sys/fs/smackfs before any other place (/smack is
// the old one), and one that can be written before all that cannot. A read-only one counts. The error tells Smack not built, not enabled, and smackfs not mounted apart.
func Find() (Dir, error) {
	dir, err := findIn("/")
	if err != nil {
		return "", err
	}
	return dir, dir.check()
}

// check tells whether the folder is a smackfs: another file system may be mounted over it.
func (d Dir) check() error {
	var st unix.Statfs_t
	if _, err := ignoringEINTR(func() (int, error) { return 0, unix.Statfs(string(d), &st) }); err != nil {
		return fmt.Errorf("%w: %w", errs.ErrSmackNotMounted, &os.PathError{Op: "statfs", Path: string(d), Err: err})
	}
	if st.Type != Magic {
		return fmt.Errorf("%w: another file system is mounted over %s", errs.ErrSmackNotMounted, string(d))
	}
	return nil
}

// findIn is Find with proc, sys and boot under a root.
func findIn(root string) (Dir, error) {
	mounts, err := os.ReadFile(filepath.Join(root, "proc/self/mountinfo"))
	if err != nil {
		return "", err
	}
	best, score := "", 0
	for line := range strings.Lines(string(mounts)) {
		head, tail, ok := strings.Cut(line, " - ")
		fields := strings.Fields(head)
		if !ok || len(fields) < 6 || fields[3] != "/" || !strings.HasPrefix(tail, "smackfs ") { // a root of its own: one file of it
			continue
		}
		at, n := unescape(fields[4]), 1
		if at == "/sys/fs/smackfs" {
			n++
		}
		super := strings.Fields(tail)
		if slices.Contains(strings.Split(fields[5], ","), "rw") && !slices.Contains(strings.Split(super[len(super)-1], ","), "ro") {
			n += 2
		}
		if n > score || at == best { // of one place the last is on top
			best, score = at, n
		}
	}
	if best != "" {
		return Dir(best), nil
	}
	types, err := os.ReadFile(filepath.Join(root, "proc/filesystems"))
	if err != nil {
		return "", err
	}
	if slices.Contains(strings.Fields(string(types)), "smackfs") { // registered when Smack is enabled at boot
		return "", fmt.Errorf("%w: mount -t smackfs smackfs /sys/fs/smackfs", errs.ErrSmackNotMounted)
	}
	active := "unknown, securityfs is not mounted"
	if b, err := os.ReadFile(filepath.Join(root, "sys/kernel/security/lsm")); err == nil {
		active = strings.TrimSpace(string(b))
	}
	if built, known := builtIn(root); known && !built {
		return "", fmt.Errorf("%w (active: %s)", errs.ErrSmackNotBuilt, active)
	}
	return "", fmt.Errorf("%w (active: %s)", errs.ErrSmackDisabled, active)
}

// unescape undoes mountinfo's octal escapes.
func unescape(s string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(s)
}

// builtIn says whether the kernel's configuration has Smack, where it can be read.
func builtIn(root string) (built, known bool) {
	var uts unix.Utsname
	if err := unix.Uname(&uts); err != nil {
		return false, false
	}
	release := unix.ByteSliceToString(uts.Release[:])
	for _, path := range []string{"proc/config.gz", "boot/config-" + release, "lib/modules/" + release + "/config"} {
		f, err := os.Open(filepath.Join(root, path))
		if err != nil {
			continue
		}
		defer f.Close()
		var r io.Reader = f
		if strings.HasSuffix(path, ".gz") {
			if r, err = gzip.NewReader(f); err != nil {
				continue
			}
		}
		for lines := bufio.NewScanner(r); lines.Scan(); {
			if bytes.Equal(lines.Bytes(), []byte("CONFIG_SECURITY_SMACK=y")) {
				return true, true
			}
			known = true
		}
		if known {
			return false, true
		}
	}
	return false, false
}

// CanWrite says why this process cannot change anything in smackfs, or nil. Smackfs checks at write(2) alone, so that an
// empty write to load2, which changes nothing, is the test.
func CanWrite(fs FS) error {
	return explain(fs, writeFile(fs, fileLoad2, nil))
}

// explain puts the reason before an error of open or write: no privilege, onlycap, read-only, unmounted meanwhile. Other
// errors stay; a file that some kernels do not have is not to be explained.
func explain(fs FS, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.EROFS):
		return fmt.Errorf("%w for writing: %w", errs.ErrSmackNotMounted, err)
	case errors.Is(err, unix.ENOENT):
		return fmt.Errorf("%w any more: %w", errs.ErrSmackNotMounted, err)
	case errors.Is(err, unix.EACCES):
		return fmt.Errorf("%w: its files are written by root alone: %w", errs.ErrSmackPrivilege, err)
	case !errors.Is(err, unix.EPERM):
		return err
	}
	label, capable := callerOf(fs)
	list, readErr := readLabels(fs, fileOnlycap)
	switch {
	case !capable:
		return fmt.Errorf("%w: %w", errs.ErrSmackPrivilege, err)
	case readErr == nil && len(list) > 0 && !slices.Contains(list, label):
		return fmt.Errorf("%w: this process has the label %q, onlycap names %s: %w", errs.ErrSmackOnlycap, label, strings.Join(list, " "), err)
	}
	return fmt.Errorf("%w: the capability does not count outside the initial user namespace: %w", errs.ErrSmackPrivilege, err)
}

// callerOf gives the label of the caller and whether it has CAP_MAC_ADMIN.
func callerOf(fs FS) (label string, capable bool) {
	switch fs := fs.(type) {
	case *Model:
		return Root.Label, Root.MacAdmin
	case *modelFS:
		return fs.caller.Label, fs.caller.MacAdmin
	case interface{ Unwrap() FS }:
		return callerOf(fs.Unwrap())
	}
	label, _ = ThreadLabel()
	hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&hdr, &data[0]); err != nil {
		return label, false
	}
	return label, data[unix.CAP_MAC_ADMIN/32].Effective&(1<<(unix.CAP_MAC_ADMIN%32)) != 0
}

// readLabels reads a file of labels separated by blanks, in the order it shows them.
func readLabels(fs FS, name string) ([]string, error) {
	b, err := readFile(fs, name)
	if err != nil {
		return nil, err
	}
	return strings.Fields(string(bytes.TrimRight(b, "\x00"))), nil
}
