package preflight

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
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
	Layers   []Refusal `json:"layers"` // those that refuse
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
	Starts  bool   `json:"starts"`  // everything required is granted
	Needs   []Need `json:"needs"`
	Notes   []Note `json:"notes"`
}

// Grants says which layers refuse rights on a path; none, and it is granted.
type Grants func(path string, rights profile.Access) ([]Refusal, error)

// Options are the circumstances of a start.
type Options struct {
	Env    []string // NAME=VALUE
	Dir    string   // working directory, absolute
	Grants Grants
}

// ErrCannotStart is returned where no policy would let the program start: it is
// no program, of another architecture, or interpreted in a circle.
var ErrCannotStart = errors.New("nothing would start, whatever the policy says")

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
	o     Options
	res   Result
	known map[needKey]int // places in res.Needs
	noted map[Note]bool
	cpu   *processor
	cache *cacheFile
	err   error // of Grants
}

type needKey struct {
	path, name string
	access     profile.Access
}

// decide asks the policy about a path.
func (s *search) decide(path string, access profile.Access) []Refusal {
	refused, err := s.o.Grants(path, access)
	if err != nil && s.err == nil {
		s.err = fmt.Errorf("%s: %w", path, err)
	}
	return refused
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
	if n.Path != "" {
		n.Real = n.Path
		if real, err := filepath.EvalSymlinks(n.Path); err == nil {
			n.Real = real
		}
	}
	if n.Verdict == "" {
		n.Verdict = Granted
		if refused := s.decide(n.Path, n.access); len(refused) > 0 {
			n.Verdict, n.Layers = Refused, refused
		}
	}
	s.known[key] = len(s.res.Needs)
	s.res.Needs = append(s.res.Needs, n)
	return &s.res.Needs[len(s.res.Needs)-1]
}

func (s *search) full() bool { return len(s.res.Needs) >= maxNeeds }

func (s *search) note(code, format string, args ...any) {
	n := Note{code, fmt.Sprintf(format, args...)}
	if !s.noted[n] {
		s.noted[n] = true
		s.res.Notes = append(s.res.Notes, n)
	}
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

// starts sums the needs up.
func (s *search) starts() bool {
	for i := range s.res.Needs {
		n := &s.res.Needs[i]
		if n.Required && n.Verdict != Granted && n.Verdict != NotMediated {
			return false
		}
	}
	return true
}

func isMissing(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) || errors.Is(err, syscall.ENAMETOOLONG)
}
