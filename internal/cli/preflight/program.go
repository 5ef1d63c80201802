package preflight

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"policyd.dev/policyd/enforce/spawn"
	"policyd.dev/policyd/internal/cli/decide"
)

const (
	headSize = 256 // BINPRM_BUF_SIZE: what of a #! line counts
	maxDepth = 5   // interpreters of interpreters, exec_binprm in fs/exec.c
	maxExecs = 8   // programs that one env after another executes
)

// Find looks for what the program at path (of spawn.LookPath) needs to start.
// Errors wrap ErrCannotStart, or are those of Grants.
func Find(path string, o Options) (*Result, error) {
	s := &search{o: o, known: map[needKey]int{}, decided: map[needKey][]Refusal{}, noted: map[Note]bool{}}
	s.res = Result{Program: path, Known: true, Needs: []Need{}, Notes: []Note{}}
	if err := s.directory(); err != nil {
		return nil, err
	}
	env, by := o.Env, ""
	seen := map[string]bool{}
	for path != "" {
		if len(seen) == maxExecs || seen[path] {
			return nil, fmt.Errorf("%w: %s: interpreters go round in a circle by env", ErrCannotStart, path)
		}
		seen[path] = true
		next, nextBy, err := s.exec(path, by, &env)
		if s.err != nil {
			return nil, s.err
		}
		if err != nil {
			return nil, err
		}
		path, by = next, nextBy
	}
	if s.err != nil {
		return nil, s.err
	}
	s.res.Starts = s.starts()
	s.limits()
	return &s.res, nil
}

// exec follows one execve(2), of what by asks for: a chain of #! lines, the ELF
// file at its end, its loader and libraries. next is what env, at nextBy,
// executes then; "" for nothing.
func (s *search) exec(path, by string, env *[]string) (next, nextBy string, err error) {
	kind, argument, first := Program, "", path
	for depth := 0; ; depth++ {
		if depth > maxDepth {
			return "", "", fmt.Errorf("%w: %s: more than %d interpreters one after another: %w", ErrCannotStart, first, maxDepth, syscall.ELOOP)
		}
		head, obj, err := readProgram(path)
		if kind == Interpreter && isMissing(err) {
			s.add(Need{Kind: kind, Name: path, By: by, Required: true, Verdict: NotFound, Problem: err.Error(), access: execRights})
			return "", "", nil
		}
		if errors.Is(err, os.ErrPermission) {
			s.add(Need{Kind: kind, Name: path, Path: path, By: by, Required: true, access: execRights})
			s.unknown("unreadable", "%s: you may not read it, so what it needs besides is not known", path)
			return "", "", nil
		}
		if err != nil {
			return "", "", fmt.Errorf("%w: %s: %w", ErrCannotStart, path, err)
		}
		s.add(Need{Kind: kind, Name: path, Path: path, By: by, Required: true, access: execRights})
		if obj != nil {
			if !obj.native() {
				return "", "", fmt.Errorf("%w: %s: ELF file for %v: %w (unless binfmt_misc has a handler for it, which is not looked at)", ErrCannotStart, path, obj.machine, syscall.ENOEXEC)
			}
			s.elf(path, obj, *env)
			if filepath.Base(path) == "env" && argument != "" {
				return s.viaEnv(path, argument, env), path, nil
			}
			return "", "", nil
		}
		interp, rest, err := decide.InterpreterLine(head)
		if err != nil {
			return "", "", fmt.Errorf("%w: %s: %w", ErrCannotStart, path, err)
		}
		kind, by, argument = Interpreter, path, rest
		path = s.inDir(interp)
	}
}

// readProgram gives the head of a file, and what it is when it is an ELF file.
func readProgram(path string) (head []byte, o *object, err error) {
	f, _, err := openRegular(path)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	head = make([]byte, headSize)
	n, err := f.ReadAt(head, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, nil, err
	}
	if head = head[:n]; bytes.HasPrefix(head, []byte("#!")) {
		return head, nil, nil
	}
	if o, err = readELF(f); errors.Is(err, errNotELF) {
		return nil, nil, fmt.Errorf("neither an ELF file nor a script with #!: %w", syscall.ENOEXEC)
	}
	return head, o, err
}

// viaEnv finds what env(1), at by, executes for the argument of a #! line.
func (s *search) viaEnv(by, argument string, env *[]string) string {
	name, ok := envCommand(argument, env)
	if !ok {
		s.unknown("env-options", "%s %q: its options are not understood, so what it executes is not known", by, argument)
		return ""
	}
	dirs := filepath.SplitList(pathOf(*env))
	if strings.Contains(name, "/") {
		dirs = []string{""}
	}
	found := ""
	for _, dir := range dirs {
		path, err := spawn.LookPath(name, []string{"PATH=" + dir}, s.o.Dir)
		if err != nil {
			continue
		}
		// execvp(3) goes on when the kernel refuses a program.
		if len(s.decide(path, execRights)) == 0 {
			return path
		}
		if found == "" {
			found = path
		}
	}
	if found == "" {
		s.add(Need{Kind: Program, Name: name, By: by, Required: true, Verdict: NotFound, Problem: "not in PATH (" + pathOf(*env) + ")", access: execRights})
	}
	return found
}

// pathOf is the PATH of an environment, with what execvp(3) takes for none.
func pathOf(env []string) string {
	if p, ok := lookup(env, "PATH"); ok {
		return p
	}
	return "/bin:/usr/bin"
}

func lookup(env []string, name string) (value string, ok bool) {
	for _, e := range env {
		if v, is := strings.CutPrefix(e, name+"="); is {
			value, ok = v, true
		}
	}
	return value, ok
}

// envCommand reads env's argument: NAME, or -S with several words, of which
// assignments change the environment.
func envCommand(arg string, env *[]string) (name string, ok bool) {
	words := []string{arg}
	if strings.HasPrefix(arg, "-") {
		rest, split := strings.CutPrefix(arg, "-S")
		if !split {
			if rest, split = strings.CutPrefix(arg, "-vS"); !split {
				rest, split = strings.CutPrefix(arg, "--split-string=")
			}
		}
		if !split || strings.ContainsAny(rest, `\"'$`) {
			return "", false
		}
		words = strings.Fields(rest)
	}
	changed := slices.Clone(*env)
	for _, w := range words {
		switch {
		case w == "-i" || w == "-" || w == "--ignore-environment":
			changed = nil
		case strings.HasPrefix(w, "-"):
			return "", false
		case strings.Contains(w, "="):
			changed = append(changed, w)
		default:
			*env = changed
			return w, true
		}
	}
	return "", false
}

// elf adds the loader of an ELF file and what it loads.
func (s *search) elf(path string, obj *object, env []string) {
	if obj.interp == "" {
		return // static: nothing else is opened
	}
	interp := s.inDir(obj.interp)
	need := Need{Kind: Loader, Name: obj.interp, Path: interp, By: path, Required: true, access: execRights}
	f, st, err := openRegular(interp)
	if err != nil {
		need.Verdict, need.Problem = Unusable, err.Error()
		if isMissing(err) {
			need.Path, need.Verdict = "", NotFound
		}
		s.add(need)
		return
	}
	defer f.Close()
	loader, err := readELF(f)
	if err == nil && loader.machine != obj.machine {
		err = fmt.Errorf("ELF file for %v: %w", loader.machine, syscall.ELIBBAD)
	}
	if err != nil {
		need.Verdict, need.Problem = Unusable, err.Error()
		s.add(need)
		return
	}
	s.add(need)
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		real = path
	}
	main := &loaded{object: obj, path: path, origin: filepath.Dir(real)}
	self := &loaded{object: loader, path: interp, origin: filepath.Dir(interp), id: idOf(st), names: []string{obj.interp}}
	l := &linker{s: s, main: main, all: []*loaded{main, self}, env: env}
	switch base := filepath.Base(interp); {
	case strings.HasPrefix(base, "ld-musl-"):
		l.musl(interp)
	case strings.HasPrefix(base, "ld-linux") || strings.HasPrefix(base, "ld64.so.") || strings.HasPrefix(base, "ld.so."):
		l.glibc(f, interp)
	default:
		s.unknown("unknown-loader", "%s is neither glibc's loader nor musl's: which libraries it loads is not known", interp)
	}
}

// limits notes what cannot be seen in files.
func (s *search) limits() {
	s.note("later", "what the program opens once it runs is not looked at: its configuration and data, /dev and /proc, locales, modules of an interpreted language, plugins and other libraries it loads itself (dlopen), those of name services (NSS) and character sets (gconv)")
	if !s.res.Starts {
		return
	}
	s.note("landlock-only", "file modes, other security modules and a file system mounted noexec may refuse it still")
}
