package differential_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"

	"policyd.dev/policyd/enforce/landlock"
	"policyd.dev/policyd/enforce/profile"
	"policyd.dev/policyd/internal/errs"
)

// report is what a scenario came to.
type report struct {
	steps   int
	failure string // what differed at the last step, or the kernel and the text
	text    string // the failing step as a PolicyTest
	broken  error  // the scenario could not be set up: no verdict
	void    bool   // the policy is none that can be built
	flat    bool   // the kernel got it flattened
	counts  [40][3]int
	live    int            // steps that the live decider answered too
	reached map[string]int // particular situations, by name and verdict
}

// errStop ends a flattened scenario once a rule's inode has another path: from
// there on flattening is not exact (profile.Flat.PathBound).
var errStop = errors.New("stop")

// run sets a scenario up, restricts a thread and compares step by step until
// one differs. Random steps are kept in the scenario.
func run(h *host, sc *scenario) (r report) {
	h.made++
	sc.normalize()
	st := &stage{h: h, sc: sc, outside: make(chan func()), targets: map[int]int{}}
	st.m = newModel(sc, filepath.Join(h.dir, fmt.Sprintf("t%d", h.made)), h.top)
	st.m.mayMknod, st.m.mounted, st.m.whiteout = h.mayMknod, h.mounted, char
	if h.erratum4 {
		st.m.whiteout = file
	}
	done := make(chan struct{})
	go func() {
		runtime.LockOSThread() // for good: the thread ends with the goroutine
		defer close(done)
		if err := st.play(&r); err != nil && !errors.Is(err, errStop) {
			r.broken = err
		}
	}()
	for running := true; running; {
		select {
		case f := <-st.outside:
			f()
		case <-done:
			running = false
		}
	}
	st.close()
	if err := os.RemoveAll(st.m.dir); err != nil && r.broken == nil {
		r.broken = err
	}
	return r
}

// normalize makes the numbers of layers in a scenario ones that it has.
func (sc *scenario) normalize() {
	fit := func(n *int) {
		if *n <= branch {
			if *n = max(*n, branch-len(sc.layers)); sc.flatten {
				*n = sibling
			}
			return
		}
		*n = min(*n, len(sc.layers))
		if sc.flatten && *n > 0 {
			*n = len(sc.layers)
		}
	}
	mounts := sc.mounts()
	for i := range sc.tree {
		if fit(&sc.tree[i].stage); mounts {
			sc.tree[i].stage = 0 // what binds the later ones is not in the mount namespace
		}
	}
	for i := range sc.steps {
		fit(&sc.steps[i].shared)
	}
}

// mounts tells that the thread needs a mount namespace of its own.
func (sc *scenario) mounts() bool {
	return slices.ContainsFunc(sc.tree, func(e entry) bool { return e.mount })
}

func (st *stage) play(r *report) error {
	if err := st.create(); err != nil {
		return err
	}
	rs, err := st.build(r)
	if err != nil || r.void {
		return err
	}
	defer rs.Release()
	r.flat = rs.Flattened
	if err := st.restrict(rs); err != nil {
		return err
	}
	var e *engine
	for i := 0; ; i++ {
		if i == len(st.sc.steps) {
			if st.sc.random == nil || !st.sc.random.more(st) {
				return nil
			}
		}
		s := &st.sc.steps[i]
		if e == nil || st.m.changed {
			if st.m.lost() {
				return errStop
			}
			if e, err = st.newEngine(); err != nil {
				return err
			}
		}
		r.steps++
		moved := r.flat && st.movesRules(s)
		if r.failure = st.compare(e, s, r); r.failure != "" {
			st.sc.steps = st.sc.steps[:i+1]
			return nil
		}
		if moved {
			return errStop
		}
	}
}

// movesRules tells whether a step would give a rule's inode another path.
func (st *stage) movesRules(s *step) bool {
	switch s.op.Kind {
	case profile.OpRename, profile.OpExchange, profile.OpLink:
		for _, path := range []string{s.op.Path, s.op.NewPath} {
			if n := st.m.look(path).node; n != nil && n.ruled() {
				return true
			}
		}
	}
	return false
}

// build makes the rulesets, flat if the scenario says so and it can be.
func (st *stage) build(r *report) (*landlock.Rulesets, error) {
	p, err := st.m.profile(st.h.port, false)
	if err != nil {
		return nil, err
	}
	p.Flatten = st.sc.flatten
	rs, err := landlock.Build(p, st.h.sup)
	if errors.Is(err, errs.ErrFlatten) && len(p.Layers) <= profile.MaxKernelLayers {
		st.sc.flatten, p.Flatten = false, false
		rs, err = landlock.Build(p, st.h.sup)
	}
	switch {
	case errors.Is(err, errs.ErrInvalid), errors.Is(err, errs.ErrFlatten):
		r.void = true
		return nil, nil
	case err != nil:
		return nil, err
	}
	return rs, nil
}

// restrict stacks the layers one by one.
func (st *stage) restrict(rs *landlock.Rulesets) error {
	of := len(st.sc.layers)
	layers := rs.FDs()
	fds := make([]int, len(layers))
	for i, f := range layers {
		fds[i] = f.FD
	}
	// rest are the rulesets that a branch at so many layers has besides.
	rest := func(under int) []int {
		if under < len(fds) {
			return fds[under:]
		}
		return fds[:min(1, max(0, profile.MaxKernelLayers-len(fds)))]
	}
	if err := st.at(0, of, fds); err != nil {
		return err
	}
	wanted := func(s step) bool { return s.shared == sibling }
	if st.sc.random != nil && st.sc.random.sibling || slices.ContainsFunc(st.sc.steps, wanted) {
		if err := st.startSibling(rs); err != nil {
			return err
		}
	}
	for i := range layers {
		if err := landlock.FromFDs(layers[i:i+1], nil).RestrictThread(); err != nil {
			return err
		}
		under := i + 1
		if rs.Flattened {
			under = of
		}
		if err := st.at(under, of, rest(under)); err != nil {
			return err
		}
	}
	return nil
}

// compare does one step and says what differed.
func (st *stage) compare(e *engine, s *step, r *report) string {
	op, facts := st.m.question(s, st.h.port)
	before, after := st.m.vfs(s)
	var answer profile.Answer
	var differ string
	want := before
	switch {
	case before != 0:
		if r.steps%st.h.liveEvery == 0 {
			differ = st.liveEarly(s, before)
		}
	case unmediated[s.by]:
		r.counts[op.Kind][profile.NotMediated]++
		want = after
	default:
		if answer, differ = e.decide(op, facts); differ != "" {
			break
		}
		r.counts[op.Kind][answer.Verdict]++
		st.reach(s, answer.Verdict, r)
		if st.sc.random == nil || r.steps%st.h.liveEvery == 0 {
			differ = st.live(s, answer, r)
		}
		if want = answer.Errno; want == 0 {
			want = after
		}
	}
	if differ == "" && s.hasWant && s.want != want {
		differ = fmt.Sprintf("expected is %s, the engine answers %s", errnoName(s.want), errnoName(want))
	}
	got := st.perform(s, &facts)
	if differ == "" {
		if differ = got.differs(&answer, want, op.Kind); differ != "" {
			differ += fmt.Sprintf(" (Landlock: %v %s; before it %s, after it %s)", answer.Verdict, errnoName(answer.Errno), errnoName(before), errnoName(after))
		}
	}
	if differ != "" {
		r.text = st.document(s, got.errno)
		return differ
	}
	if got.lacking {
		return ""
	}
	if got.errno == 0 || answer.Created {
		st.m.apply(s)
		if got.truncated && got.truncate == 0 {
			if n := st.m.look(s.op.Path).node; n != nil {
				n.program = false
			}
		}
	}
	return st.consistent(s)
}

// differs says how the kernel's answer differs from the engine's.
func (got *outcome) differs(answer *profile.Answer, want syscall.Errno, k profile.OpKind) string {
	switch {
	case got.lacking:
	case got.errno != want && !portTaken(k, got.errno, want):
		return fmt.Sprintf("the kernel answers %s, the engine %s", errnoName(got.errno), errnoName(want))
	case got.truncated && (got.truncate == 0) != (answer.Optional&profile.FSTruncate != 0):
		return fmt.Sprintf("ftruncate of the open file gives %s, the engine says that it keeps %s", errnoName(got.truncate), profile.FS.Format(answer.Optional))
	case got.controlled && (got.ioctl == syscall.ENOTTY) != (answer.Optional&profile.FSIoctlDev != 0):
		return fmt.Sprintf("ioctl on the open device gives %s, the engine says that it keeps %s", errnoName(got.ioctl), profile.FS.Format(answer.Optional))
	}
	return ""
}

// reach counts the situations that are rare, so that a run shows that it was in
// each of them.
func (st *stage) reach(s *step, v profile.Verdict, r *report) {
	if r.reached == nil {
		r.reached = map[string]int{}
	}
	count := func(name string, is bool) {
		if is {
			r.reached[name+", "+v.String()]++
		}
	}
	h, _, held := st.m.held(s.op.Path)
	if h2, _, also := st.m.held(s.op.NewPath); !held && also {
		h, held = h2, true
	}
	if held {
		_, _, connected := st.m.wayOf(h)
		count("disconnected directory", !connected)
	}
	count("branch of the layers", s.shared <= branch)
	count("beneath a bind mount", !held && s.op.Path != "" && st.m.look(s.op.Path).mount > 0)
	count("more than 16 layers", len(st.sc.layers) > profile.MaxKernelLayers)
	count("16 layers", len(st.sc.layers) == profile.MaxKernelLayers)
	if n := st.m.look(s.op.Path).node; s.op.Path != "" && n != nil && n.kind != dir {
		count("file with a rule", len(n.rules) > 0)
		count("file with a rule and several names", len(n.rules) > 0 && n.names > 1)
	}
}

// portTaken tells that another program has taken one of the ports meanwhile.
func portTaken(k profile.OpKind, got, want syscall.Errno) bool {
	switch k {
	case profile.OpBindTCP, profile.OpBindUDP:
		return got == syscall.EADDRINUSE && want == 0
	case profile.OpConnectTCP:
		return got == 0 && want == syscall.ECONNREFUSED
	}
	return false
}

// consistent looks whether what a step was about is as the model has it.
func (st *stage) consistent(s *step) string {
	if s.op.Kind == profile.OpOpen && s.op.Open&profile.OpenCreate == 0 || s.op.Kind > profile.OpLink {
		return "" // of those that change no tree
	}
	for _, path := range []string{s.op.Path, s.op.NewPath} {
		if path == "" || strings.HasPrefix(path, "/") {
			continue
		}
		_, err := os.Lstat(st.m.path(path))
		if at := st.m.look(path); (err == nil) != (at.node != nil) {
			return fmt.Sprintf("the model of the tree is wrong about %s (%v)", path, err)
		}
	}
	return ""
}
