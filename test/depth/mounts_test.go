package depth

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"

	ll "github.com/landlock-lsm/go-landlock/landlock/syscall"
	"golang.org/x/sys/unix"

	"policyd.dev/policyd/enforce/landlock"
	"policyd.dev/policyd/enforce/profile"
	"policyd.dev/policyd/internal/testkernel"
)

// trial is a system call, and what the tree is asked for it.
type trial struct {
	name string
	do   func() error
	op   profile.Operation
	at   profile.Where
}

// A tree with the objects as Tree's documentation puts them answers as the
// kernel does: a bind mount stands under the parent of its mount point, whose
// own rules do not count, and a directory moved out of it keeps the rules of the
// mount beside those on its way to the root of its file system.
func TestTreeOfMounts(t *testing.T) {
	testkernel.Each(t, testkernel.Landlock, func(t *testing.T) {
		testkernel.RequireRoot(t)
		if !slices.Contains(landlock.Probe().Errata, 3) {
			t.Logf("a kernel with erratum 3: the disconnected directory is left out")
		}
		dir := t.TempDir()
		failed := make(chan error)
		go func() {
			runtime.LockOSThread() // never unlocked: the mounts end with the thread
			failed <- treeOfMounts(dir, t.Errorf)
		}()
		if err := <-failed; err != nil {
			t.Fatal(err)
		}
	})
}

func treeOfMounts(dir string, report func(string, ...any)) error {
	// "hidden" is the rule that stands on the mount point before it is mounted on.
	const read, write, hidden, make = profile.FSReadFile, profile.FSWriteFile, profile.FSTruncate, profile.FSMakeDir
	p, err := profile.NewBuilder([]profile.Layer{{Name: "all", FS: handled}}).Build()
	if err != nil {
		return err
	}
	m, err := newMounts(dir)
	defer m.close()
	if err != nil {
		return err
	}
	if err := m.restrict(p, map[string]profile.Access{
		"disk": read | profile.FSRefer, "disk/in": write, "disk/out": make | profile.FSRefer | profile.FSRemoveFile | profile.FSMakeReg,
	}, hidden); err != nil {
		return err
	}

	tree := profile.NewTree(p)
	var bad error
	add := func(up profile.Place, a profile.Access) profile.Place {
		var rules [][]profile.Access
		if a != 0 {
			rules = append(rules, []profile.Access{a})
		}
		at, err := tree.Add(up, profile.Directory, rules...)
		if err != nil {
			bad = err
		}
		return at
	}
	top := add(add(profile.Nowhere, 0), 0) // "/" and what has no rules down to the file system's root
	disk := add(top, read|profile.FSRefer)
	in := add(disk, write)
	inStay := add(in, 0)
	mount := add(top, write) // the same directory as in; the mount point's parent is top
	mountStay := add(mount, 0)
	// The way of what was moved out: to the file system's root, met once more,
	// which stands under the mount's.
	fromRoot := add(mount, 0)
	moved := add(add(add(fromRoot, read|profile.FSRefer), make|profile.FSRefer|profile.FSRemoveFile|profile.FSMakeReg), 0)
	if bad != nil {
		return bad
	}

	var trials []trial
	files := []struct {
		name   string
		dir    int
		parent profile.Place
	}{{"in/stay", m.inStay, inStay}, {"mnt/stay", m.mountStay, mountStay}}
	if m.erratum3 {
		files = append(files, struct {
			name   string
			dir    int
			parent profile.Place
		}{"mnt/moved, disconnected", m.moved, moved})
	}
	for _, f := range files {
		at := profile.Where{Parent: f.parent}
		for name, flags := range map[string]profile.OpenFlags{
			"read": profile.OpenRead, "write": profile.OpenWrite, "truncate": profile.OpenWrite | profile.OpenTruncate,
		} {
			trials = append(trials, trial{
				name + " " + f.name, func() error { return openAt(f.dir, flags) },
				profile.Operation{Kind: profile.OpOpen, Path: "/f", Open: flags},
				at,
			})
		}
		trials = append(trials, trial{
			"mkdir in " + f.name, func() error { return unix.Mkdirat(f.dir, "new", 0o755) },
			profile.Operation{Kind: profile.OpMkdir, Path: "/new"},
			at,
		})
	}
	if m.erratum3 {
		trials = append(trials, trial{
			"rename out of the disconnected", func() error { return unix.Renameat(m.moved, fileName, m.mountStay, "g") },
			profile.Operation{Kind: profile.OpRename, Path: "/f", NewPath: "/g"},
			profile.Where{Parent: moved, NewParent: mountStay},
		}, trial{
			"rename within the disconnected", func() error { return unix.Renameat(m.moved, fileName, m.moved, "g") },
			profile.Operation{Kind: profile.OpRename, Path: "/f", NewPath: "/g"},
			profile.Where{Parent: moved, NewParent: moved},
		})
	}
	verdicts := map[profile.Verdict]int{}
	for _, tr := range trials {
		a := tree.Decide(tr.op, profile.Facts{Type: profile.RegularFile, Mounted: true}, tr.at)
		if tr.op.Kind == profile.OpMkdir {
			a = tree.Decide(tr.op, profile.Facts{}, tr.at)
		}
		verdicts[a.Verdict]++
		err := tr.do()
		if want := error(a.Errno); (err == nil) != (a.Verdict == profile.Allow) || err != nil && err != want {
			report("%s: the kernel says %v, the tree %v %v", tr.name, err, a.Verdict, want)
		}
	}
	if verdicts[profile.Allow] == 0 || verdicts[profile.Deny] == 0 {
		report("verdicts %v: the test does not reach what it is about", verdicts)
	}
	return nil
}

func openAt(dir int, flags profile.OpenFlags) error {
	f := unix.O_CLOEXEC | unix.O_RDONLY
	if flags&profile.OpenWrite != 0 {
		f |= unix.O_WRONLY
	}
	if flags&profile.OpenTruncate != 0 {
		f |= unix.O_TRUNC
	}
	fd, err := unix.Openat(dir, fileName, f, 0)
	if err == nil {
		unix.Close(fd)
	}
	return err
}

// mounts is a file system in memory with disk/in bound to mnt, in a mount
// namespace of the calling thread; descriptors are of directories with a file.
type mounts struct {
	dir                             string
	point, inStay, mountStay, moved int
	erratum3                        bool // mended
}

func newMounts(dir string) (*mounts, error) {
	m := &mounts{dir: dir, erratum3: slices.Contains(landlock.Probe().Errata, 3)}
	var err error
	step := func(what string, f func() error) {
		if err == nil {
			if e := f(); e != nil {
				err = fmt.Errorf("%s: %w", what, e)
			}
		}
	}
	open := func(fd *int, name string) {
		step(name, func() (err error) {
			*fd, err = unix.Open(filepath.Join(dir, name), openDir, 0)
			return err
		})
	}
	step("unshare", func() error { return unix.Unshare(unix.CLONE_FS | unix.CLONE_NEWNS) })
	step("make private", func() error { return unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "") })
	step("mount", func() error { return unix.Mount("policyd", dir, "tmpfs", 0, "") })
	for _, name := range []string{"disk/in/stay", "disk/in/moved", "disk/out", "mnt"} {
		step(name, func() error { return os.MkdirAll(filepath.Join(dir, name), 0o755) })
	}
	for _, name := range []string{"disk/in/stay", "disk/in/moved"} {
		step(name, func() error { return os.WriteFile(filepath.Join(dir, name, fileName), nil, 0o644) })
	}
	open(&m.point, "mnt")
	step("bind", func() error {
		return unix.Mount(filepath.Join(dir, "disk/in"), filepath.Join(dir, "mnt"), "", unix.MS_BIND, "")
	})
	open(&m.inStay, "disk/in/stay")
	open(&m.mountStay, "mnt/stay")
	open(&m.moved, "mnt/moved")
	step("move out", func() error {
		return os.Rename(filepath.Join(dir, "disk/in/moved"), filepath.Join(dir, "disk/out/moved"))
	})
	return m, err
}

func (m *mounts) close() {
	for _, fd := range []int{m.point, m.inStay, m.mountStay, m.moved} {
		if fd > 0 {
			unix.Close(fd)
		}
	}
}

// restrict puts one layer with these rules on the thread, and one on the
// directory that mnt hides.
func (m *mounts) restrict(p *profile.Profile, rules map[string]profile.Access, hidden profile.Access) error {
	fd, err := ll.LandlockCreateRuleset(&ll.RulesetAttr{HandledAccessFS: uint64(p.Layers[0].FS)}, 0)
	if err != nil {
		return err
	}
	rs := landlock.FromFDs([]landlock.Layer{{Name: p.Layers[0].Name, FD: fd}}, p)
	defer rs.Release()
	add := func(at int, a profile.Access) error {
		return ll.LandlockAddPathBeneathRule(fd, &ll.PathBeneathAttr{ParentFd: at, AllowedAccess: uint64(a)}, 0)
	}
	if err := add(m.point, hidden); err != nil {
		return err
	}
	for name, a := range rules {
		at, err := unix.Open(filepath.Join(m.dir, name), openDir, 0)
		if err != nil {
			return err
		}
		err = add(at, a)
		unix.Close(at)
		if err != nil {
			return err
		}
	}
	return rs.RestrictThread()
}
