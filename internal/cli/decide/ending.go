package decide

import (
	"errors"
	"fmt"
	"path"
	"strings"
	"syscall"

	"policyd.dev/policyd/enforce/profile"
)

// ending is how a path ends as it is written, which matters to system calls
// that look for a folder and a name in it (filename_parentat in fs/namei.c).
type ending struct {
	slash bool   // behind the name
	dots  string // in place of a name: ".", "..", or "/"
}

func endingOf(given string) ending {
	name := strings.TrimRight(given, "/")
	e := ending{slash: name != given}
	switch last := path.Base(given); {
	case name == "":
		e.dots = "/"
	case last == "." || last == "..":
		e.dots = last
	}
	return e
}

// find leads a path of the question to an object. A slash behind the name of a
// symbolic link has it followed, but not where a name in a folder is asked for.
func (x *inquiry) find(given string, follow bool) (found, error) {
	if e := endingOf(given); !follow && e.slash && e.dots == "" && !x.d.opt.Lexical {
		given = strings.TrimRight(given, "/")
	}
	if err := x.traced(given, follow); err != nil {
		return found{}, err
	}
	f, err := x.d.find(given, follow)
	for _, errno := range []syscall.Errno{syscall.ENOENT, syscall.ENOTDIR, syscall.ELOOP, syscall.ENAMETOOLONG} {
		if errors.Is(err, errno) {
			return f, fmt.Errorf("%w: %w", ErrNotAsked, err)
		}
	}
	return f, err
}

// followsOld tells whether the first path's symbolic link is followed.
func (x *inquiry) followsOld() bool {
	return follows(x.op.Kind) || x.op.Kind == profile.OpLink && endingOf(x.q.op.Path).slash
}

// endings refuses what the kernel refuses for the way a path ends, before
// Landlock is asked.
func (x *inquiry) endings() error {
	given, other := x.q.op.Path, x.q.op.NewPath
	e := endingOf(given)
	switch x.op.Kind {
	case profile.OpOpen:
		if x.op.Open&profile.OpenCreate != 0 && (e.slash || e.dots != "") {
			return notAsked(given, "a directory is not opened for writing", syscall.EISDIR)
		}
	case profile.OpMknod, profile.OpSymlink:
		if e.slash && e.dots == "" && !x.old.exists() {
			return notAsked(given, "with a slash at its end only a directory is made", syscall.ENOENT)
		}
	case profile.OpUnlink:
		switch {
		case e.dots != "", e.slash && x.old.kind == profile.Directory:
			return notAsked(given, "a directory", syscall.EISDIR)
		case e.slash:
			return notAsked(given, "no directory, with a slash at its end", syscall.ENOTDIR)
		}
	case profile.OpRmdir:
		switch e.dots {
		case ".":
			return notAsked(given, "it ends in .", syscall.EINVAL)
		case "..":
			return notAsked(given, "it ends in ..", syscall.ENOTEMPTY)
		case "/":
			return notAsked(given, "it has no folder", syscall.EBUSY)
		}
	case profile.OpLink:
		if n := endingOf(other); n.slash && n.dots == "" && !x.new.exists() {
			return notAsked(other, "with a slash at its end only a directory is made", syscall.ENOENT)
		}
	case profile.OpRename, profile.OpExchange:
		n := endingOf(other)
		switch {
		case e.dots != "":
			return notAsked(given, "it ends in no name", syscall.EBUSY)
		case n.dots != "":
			return notAsked(other, "it ends in no name", syscall.EBUSY)
		case x.d.opt.Lexical:
		case e.slash && x.old.exists() && x.old.kind != profile.Directory,
			n.slash && x.old.exists() && x.op.Kind == profile.OpRename && x.old.kind != profile.Directory:
			return notAsked(given, "no directory, and a slash at an end", syscall.ENOTDIR)
		case n.slash && x.op.Kind == profile.OpExchange && x.new.exists() && x.new.kind != profile.Directory:
			return notAsked(other, "no directory, with a slash at its end", syscall.ENOTDIR)
		}
	}
	return nil
}
