package decide

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"policyd.dev/policyd/enforce/profile"
)

// Answer says what the kernel answers to a question. Errors wrap [ErrQuestion]
// (a relative path without a base), [ErrNotAsked], or what kept it from looking
// at the host.
func (d *Decider) Answer(q Question) (*Answer, error) { return d.answer(q, false) }

// Explain is Answer with the walk in Looks.
func (d *Decider) Explain(q Question) (*Answer, error) { return d.answer(q, true) }

// inquiry is one question on its way to an answer.
type inquiry struct {
	d       *Decider
	q       *Question
	op      profile.Operation // with real paths
	facts   profile.Facts
	old     found // what op.Path and op.NewPath lead to
	new     found
	a       *Answer
	explain bool
	rules   ground

	programs []link    // of exec: the program and its interpreters
	granted  []meeting // rows that granted something
	refused  bool      // a look was a denial
}

// link is a path and where it leads.
type link struct{ given, real string }

func (d *Decider) answer(q Question, explain bool) (*Answer, error) {
	if q.word == "" {
		return nil, fmt.Errorf("%w: it is empty", ErrQuestion)
	}
	x := &inquiry{
		d: d, q: &q, op: q.op, explain: explain, rules: ground{d: d, p: d.p},
		a: &Answer{Operation: q.String(), Layers: []Layer{}, DecidedBy: []Rule{}, Notes: []Note{}},
	}
	var err error
	switch {
	case q.op.Kind == profile.OpStat, q.op.Kind == profile.OpSetAttributes:
		if err = x.traced(q.op.Path, true); err != nil {
			break
		}
		x.conclude(d.p.Decide(q.op, profile.Facts{}))
	case q.op.Kind == profile.OpExec:
		err = x.exec()
	case q.op.Path != "":
		err = x.paths()
	default:
		if q.peer == "in" {
			x.facts.Shared = len(d.p.Layers)
		}
		x.conclude(d.p.Decide(x.op, x.facts))
	}
	if errors.Is(err, fs.ErrPermission) && !errors.Is(err, ErrNotAsked) {
		err = fmt.Errorf("%w: %w", err, ErrNotSeen)
	}
	if err != nil {
		return nil, err
	}
	x.order()
	x.remark()
	return x.a, nil
}

// follows are the operations whose system call follows a symbolic link at the
// end of the path.
func follows(k profile.OpKind) bool {
	switch k {
	case profile.OpOpen, profile.OpExec, profile.OpTruncate, profile.OpIoctlDev, profile.OpConnectUnix:
		return true
	}
	return false
}

// absolute puts the base before a relative path.
func (d *Decider) absolute(p string) (string, error) {
	switch {
	case strings.HasPrefix(p, "/"):
		return p, nil
	case d.opt.Base == "":
		return "", fmt.Errorf("%w: path %.80q is relative, and to what is not known", ErrQuestion, p)
	}
	return strings.TrimSuffix(d.opt.Base, "/") + "/" + p, nil
}

// find leads a path of a question to an object of the host.
func (d *Decider) find(given string, follow bool) (found, error) {
	abs, err := d.absolute(given)
	if err != nil {
		return found{}, err
	}
	if d.opt.Lexical {
		f := found{real: path.Clean(abs)}
		if len(f.real) > profile.MaxPath {
			return found{}, fmt.Errorf("%w: path of %d bytes, more than %d", ErrQuestion, len(f.real), profile.MaxPath)
		}
		return f, nil
	}
	return resolve(abs, follow)
}

// paths asks about an operation on one path or two.
func (x *inquiry) paths() (err error) {
	if x.old, err = x.find(x.q.op.Path, x.followsOld()); err != nil {
		return err
	}
	if x.q.op.NewPath != "" {
		if x.new, err = x.find(x.q.op.NewPath, false); err != nil {
			return err
		}
	}
	if err := x.endings(); err != nil {
		return err
	}
	examine := x.look
	if x.d.opt.Lexical {
		examine = x.assume
	}
	if err := examine(); err != nil {
		return err
	}
	x.op.Path, x.facts.Type = x.old.real, x.typeOf(&x.old)
	if x.q.op.NewPath != "" {
		x.op.NewPath, x.facts.NewType = x.new.real, x.typeOf(&x.new)
	}
	if x.op.Kind == profile.OpIoctlDev && x.facts.Type != profile.CharDevice && x.facts.Type != profile.BlockDevice {
		x.a.note(noteNotDevice, "%s is no device: ioctl_dev is not asked, opening it is", x.q.op.Path)
		x.op.Kind = profile.OpOpen
	}
	if x.rules, err = x.d.ground(x.op.Path, x.op.NewPath); err != nil {
		return err
	}
	got := x.rules.p.Decide(x.op, x.facts)
	switch got.Errno {
	case syscall.EINVAL:
		return fmt.Errorf("%s: %w: it has no folder: %w", x.a.Operation, ErrNotAsked, got.Errno)
	case syscall.ENOENT:
		return fmt.Errorf("%s: %w: %w", x.a.Operation, ErrNotAsked, got.Errno)
	}
	x.conclude(got)
	_, err = x.overrule(got)
	return err
}

// typeOf is the type of an object as the kernel's rights see it.
func (x *inquiry) typeOf(f *found) profile.FileType {
	if f.whiteout && x.d.mended(errataWhiteout) {
		return profile.RegularFile
	}
	return f.kind
}

// conclude turns the engine's answer into ours. Of several engine answers (a
// program and its interpreters) it is called for each up to the first denial.
func (x *inquiry) conclude(got profile.Answer) {
	x.a.Verdict, x.a.Errno = got.Verdict.String(), errnoName(got.Errno)
	switch x.op.Kind {
	case profile.OpRename, profile.OpExchange, profile.OpLink:
		x.concludeMove(got.Move)
		return
	}
	if x.op.Kind == profile.OpIoctlDev && got.Verdict == profile.Allow {
		got.Questions[0].Request |= profile.FSIoctlDev // looked up with the others when the device is opened
	}
	for i := range got.Questions[:got.Asked] {
		x.conclusion(&got.Questions[i])
	}
	x.created(got)
	if got.Verdict == profile.Allow && x.op.Kind == profile.OpOpen && x.op.Open&profile.OpenWrite != 0 &&
		x.facts.Type <= profile.RegularFile && got.Optional&profile.FSTruncate == 0 {
		x.a.note(noteNoTruncate, "truncate is not granted: ftruncate(2) on the open file fails with EACCES")
	}
}

func (x *inquiry) created(got profile.Answer) {
	if got.Created {
		x.a.note(noteCreated, "%s is made all the same before the open is refused", x.op.Path)
	}
}

func errnoName(e syscall.Errno) string {
	if e == 0 {
		return ""
	}
	return unix.ErrnoName(e)
}

// conclusion takes one question of the kernel into the answer.
func (x *inquiry) conclusion(q *profile.Question) {
	if x.op.Kind == profile.OpMount {
		x.mount(q)
		return
	}
	l := Look{What: x.what(q), Real: q.Path, Verdict: Allow}
	left := q.Decision.Unfulfilled.Slice()
	if !q.Decision.Allowed {
		l.Verdict = Deny
	}
	switch q.Kind {
	case profile.FS:
		l.Object = x.q.op.Path
		x.take(&l, profile.FS, q.Request, left, x.rules.walk(q.Path, q.Request))
	case profile.Net:
		l.Object = fmt.Sprint(q.Port)
		x.take(&l, profile.Net, q.Request, left, x.d.walkPort(q.Port, q.Request))
	default:
		l.Object = x.q.peer
		x.take(&l, q.Kind, q.Request, left, walk{})
	}
}

// mount names the layers that refuse to change mounts. No right is missing in
// them that a rule could grant.
func (x *inquiry) mount(q *profile.Question) {
	l := Look{What: "mount", Rights: []string{}, Verdict: x.a.Verdict, Steps: []Step{}, Layers: []Layer{}}
	for _, i := range q.Decision.Unfulfilled.Layers() {
		l.Layers = append(l.Layers, Layer{x.d.p.Layers[i].Name, []string{}})
		x.decidedBy(x.d.places[i : i+1])
	}
	x.a.Layers = append(x.a.Layers, l.Layers...)
	if x.explain {
		x.a.Looks = append(x.a.Looks, l)
	}
}

// what says what kind of object is looked at.
func (x *inquiry) what(q *profile.Question) string {
	switch {
	case q.Kind == profile.Net:
		return "port"
	case q.Kind == profile.Scope:
		return "process"
	case q.Path != x.op.Path:
		return "parent"
	}
	return typeNames[x.facts.Type]
}

var typeNames = map[profile.FileType]string{
	profile.NoFile: "file", profile.RegularFile: "file", profile.Directory: "directory", profile.Symlink: "symbolic link",
	profile.CharDevice: "device", profile.BlockDevice: "device", profile.Fifo: "named pipe", profile.Socket: "socket",
}

// take adds a look to the answer: who denied, which rules decided, and with
// explain the walk.
func (x *inquiry) take(l *Look, kind profile.Kind, req profile.Access, left []profile.Access, w walk) {
	l.Rights = names(kind, req)
	l.Layers = []Layer{}
	if l.Verdict == Deny {
		x.refuse()
	}
	for i, a := range left {
		if a != 0 {
			missing := Layer{x.d.p.Layers[i].Name, names(kind, a)}
			l.Layers = append(l.Layers, missing)
			x.addLayer(missing)
			x.decidedBy(x.d.against(kind, i, w))
		}
	}
	if l.Verdict == Allow {
		x.decidedBy(x.d.grants(kind, w))
		for _, m := range w.met {
			if slices.ContainsFunc(m.cleared, func(a profile.Access) bool { return a != 0 }) {
				x.granted = append(x.granted, m)
			}
		}
	}
	x.unknownRights(kind, req)
	if x.explain {
		l.Steps = []Step{{Rules: []Rule{}, Unfulfilled: l.Layers}} // scopes have no rules to meet
		if kind != profile.Scope {
			l.Steps = x.d.steps(kind, req, l.Real, w)
		}
		x.a.Looks = append(x.a.Looks, *l)
	}
}

// refuse begins a denial: what granted before (the parent, the program) is not
// the reason.
func (x *inquiry) refuse() {
	if !x.refused {
		x.a.DecidedBy, x.refused = []Rule{}, true
	}
}

// addLayer adds a denying layer, or rights to it.
func (x *inquiry) addLayer(l Layer) {
	for i := range x.a.Layers {
		if old := &x.a.Layers[i]; old.Name == l.Name {
			for _, right := range l.Missing {
				if !slices.Contains(old.Missing, right) {
					old.Missing = append(old.Missing[:len(old.Missing):len(old.Missing)], right)
				}
			}
			return
		}
	}
	x.a.Layers = append(x.a.Layers, l)
}

// decidedBy adds rules, each once.
func (x *inquiry) decidedBy(rules []Rule) {
	for _, r := range rules {
		same := func(o Rule) bool {
			return o.Layer == r.Layer && o.Rule == r.Rule && o.Line == r.Line && o.Field == r.Field && o.File == r.File && slices.Equal(o.Rights, r.Rights)
		}
		if !slices.ContainsFunc(x.a.DecidedBy, same) {
			x.a.DecidedBy = append(x.a.DecidedBy, r)
		}
	}
}

// names is Kind.Names that is never nil.
func names(kind profile.Kind, a profile.Access) []string {
	if n := kind.Names(a); n != nil {
		return n
	}
	return []string{}
}
