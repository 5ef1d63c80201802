package decide

import (
	"errors"
	"syscall"

	"policyd.dev/policyd/enforce/profile"
)

// exec asks about a program. The kernel opens it, the interpreter of its #!
// line and that of its ELF header, each for reading and executing.
func (x *inquiry) exec() error {
	name, script := x.q.op.Path, true // of an ELF interpreter's own interpreter nothing is asked
	for depth := 0; ; depth++ {
		if script && depth > maxInterpreters {
			return notAsked(x.q.op.Path, "too many interpreters", syscall.ELOOP)
		}
		f, err := x.find(name, true)
		if err != nil {
			return err
		}
		what := "program"
		if depth > 0 {
			what = "interpreter"
		}
		switch {
		case x.d.opt.Lexical:
			f.kind = profile.RegularFile
		case !f.exists():
			return notAsked(name, "there is no such "+what, syscall.ENOENT)
		case f.kind != profile.RegularFile:
			return notAsked(name, "no regular file", syscall.EACCES)
		}
		x.programs = append(x.programs, link{name, f.real})
		x.old = f
		x.op.Path, x.facts.Type = f.real, f.kind
		if x.rules, err = x.d.ground(f.real); err != nil {
			return err
		}
		got := x.rules.p.Decide(x.op, x.facts)
		x.a.Verdict = got.Verdict.String()
		if got.Asked > 0 {
			x.program(what, name, &got.Questions[0])
		}
		if got, err = x.overrule(got); err != nil {
			return err
		}
		if got.Verdict == profile.Deny || x.d.opt.Lexical || !script {
			break
		}
		var next string
		next, script, err = interpreter(f.real)
		if errors.Is(err, syscall.ENOEXEC) {
			x.a.note(noteInterpreter, "%s is %v, unless binfmt_misc has a handler for it, which is not looked at", f.real, err)
			break
		}
		if err != nil {
			x.a.note(noteInterpreter, "%s was not looked into for an interpreter: %v", f.real, err)
			break
		}
		if next == "" {
			break
		}
		name = next
	}
	if x.d.opt.Lexical {
		x.a.note(noteInterpreter, "interpreters of %s are not looked at; each needs execute and read_file as well", x.q.op.Path)
	}
	if x.a.Verdict == Allow {
		x.a.note(noteLibraries, "shared libraries need read_file and are not looked at")
	}
	return nil
}

// program takes the look at a program or interpreter into the answer.
func (x *inquiry) program(what, name string, q *profile.Question) {
	l := Look{What: what, Object: name, Real: q.Path, Verdict: Allow}
	if !q.Decision.Allowed {
		l.Verdict, x.a.Errno = Deny, "EACCES"
	}
	x.take(&l, profile.FS, q.Request, q.Decision.Unfulfilled.Slice(), x.rules.walk(q.Path, q.Request))
}
