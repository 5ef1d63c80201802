package testkernel

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// newRoot is where the root of a [System] is put together. The host's root, which is read-only, has the folder.
const newRoot = "/tmp"

// become makes the root of a [System], changes to it, and becomes its process 1, as an initramfs does. It returns only
// with an error.
//
// Nothing that systemd mounts itself is mounted for it: proc, sys, dev, run, cgroups, securityfs and smackfs are its
// own, with the options it gives them on a kernel with Smack.
func become(j job) error {
	if err := unix.Mount("tmpfs", newRoot, "tmpfs", 0, "mode=0755"); err != nil {
		return fmt.Errorf("mount the root: %w", err)
	}
	if err := layRoot(newRoot, j.Root); err != nil {
		return err
	}
	if err := os.Chdir(newRoot); err != nil {
		return err
	}
	if err := unix.Mount(".", "/", "", unix.MS_MOVE, ""); err != nil {
		return fmt.Errorf("move the root: %w", err)
	}
	if err := unix.Chroot("."); err != nil {
		return fmt.Errorf("change to the root: %w", err)
	}
	if err := os.Chdir("/"); err != nil {
		return err
	}
	fmt.Fprintf(os.Stdout, "\n%s\n", j.marker(strings.TrimSpace(markStart)))
	return fmt.Errorf("%s: %w", j.Argv[0], unix.Exec(j.Argv[0], j.Argv, j.Env))
}

// layRoot fills an empty root: the host's /usr and what leads into it, empty folders, and the job's own.
func layRoot(root string, r *rootJob) error {
	for _, dir := range []string{"usr", "proc", "sys", "dev", "run", "tmp", "var/tmp", "var/log", "root", "etc"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			return err
		}
	}
	if err := mountUsr(filepath.Join(root, "usr"), r.Overlay); err != nil {
		return fmt.Errorf("mount /usr: %w", err)
	}
	if err := os.Symlink("/run", filepath.Join(root, "var/run")); err != nil {
		return err
	}
	for _, name := range []string{"bin", "sbin", "lib", "lib32", "lib64", "libx32"} {
		target, err := os.Readlink("/" + name)
		switch {
		case errors.Is(err, os.ErrNotExist):
			continue
		case err != nil:
			return fmt.Errorf("/%s of the host does not lead into /usr: %w", name, err)
		}
		if err := os.Symlink(target, filepath.Join(root, name)); err != nil {
			return err
		}
	}
	for _, path := range slices.Sorted(maps.Keys(r.Folders)) {
		at := filepath.Join(root, path)
		if err := os.MkdirAll(at, 0o755); err != nil {
			return err
		}
		if err := unix.Mount("none", at, "hostfs", 0, r.Folders[path]); err != nil {
			return fmt.Errorf("mount the host's %s on %s: %w", r.Folders[path], path, err)
		}
	}
	for path, text := range r.Files {
		at := filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			return err
		}
		mode := os.FileMode(0o644)
		if bytes.HasPrefix(text, []byte("#!")) {
			mode = 0o755
		}
		if err := os.WriteFile(at, text, mode); err != nil {
			return err
		}
	}
	for path, target := range r.Links {
		at := filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			return err
		}
		if err := os.Symlink(target, at); err != nil {
			return err
		}
	}
	return nil
}

// mountUsr mounts the host's /usr, or a layer in memory over it.
func mountUsr(at string, overlay bool) error {
	if !overlay {
		return unix.Mount("/usr", at, "", unix.MS_BIND, "")
	}
	// The layers stay mounted below the overlay, out of sight.
	if err := unix.Mount("tmpfs", at, "tmpfs", 0, "mode=0755"); err != nil {
		return err
	}
	for _, dir := range []string{"upper", "work"} {
		if err := os.Mkdir(filepath.Join(at, dir), 0o755); err != nil {
			return err
		}
	}
	return unix.Mount("overlay", at, "overlay", 0, fmt.Sprintf("lowerdir=/usr,upperdir=%s/upper,workdir=%s/work", at, at))
}
