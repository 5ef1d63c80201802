package decide

import (
	"fmt"
	"sort"
	"strings"
	"syscall"

	"policyd.dev/policyd/enforce/profile"
)

// opensForWriting is what open(2) refuses for directories: O_TRUNC makes MAY_WRITE of any mode.
const opensForWriting = profile.OpenWrite | profile.OpenCreate | profile.OpenTruncate

// assume takes objects for what the operation makes sense with.
func (x *inquiry) assume() error {
	t := profile.RegularFile
	switch x.op.Kind {
	case profile.OpMkdir, profile.OpMknod, profile.OpSymlink:
		return nil
	case profile.OpIoctlDev:
		t = profile.CharDevice
	case profile.OpConnectUnix:
		t = profile.Socket
	case profile.OpRmdir:
		t = profile.Directory
	}
	folder := func(given, real string) bool { return given[len(given)-1] == '/' || x.d.hasBeneath(real) }
	if x.op.Open&profile.OpenDirectory != 0 || folder(x.q.op.Path, x.old.real) {
		t = profile.Directory
	}
	if t == profile.Directory && x.op.Open&opensForWriting != 0 {
		return notAsked(x.q.op.Path, "a directory is not opened for writing", syscall.EISDIR)
	}
	x.old.kind = t
	if x.op.Open&profile.OpenPath == 0 {
		x.a.note(noteAssumed, "%s is taken for a %s%s", x.q.op.Path, assumedNames[t], x.slashHint(t))
	}
	switch x.op.Kind {
	case profile.OpExchange:
		x.new.kind = profile.RegularFile
		if folder(x.q.op.NewPath, x.new.real) {
			x.new.kind = profile.Directory
		}
		x.a.note(noteAssumed, "%s is taken for a %s%s", x.q.op.NewPath, assumedNames[x.new.kind], x.slashHint(x.new.kind))
		return x.intoItself()
	case profile.OpRename:
		if err := x.intoItself(); err != nil {
			return err
		}
		x.a.note(noteAssumed, "%s is taken for free; to replace a file there needs remove_file on its directory as well", x.q.op.NewPath)
	}
	return nil
}

// hasBeneath tells whether a rule stands beneath a path, which then is a directory.
func (d *Decider) hasBeneath(path string) bool {
	if path == "/" {
		return true
	}
	i := sort.Search(len(d.p.Paths), func(i int) bool { return d.p.Paths[i].Path >= path+"/" })
	return i < len(d.p.Paths) && strings.HasPrefix(d.p.Paths[i].Path, path+"/")
}

func (x *inquiry) slashHint(t profile.FileType) string {
	if t != profile.RegularFile {
		return ""
	}
	return "; a / at its end says it is a directory"
}

var assumedNames = map[profile.FileType]string{
	profile.RegularFile: "regular file", profile.Directory: "directory",
	profile.CharDevice: "character device", profile.Socket: "unix socket",
}

// look examines what is there: what the kernel refuses before it asks Landlock
// is an error, what it refuses after that a note.
func (x *inquiry) look() error {
	f := &x.old
	dir := f.kind == profile.Directory
	switch k := x.op.Kind; k {
	case profile.OpOpen, profile.OpIoctlDev:
		if err := x.memory(); err != nil {
			return err
		}
		switch {
		case x.op.Open&profile.OpenPath != 0:
		case dir && x.op.Open&opensForWriting != 0:
			return notAsked(x.q.op.Path, "a directory is not opened for writing", syscall.EISDIR)
		case f.exists() && !dir && x.op.Open&profile.OpenDirectory != 0:
			return notAsked(x.q.op.Path, "no directory", syscall.ENOTDIR)
		case f.kind == profile.Socket:
			x.a.note(noteFileSystem, "%s is a socket: open fails with ENXIO where the policy allows it", x.q.op.Path)
		case !f.exists() && x.op.Open&profile.OpenCreate == 0:
			x.missing(x.q.op.Path, f, profile.RegularFile)
			if x.op.Kind == profile.OpIoctlDev {
				f.kind = profile.CharDevice
			}
		case f.orphan:
			x.a.note(noteMissing, "the folder of %s does not exist: decided as if it did", x.q.op.Path)
		}
	case profile.OpTruncate:
		switch {
		case dir:
			return notAsked(x.q.op.Path, "a directory is not truncated", syscall.EISDIR)
		case f.exists() && f.kind != profile.RegularFile:
			return notAsked(x.q.op.Path, "no regular file", syscall.EINVAL)
		}
		x.missing(x.q.op.Path, f, profile.RegularFile)
	case profile.OpConnectUnix:
		if f.exists() && f.kind != profile.Socket {
			return notAsked(x.q.op.Path, "no socket", syscall.ECONNREFUSED)
		}
		x.missing(x.q.op.Path, f, profile.Socket)
	case profile.OpMkdir, profile.OpMknod, profile.OpSymlink:
		switch {
		case f.exists():
			x.a.note(noteExists, "%s exists: EEXIST comes first", x.q.op.Path)
		case f.orphan:
			x.a.note(noteMissing, "the folder of %s does not exist: decided as if it did", x.q.op.Path)
		}
	case profile.OpUnlink:
		if dir {
			x.a.note(noteFileSystem, "%s is a directory: unlink fails with EISDIR where the policy allows it", x.q.op.Path)
		}
		x.missing(x.q.op.Path, f, profile.RegularFile)
	case profile.OpRmdir:
		if f.exists() && !dir {
			x.a.note(noteFileSystem, "%s is no directory: rmdir fails with ENOTDIR where the policy allows it", x.q.op.Path)
		}
		x.missing(x.q.op.Path, f, profile.Directory)
	case profile.OpRename, profile.OpExchange, profile.OpLink:
		return x.lookMove()
	}
	return nil
}

// lookMove examines both ends of a rename, exchange or link.
func (x *inquiry) lookMove() error {
	if !x.old.exists() {
		return notAsked(x.q.op.Path, "it does not exist", syscall.ENOENT)
	}
	if x.op.Kind == profile.OpExchange && !x.new.exists() {
		return notAsked(x.q.op.NewPath, "it does not exist", syscall.ENOENT)
	}
	if x.old.real == "/" || x.new.real == "/" {
		return notAsked("/", "it has no folder", syscall.EBUSY)
	}
	root, err := lookAt("/", false)
	if err != nil {
		return err
	}
	from, err := lookAt(parent(x.old.real), false)
	if err != nil {
		return err
	}
	to, err := lookAt(parent(x.new.real), false)
	if isMissing(err) {
		return notAsked(x.q.op.NewPath, "its folder does not exist", syscall.ENOENT)
	}
	if err != nil {
		return err
	}
	if from.mount != to.mount || x.op.Kind == profile.OpLink && x.old.mount != to.mount {
		if x.op.Kind == profile.OpLink && x.new.exists() {
			return notAsked(x.q.op.NewPath, "it exists", syscall.EEXIST)
		}
		return notAsked(x.a.Operation, "the two lie in different mounts", syscall.EXDEV)
	}
	if err := x.intoItself(); err != nil {
		return err
	}
	x.facts.Mounted = to.mount != root.mount
	if x.op.Kind == profile.OpLink {
		if x.new.exists() {
			x.a.note(noteExists, "%s exists: EEXIST comes first", x.q.op.NewPath)
		}
		if x.old.kind == profile.Directory {
			x.a.note(noteFileSystem, "%s is a directory: link fails with EPERM where the policy allows it", x.q.op.Path)
		}
	}
	return nil
}

// intoItself refuses what would cut a directory off the tree: do_renameat2 looks at both ends before it asks.
func (x *inquiry) intoItself() error {
	switch {
	case x.op.Kind == profile.OpLink:
	case strings.HasPrefix(x.new.real, x.old.real+"/"):
		return notAsked(x.q.op.NewPath, "it lies beneath "+x.q.op.Path, syscall.EINVAL)
	case !strings.HasPrefix(x.old.real, x.new.real+"/"):
	case x.op.Kind == profile.OpExchange:
		return notAsked(x.q.op.Path, "it lies beneath "+x.q.op.NewPath, syscall.EINVAL)
	default:
		return notAsked(x.q.op.NewPath, x.q.op.Path+" lies beneath it", syscall.ENOTEMPTY)
	}
	return nil
}

// missing notes that something is not there and what it is taken for.
func (x *inquiry) missing(given string, f *found, t profile.FileType) {
	if f.exists() {
		return
	}
	where := ""
	if f.real != given {
		where = " (" + f.real + ")"
	}
	x.a.note(noteMissing, "%s%s does not exist: decided as for a %s of that name", given, where, assumedNames[t])
	f.kind = t
}

func notAsked(what, why string, errno syscall.Errno) error {
	return fmt.Errorf("%s: %w: %s: %w", what, ErrNotAsked, why, errno)
}
