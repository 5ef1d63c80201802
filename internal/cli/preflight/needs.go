package preflight

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"policyd.dev/policyd/enforce/profile"
)

// Kinds of needs.
const (
	Program     = "program"
	Interpreter = "interpreter" // of a #! line
	Loader      = "loader"      // the ELF interpreter
	Library     = "library"
	LoaderFile  = "loader-file" // ld.so.cache and the like
	Directory   = "directory"   // the working directory
)

// Verdicts on needs.
const (
	Granted     = "granted"
	Refused     = "refused"
	NotFound    = "not_found"    // nowhere on this host: no policy mends that
	Unusable    = "unusable"     // damaged, or of another architecture
	NotMediated = "not_mediated" // Landlock does not refuse it
	Needed      = "needed"       // there is no policy that was asked
)

// Need is a file that the start of a program opens. Its JSON names are an interface.
type Need struct {
	Kind     string    `json:"kind"`
	Name     string    `json:"name"`     // as it is asked for: libc.so.6, /usr/bin/env
	Path     string    `json:"path"`     // where it is found; "" when it is not
	Real     string    `json:"real"`     // without symbolic links
	By       string    `json:"by"`       // path of the file that asks for it, "" for the program
	Rights   []string  `json:"rights"`   // that the kernel asks for
	Required bool      `json:"required"` // without it nothing starts
	Verdict  string    `json:"verdict"`
	Layers   []Refusal `json:"layers"` // those that refuse; NoPolicy of what is needed
	Problem  string    `json:"problem"`

	access profile.Access
}

// Refusal is a layer that grants too little.
type Refusal struct {
	Layer   string   `json:"layer"`
	Missing []string `json:"missing"`
}

// Note is something to know besides. Codes stand in docs/preflight.md.
type Note struct {
	Code string `json:"code"`
	Text string `json:"text"`
}

// Result is what a program needs, in the order it asks for it.
type Result struct {
	Program string `json:"program"` // path
	Starts  bool   `json:"starts"`  // everything required is granted, as far as that is known
	Known   bool   `json:"known"`   // all that is required was found out
	Needs   []Need `json:"needs"`
	Notes   []Note `json:"notes"`
}

// Grants says which layers refuse rights on a path; none, and it is granted.
type Grants func(path string, rights profile.Access) ([]Refusal, error)

// Options are the circumstances of a start.
type Options struct {
	Env    []string // NAME=VALUE
	Dir    string   // working directory, absolute
	Grants Grants   // nil when no policy is asked
}

// NoPolicy is the layer of what no policy was asked about.
const NoPolicy = "app"

// ErrCannotStart is returned where no policy would let the program start: it is
// no program, of another architecture, or interpreted in a circle.
var ErrCannotStart = errors.New("nothing would start, whatever the policy says")

// errTooMany is for programs that ask for more than is followed: nothing is
// said on the part.
var errTooMany = errors.New("too much to look at")

// The rights asked for: by open_exec and do_open_execat in fs/exec.c (the file
// is read as well as executed), and by a loader's open(2).
const (
	execRights = profile.FSExecute | profile.FSReadFile
	readRights = profile.FSReadFile
)

// maxNeeds bounds how much is followed for one program.
const maxNeeds = 4096

// search is one run of Find.
type search struct {
	o       Options
	res     Result
	known   map[needKey]int // places in res.Needs
	decided map[needKey][]Refusal
	noted   map[Note]bool
	cpu     *processor
	cache   *cacheFile
	err     error // for which there is no answer
}

type needKey struct {
	path, name string
	access     profile.Access
}

// decide asks the policy about a path, once: by its real one, which is what
// the kernel looks at.
func (s *search) decide(path string, access profile.Access) []Refusal {
	key := needKey{path, "", access}
	if known, ok := s.decided[key]; ok {
		return known
	}
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		real = path
	}
	if s.o.Grants == nil {
		return nil // each library is looked for as if it may be opened
	}
	refused, err := s.o.Grants(real, access)
	if err != nil {
		s.fail(fmt.Errorf("%s: %w", path, err))
	}
	s.decided[key] = refused
	return refused
}

// fail keeps the first error for which there is no answer.
func (s *search) fail(err error) {
	if s.err == nil {
		s.err = err
	}
}

// granted tells that the policy lets a loader read the file.
func (s *search) granted(path string) bool { return len(s.decide(path, readRights)) == 0 }

// add records a need once; one that is there already may become required.
func (s *search) add(n Need) *Need {
	key := needKey{n.Path, "", n.access}
	if n.Path == "" {
		key.name = n.Name
	}
	if i, ok := s.known[key]; ok {
		old := &s.res.Needs[i]
		old.Required = old.Required || n.Required
		return old
	}
	if n.Layers == nil {
		n.Layers = []Refusal{}
	}
	n.Rights = append([]string{}, profile.FS.Names(n.access)...)
	if n.Verdict == "" {
		n.Verdict = Granted
		if refused := s.decide(n.Path, n.access); len(refused) > 0 {
			n.Verdict, n.Layers = Refused, refused
		} else if s.o.Grants == nil {
			n.Verdict, n.Layers = Needed, []Refusal{{NoPolicy, profile.FS.Names(n.access)}}
		}
	}
	if n.Path != "" {
		n.Path, n.Real = names(n.Path)
	}
	s.known[key] = len(s.res.Needs)
	s.res.Needs = append(s.res.Needs, n)
	return &s.res.Needs[len(s.res.Needs)-1]
}

// names gives a path without dots where they can be left out (not behind a
// symbolic link), and without symbolic links.
func names(path string) (clean, real string) {
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return path, path
	}
	if clean = filepath.Clean(path); clean == path {
		return path, real
	}
	if same, err := filepath.EvalSymlinks(clean); err != nil || same != real {
		return real, real
	}
	return clean, real
}

// join is a path beneath a folder, literally: Clean would take "link/.." for ".".
func join(dir, name string) string { return strings.TrimRight(dir, "/") + "/" + name }

// inDir makes a path absolute in the same way.
func (s *search) inDir(path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return join(s.o.Dir, path)
}

func (s *search) full() bool { return len(s.res.Needs) >= maxNeeds }

func (s *search) note(code, format string, args ...any) {
	n := Note{code, fmt.Sprintf(format, args...)}
	if !s.noted[n] {
		s.noted[n] = true
		s.res.Notes = append(s.res.Notes, n)
	}
}

// unknown notes what is needed, perhaps, but cannot be found out.
func (s *search) unknown(code, format string, args ...any) {
	s.res.Known = false
	s.note(code, format, args...)
}

// directory is the working directory: chdir(2) is not mediated.
func (s *search) directory() error {
	st, err := os.Stat(s.o.Dir)
	switch {
	case err != nil:
		return fmt.Errorf("%w: working directory: %w", ErrCannotStart, err)
	case !st.IsDir():
		return fmt.Errorf("%w: working directory %s: %w", ErrCannotStart, s.o.Dir, syscall.ENOTDIR)
	}
	s.add(Need{Kind: Directory, Name: s.o.Dir, Path: s.o.Dir, Required: true, Verdict: NotMediated})
	return nil
}

// opens tells that it is there, and no policy refuses it.
func (n *Need) opens() bool { return n.Verdict == Granted || n.Verdict == Needed }

// AllGranted tells whether no rule is missing, vital or not.
func (r *Result) AllGranted() bool {
	return !slices.ContainsFunc(r.Needs, func(n Need) bool { return len(n.Layers) > 0 })
}

// starts sums the needs up.
func (s *search) starts() bool {
	for i := range s.res.Needs {
		n := &s.res.Needs[i]
		if n.Required && !n.opens() && n.Verdict != NotMediated {
			return false
		}
	}
	return true
}

func isMissing(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) || errors.Is(err, syscall.ENAMETOOLONG)
}
