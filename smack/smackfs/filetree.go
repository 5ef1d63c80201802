package smackfs

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"policyd.dev/policyd/internal/errs"
)

// Labelling is what to do to the labels of files.
type Labelling struct {
	Set    map[Attr]string
	Remove []Attr

	Recursive bool
	MaxDepth  int  // 1 is what stands in the folder itself; 0 means 64
	DryRun    bool // report only
	// CrossMounts goes into other file systems too.
	CrossMounts bool
	// HardLinks also labels files with several names, of which one may stand elsewhere: whoever can make hard links could
	// have other files relabelled.
	HardLinks bool
	// Each, when set, is told every change, in order, before it is made.
	Each func(FileChange)
}

// FileChange is a change of one attribute of a file; a value "" is none.
type FileChange struct {
	Path     string
	Attr     Attr
	Old, New string
}

// LabelReport counts what was met.
type LabelReport struct {
	Files   int // looked at
	Changes int // attributes changed, or that would be
	Kept    int // attributes that were right already
	// Skipped are paths that were left alone, and why; at most 100 are kept, SkippedMore counts the rest.
	Skipped     []string
	SkippedMore int
}

const (
	defaultDepth = 64
	mostSkipped  = 100
)

// LabelFiles sets and removes attributes of a file, or of everything below it. Symbolic links are never followed: the
// link itself is labelled. In a tree each file gets what suits its type: SMACK64EXEC and SMACK64MMAP programs and
// libraries, SMACK64TRANSMUTE folders. It goes on after an error; the error returned names the first ones.
func LabelFiles(ctx context.Context, path string, l Labelling) (*LabelReport, error) {
	todo := map[Attr]string{}
	for a, v := range l.Set {
		if err := a.CheckValue(v); err != nil {
			return nil, err
		}
		if a == AttrIPIn || a == AttrIPOut {
			return nil, fmt.Errorf("%w: %s means something on sockets alone, by descriptor", errs.ErrInvalid, a)
		}
		todo[a] = v
	}
	for _, a := range l.Remove {
		if _, both := todo[a]; both || !slices.Contains(Attrs, a) {
			return nil, fmt.Errorf("%w: %s is to be removed", errs.ErrInvalid, a)
		}
		todo[a] = ""
	}
	w := &labelWalk{Labelling: l, ctx: ctx, todo: todo, report: &LabelReport{}}
	if w.MaxDepth == 0 {
		w.MaxDepth = defaultDepth
	}
	fd, err := unix.Open(path, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, &os.PathError{Op: "stat", Path: path, Err: err}
	}
	if !l.Recursive {
		for a := range todo {
			if !a.suits(st.Mode) && todo[a] != "" {
				return nil, fmt.Errorf("%w: %s means nothing on %s", errs.ErrInvalid, a, path)
			}
		}
	}
	w.dev = st.Dev
	w.visit(fd, path, &st, 0)
	if len(w.errs) > 0 {
		err = fmt.Errorf("%w (%d errors)", w.errs[0], len(w.errs))
		if len(w.errs) == 1 {
			err = w.errs[0]
		}
		return w.report, err
	}
	return w.report, ctx.Err()
}

type labelWalk struct {
	Labelling
	ctx    context.Context
	todo   map[Attr]string
	dev    uint64
	report *LabelReport
	errs   []error
}

func (w *labelWalk) skip(path, why string) {
	if len(w.report.Skipped) == mostSkipped {
		w.report.SkippedMore++
		return
	}
	w.report.Skipped = append(w.report.Skipped, path+": "+why)
}

func (w *labelWalk) fail(op, path string, err error) {
	w.errs = append(w.errs, &os.PathError{Op: op, Path: path, Err: err})
}

// visit labels what fd, an O_PATH descriptor, holds, and goes on below it.
func (w *labelWalk) visit(fd int, path string, st *unix.Stat_t, depth int) {
	if w.ctx.Err() != nil {
		return
	}
	dir := st.Mode&unix.S_IFMT == unix.S_IFDIR
	switch {
	case st.Dev != w.dev && !w.CrossMounts:
		w.skip(path, "another file system")
		return
	case !dir && depth > 0 && st.Nlink > 1 && !w.HardLinks:
		w.skip(path, "has several names (hard links)")
		return
	}
	w.report.Files++
	for _, a := range Attrs {
		want, ok := w.todo[a]
		if !ok || (!a.suits(st.Mode) && want != "") {
			continue
		}
		old, _, err := getAttr(fd, a)
		if err != nil {
			w.fail("getxattr "+a.xattr(), path, err)
			continue
		}
		if old == want {
			w.report.Kept++
			continue
		}
		if w.Each != nil {
			w.Each(FileChange{path, a, old, want})
		}
		if !w.DryRun {
			if err := setAttr(fd, a, want); err != nil {
				w.fail("setxattr "+a.xattr(), path, err)
				continue
			}
		}
		w.report.Changes++
	}
	if dir && w.Recursive {
		if depth == w.MaxDepth {
			w.skip(path, fmt.Sprintf("not entered, %d folders deep", w.MaxDepth))
			return
		}
		w.below(fd, path, depth)
	}
}

// below visits the entries of a folder in order. It opens each by its name in the folder it holds, so that nobody can
// lead it elsewhere by renaming or by symbolic links.
func (w *labelWalk) below(fd int, path string, depth int) {
	// By the descriptor itself: "." of an O_PATH descriptor is what it holds.
	rd, err := unix.Openat(fd, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		w.fail("open", path, err)
		return
	}
	f := os.NewFile(uintptr(rd), path)
	entries, err := f.ReadDir(-1)
	f.Close()
	if err != nil {
		w.errs = append(w.errs, err)
	}
	slices.SortFunc(entries, func(a, b os.DirEntry) int { return cmp.Compare(a.Name(), b.Name()) })
	for _, e := range entries {
		if w.ctx.Err() != nil {
			return
		}
		at := filepath.Join(path, e.Name())
		child, err := unix.Openat(fd, e.Name(), unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if err == unix.ENOENT {
			continue // gone meanwhile
		}
		if err != nil {
			w.fail("open", at, err)
			continue
		}
		var st unix.Stat_t
		if err := unix.Fstat(child, &st); err != nil {
			w.fail("stat", at, err)
		} else {
			w.visit(child, at, &st, depth+1)
		}
		unix.Close(child)
	}
}
