package preflight

import (
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// loaderPlaces are the fixed paths that glibc's loader was built with.
type loaderPlaces struct {
	system         []string // folders, in order
	cache, preload string
	lib            string // $LIB
}

// cacheFile is ld.so.cache as the program's loader meets it.
type cacheFile struct {
	path    string
	entries ldCache
	granted bool
}

// maxLoader bounds how much of a loader is looked through for its paths.
const maxLoader = 8 << 20

var (
	systemFolders = regexp.MustCompile(`(?:/(?:[\x21-\x2e\x30-\x7e]+/)*lib[\x21-\x2e\x30-\x7e]*/(?:[\x21-\x2e\x30-\x7e]+/)*\x00)+`)
	fixedFile     = regexp.MustCompile(`/[\x21-\x7e]*/ld\.so\.(?:cache|preload)\x00`)
)

// readPlaces finds the paths among the strings of a loader: distributions
// differ in them (lib64, multiarch folders, a store of packages).
func readPlaces(f io.ReaderAt) loaderPlaces {
	b, _ := io.ReadAll(io.NewSectionReader(f, 0, maxLoader))
	p := loaderPlaces{cache: "/etc/ld.so.cache", preload: "/etc/ld.so.preload"}
	// The first run of them: rtld's system_dirs, of which libc has a copy.
	if run := systemFolders.Find(b); run != nil {
		p.system = strings.FieldsFunc(string(run), func(r rune) bool { return r == 0 })
	}
	for _, m := range fixedFile.FindAll(b, 4) {
		name := string(m[:len(m)-1])
		if filepath.Base(name) == "ld.so.cache" {
			p.cache = name
		} else {
			p.preload = name
		}
	}
	if len(p.system) == 0 {
		p.system = []string{"/lib64/", "/usr/lib64/", "/lib/", "/usr/lib/"}
	}
	p.lib = strings.TrimPrefix(strings.Trim(p.system[0], "/"), "usr/")
	return p
}

// glibc loads as elf/rtld.c and elf/dl-load.c of glibc do: ld.so(8).
func (l *linker) glibc(loader *os.File, interp string) {
	places := readPlaces(loader)
	l.places = &places
	if l.s.cpu == nil {
		l.s.cpu = readProcessor()
	}
	l.levels = l.s.cpu.levels(l.main.object)
	preloads := l.preloads()
	if text, granted, _ := l.s.loaderFile(places.preload, interp, maxSearchPath); granted {
		preloads = append(preloads, preloadNames(string(text))...)
	}
	for _, name := range preloads {
		l.glibcLoad(name, l.main, false)
	}
	for i := 0; i < len(l.all); i++ {
		for _, name := range l.all[i].needed {
			l.glibcLoad(name, l.all[i], true)
		}
	}
}

// preloadNames reads ld.so.preload: words, and comments behind #.
func preloadNames(text string) []string {
	var names []string
	for line := range strings.Lines(text) {
		line, _, _ = strings.Cut(line, "#")
		names = append(names, strings.FieldsFunc(line, func(r rune) bool { return strings.ContainsRune(" \t\n:", r) })...)
	}
	return names
}

// glibcLoad is _dl_map_object.
func (l *linker) glibcLoad(name string, by *loaded, required bool) {
	if name == "" || l.byName(name) != nil {
		return
	}
	if strings.Contains(name, "/") {
		l.load(name, by, required, only(l.s.inDir(l.expand(name, by))))
		return
	}
	l.load(name, by, required, l.glibcCandidates(name, by))
}

// glibcCandidates are the paths for a name, in order: RPATH of who asks, of who
// asked for that one and so on, and of the program, unless who asks has a
// RUNPATH; LD_LIBRARY_PATH; RUNPATH; the cache; the system's folders.
func (l *linker) glibcCandidates(name string, by *loaded) candidates {
	return func(yield func(candidate) bool) {
		folders := func(dirs []string) bool {
			for _, d := range dirs {
				for _, level := range l.levels {
					if !yield(candidate{path: join(d, "glibc-hwcaps/"+level+"/"+name)}) {
						return false
					}
				}
				if !yield(candidate{path: join(d, name)}) {
					return false
				}
			}
			return true
		}
		for _, x := range l.rpathOwners(by) {
			if !folders(l.splitPath(l.expand(x.rpath, x), ":")) {
				return
			}
		}
		env, _ := lookup(l.env, "LD_LIBRARY_PATH")
		if !folders(l.splitPath(l.expand(env, l.main), ":;")) || !folders(l.splitPath(l.expand(by.runpath, by), ":")) {
			return
		}
		if c := l.cached(name, by); c.path != "" && !yield(c) {
			return
		}
		if !by.noDefaults {
			folders(l.places.system)
		}
	}
}

// rpathOwners are the files whose RPATH counts for what one asks for.
func (l *linker) rpathOwners(by *loaded) (owners []*loaded) {
	if by.runpath != "" {
		return nil
	}
	for x := by; x != nil; x = x.by {
		owners = append(owners, x)
	}
	if owners[len(owners)-1] != l.main {
		owners = append(owners, l.main)
	}
	return owners
}

// cached is what ld.so.cache names, if anything.
func (l *linker) cached(name string, by *loaded) (c candidate) {
	cache := l.s.ldCache(l.places.cache, l.all[1].path)
	if cache == nil {
		return c
	}
	path := cache.entries.find(name, cacheFlags(l.main.object, l.all[1].path), l.levels)
	if path == "" || by.noDefaults && l.inSystem(path) {
		return c
	}
	c.path = path
	if !cache.granted {
		c.behind = cache.path
	}
	return c
}

func (l *linker) inSystem(path string) bool {
	for _, d := range l.places.system {
		if strings.HasPrefix(path, d) {
			return true
		}
	}
	return false
}

// expand replaces $ORIGIN, $LIB and $PLATFORM.
func (l *linker) expand(text string, x *loaded) string {
	if !strings.Contains(text, "$") {
		return text
	}
	platform := l.s.cpu.platform(l.main.object)
	return strings.NewReplacer(
		"${ORIGIN}", x.origin, "$ORIGIN", x.origin, "${LIB}", l.places.lib, "$LIB", l.places.lib,
		"${PLATFORM}", platform, "$PLATFORM", platform,
	).Replace(text)
}

// ldCache reads the cache once; nil when there is none.
func (s *search) ldCache(path, by string) *cacheFile {
	if s.cache != nil && s.cache.path == path {
		if s.cache.entries == nil {
			return nil
		}
		return s.cache
	}
	s.cache = &cacheFile{path: path}
	b, granted, exists := s.loaderFile(path, by, maxCache)
	if !exists {
		return nil
	}
	s.cache.granted = granted
	entries, err := parseCache(b)
	if err != nil {
		s.note("cache", "%s: %v: decided as without it", path, err)
		return nil
	}
	s.cache.entries = entries
	return s.cache
}
