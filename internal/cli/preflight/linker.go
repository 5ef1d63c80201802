package preflight

import (
	"errors"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// loaded is a file that a loader has mapped.
type loaded struct {
	*object
	path   string
	origin string   // $ORIGIN
	names  []string // it is known by, besides its soname
	id     fileID
	by     *loaded // that asked for it first
}

func (l *loaded) is(name string) bool {
	return l.path == name || l.soname != "" && l.soname == name || slices.Contains(l.names, name)
}

// linker loads as a loader does, without mapping anything.
type linker struct {
	s    *search
	main *loaded
	all  []*loaded // in order; the second is the loader itself
	env  []string

	levels []string // subfolders of glibc-hwcaps that the processor has, best first
	places *loaderPlaces
}

// candidate is a path to try for a library.
type candidate struct {
	path   string
	behind string // the loader's file that names it, when that is refused: then the loader never tries it
}

// candidates are in the loader's order, and found as far as the loader goes: it
// opens its own files only when it comes to them.
type candidates = iter.Seq[candidate]

func only(path string) candidates {
	return func(yield func(candidate) bool) { yield(candidate{path: path}) }
}

// attempt is a candidate that is a library of the program's kind.
type attempt struct {
	path string
	*object
	id      fileID
	err     error // damaged: a loader gives up there
	refused bool  // by the policy
}

// try looks at a candidate; nil when the loader would go on to the next one.
func (l *linker) try(path string) *attempt {
	f, st, err := openRegular(path)
	if err != nil {
		switch {
		case errors.Is(err, os.ErrPermission):
			l.s.note("unreadable", "%s: you may not read it, so it is taken as not there", path)
		case errors.Is(err, errNotRegular) && !isDirectory(path):
			return &attempt{path: path, err: err}
		}
		return nil
	}
	defer f.Close()
	o, err := readELF(f)
	if err != nil {
		return &attempt{path: path, id: idOf(st), err: err}
	}
	if !o.fits(l.main.object) {
		return nil
	}
	return &attempt{path: path, object: o, id: idOf(st)}
}

func isDirectory(path string) bool {
	st, err := os.Stat(path)
	return err == nil && st.IsDir()
}

// pick goes through candidates as the loader under the policy does: one that it
// may not open is passed over for the next. When none is left, the first that
// was refused is what is needed.
func (l *linker) pick(all candidates) *attempt {
	var refused *attempt
	behind := ""
	for c := range all {
		a := l.try(c.path)
		if a == nil {
			continue
		}
		if c.behind == "" && l.s.granted(c.path) {
			if refused != nil && !sameFile(refused, a) {
				l.s.note("passed-over", "%s is refused, so the loader takes %s instead", refused.path, a.path)
			}
			return a
		}
		if refused == nil {
			refused, behind = a, c.behind
		}
	}
	if behind != "" {
		l.s.require(behind)
	}
	if refused != nil {
		refused.refused = true
	}
	return refused
}

func sameFile(a, b *attempt) bool { return a.id == b.id }

// load finds a library by name for who asks for it, and adds it to what is loaded.
func (l *linker) load(name string, by *loaded, required bool, all candidates) {
	if l.s.full() {
		l.s.fail(fmt.Errorf("%w: more than %d files", errTooMany, maxNeeds))
		return
	}
	need := Need{Kind: Library, Name: name, By: by.path, Required: required, access: readRights}
	a := l.pick(all)
	if a == nil {
		need.Verdict, need.Problem = NotFound, "nowhere the loader looks"
		l.s.add(need)
		return
	}
	need.Path = a.path
	if a.err != nil {
		need.Verdict, need.Problem = Unusable, a.err.Error()
		l.s.add(need)
		return
	}
	for _, x := range l.all {
		if x.id == a.id && x != l.main && !a.refused { // under another path it may well be
			x.names = append(x.names, name)
			return
		}
	}
	n := l.s.add(need)
	if !required && !n.opens() {
		return // a preload that is left out
	}
	x := &loaded{object: a.object, path: a.path, origin: filepath.Dir(a.path), names: []string{name}, id: a.id, by: by}
	if x.filters {
		l.s.unknown("filters", "%s names filters or auditors (DT_FILTER, DT_AUXILIARY, DT_AUDIT), which are not looked at", a.path)
	}
	l.all = append(l.all, x)
}

func (l *linker) byName(name string) *loaded {
	for _, x := range l.all {
		if x != l.main && x.is(name) {
			return x
		}
	}
	return nil
}

// splitPath cuts a search path at any of the separators; relative parts count
// from the working directory.
func (l *linker) splitPath(list, separators string) []string {
	var dirs []string
	for more := list != ""; more; {
		part := list
		i := strings.IndexAny(list, separators)
		if more = i >= 0; more {
			part, list = list[:i], list[i+1:]
		}
		if len(dirs) == maxSearchDirs {
			l.s.fail(fmt.Errorf("%w: more than %d folders in a search path", errTooMany, maxSearchDirs))
			break
		}
		dirs = append(dirs, l.s.inDir(part))
	}
	return dirs
}

const maxSearchDirs = 512

// preloads gives the names of LD_PRELOAD.
func (l *linker) preloads() []string {
	list, _ := lookup(l.env, "LD_PRELOAD")
	if audit, _ := lookup(l.env, "LD_AUDIT"); audit != "" {
		l.s.note("filters", "LD_AUDIT=%s: auditors are not looked at", audit)
	}
	return strings.FieldsFunc(list, func(r rune) bool { return r == ' ' || r == ':' || r == '\t' || r == '\n' })
}

// require makes a file of the loader's one without which nothing starts.
func (s *search) require(path string) {
	if i, ok := s.known[needKey{path, "", readRights}]; ok {
		s.res.Needs[i].Required = true
	}
}

// loaderFile adds a file of the loader's that may be absent or refused, and
// gives its content when it is there and granted, or as if it were.
func (s *search) loaderFile(path, by string, max int64) (content []byte, granted, exists bool) {
	b, err := readBounded(path, max)
	if isMissing(err) {
		return nil, false, false
	}
	n := s.add(Need{Kind: LoaderFile, Name: path, Path: path, By: by, access: readRights})
	if err != nil {
		s.note("unreadable", "%v", fmt.Errorf("%s: %w", path, err))
		return nil, n.opens(), true
	}
	return b, n.opens(), true
}
