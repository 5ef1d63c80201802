package preflight

import (
	"path/filepath"
	"slices"
	"strings"
	"sync"
)

// muslDefault is where musl looks without a path file.
const muslDefault = "/lib:/usr/local/lib:/usr/lib"

// muslReserved are the libraries that are part of musl's libc, which is its
// loader as well: they are never opened.
var muslReserved = []string{"c", "pthread", "rt", "m", "dl", "util", "xnet"}

// musl loads as ldso/dynlink.c of musl does (load_library).
func (l *linker) musl(interp string) {
	system := sync.OnceValues(func() ([]string, string) { return l.muslSystem(interp) })
	for _, name := range l.preloads() {
		l.muslLoad(name, l.main, false, system)
	}
	for i := 0; i < len(l.all); i++ {
		for _, name := range l.all[i].needed {
			l.muslLoad(name, l.all[i], true, system)
		}
	}
}

func (l *linker) muslLoad(name string, by *loaded, required bool, system func() ([]string, string)) {
	if strings.Contains(name, "/") {
		l.load(name, by, required, only(l.s.inDir(name)))
		return
	}
	if rest, ok := strings.CutPrefix(name, "lib"); ok {
		if stem, _, ok := strings.Cut(rest, "."); ok && slices.Contains(muslReserved, stem) {
			return
		}
	}
	if name == "" || name == filepath.Base(l.all[1].path) {
		return
	}
	for _, x := range l.all[1:] {
		if slices.Contains(x.names, name) {
			return
		}
	}
	l.load(name, by, required, func(yield func(candidate) bool) {
		env, _ := lookup(l.env, "LD_LIBRARY_PATH")
		dirs := l.muslSplit(env)
		for x := by; x != nil; x = x.by {
			dirs = append(dirs, l.muslSplit(x.muslPath())...)
		}
		for _, d := range dirs {
			if !yield(candidate{path: join(d, name)}) {
				return
			}
		}
		dirs, behind := system()
		for _, d := range dirs {
			if !yield(candidate{join(d, name), behind}) {
				return
			}
		}
	})
}

// muslSplit cuts a search path as path_open does: empty parts do not count.
func (l *linker) muslSplit(list string) []string {
	parts := strings.FieldsFunc(list, func(r rune) bool { return r == ':' || r == '\n' })
	return l.splitPath(strings.Join(parts, ":"), ":")
}

// muslPath is RUNPATH or RPATH, which musl treats alike; of variables it knows
// $ORIGIN alone, and gives a path with others up.
func (x *loaded) muslPath() string {
	path := x.rpath
	if x.runpath != "" {
		path = x.runpath
	}
	path = strings.NewReplacer("${ORIGIN}", x.origin, "$ORIGIN", x.origin).Replace(path)
	if strings.Contains(path, "$") {
		return ""
	}
	return path
}

// muslSystem reads the path file that belongs to the loader: for
// PREFIX/lib/ld-musl-ARCH.so.1 it is PREFIX/etc/ld-musl-ARCH.path. One that is
// there but refused leaves musl without any folder: then it is behind it.
func (l *linker) muslSystem(interp string) (dirs []string, behind string) {
	arch := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(interp), "ld-musl-"), ".so.1")
	prefix := strings.TrimSuffix(filepath.Dir(filepath.Dir(interp)), "/")
	path := prefix + "/etc/ld-musl-" + arch + ".path"
	content, granted, exists := l.s.loaderFile(path, interp, maxSearchPath)
	if !exists {
		return l.muslSplit(muslDefault), ""
	}
	if !granted {
		behind = path
	}
	return l.muslSplit(string(content)), behind
}
