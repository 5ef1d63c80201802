package differential_test

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"policyd.dev/policyd/enforce/profile"
	"policyd.dev/policyd/internal/cli/decide"
)

// How many steps of a random scenario there are to one that the live decider is
// asked about as well, which takes dozens of system calls; fewer in a long run.
const (
	liveEvery     = 12
	liveEveryLong = 4
)

// live asks what policyctl check asks: the words of a step, decided on this
// host as it is now. It is told each rule at one path alone, so it has to find
// by inode what else the rule is on. differ says how it differs from the
// engine's answer.
func (st *stage) live(s *step, answer profile.Answer, r *report) (differ string) {
	words := st.words(s)
	if words == nil {
		return ""
	}
	q, err := decide.Parse(words)
	if err != nil {
		return fmt.Sprintf("policyctl check cannot read %q: %v", words, err)
	}
	p, err := st.m.liveProfile(st.h.port, len(st.sc.steps))
	if err != nil {
		return err.Error()
	}
	var got *decide.Answer
	ask := func() {
		var d *decide.Decider
		if d, err = decide.New(p, nil, decide.Options{ABI: st.h.sup.ABI, Errata: st.h.sup.Errata}); err == nil {
			got, err = d.Explain(q)
		}
	}
	if s.op.Kind == profile.OpExec {
		st.do(ask) // it reads the program
	} else {
		ask() // in this thread's mount namespace
	}
	if err != nil && strings.Contains(err.Error(), "no path of this host names") {
		return "" // a mount of what was deleted: it says that it does not know
	}
	if err != nil {
		return fmt.Sprintf("the live decider does not answer %q: %v", q, err)
	}
	r.live++
	want := decide.Answer{Verdict: answer.Verdict.String()}
	if answer.Errno != 0 {
		want.Errno = errnoName(answer.Errno)
	}
	if got.Verdict != want.Verdict || got.Errno != want.Errno {
		return fmt.Sprintf("the live decider answers %q with %s %s, the engine %s %s", q, got.Verdict, got.Errno, want.Verdict, want.Errno)
	}
	if answer.Asked == 0 || answer.Verdict != profile.Deny {
		return ""
	}
	var denying []string
	for _, l := range answer.Questions[answer.Asked-1].Decision.Unfulfilled.Layers() {
		denying = append(denying, p.Layers[l].Name)
	}
	var told []string
	for _, l := range got.Layers {
		told = append(told, l.Name)
	}
	if !slices.Equal(told, denying) {
		return fmt.Sprintf("the live decider says of %q that %v deny it, the engine %v", q, told, denying)
	}
	return ""
}

// liveEarly holds what the live decider says is refused before Landlock is asked
// to what the kernel refuses with. It does not know all of that.
func (st *stage) liveEarly(s *step, before syscall.Errno) (differ string) {
	words := st.words(s)
	if words == nil || s.by != "" || s.op.Kind == profile.OpExec {
		return ""
	}
	q, err := decide.Parse(words)
	if err != nil {
		return ""
	}
	p, err := st.m.liveProfile(st.h.port, len(st.sc.steps))
	if err != nil {
		return err.Error()
	}
	d, err := decide.New(p, nil, decide.Options{ABI: st.h.sup.ABI, Errata: st.h.sup.Errata})
	if err != nil {
		return err.Error()
	}
	var errno syscall.Errno
	if _, err := d.Answer(q); errors.Is(err, decide.ErrNotAsked) && errors.As(err, &errno) && errno != before {
		return fmt.Sprintf("the live decider says that %q is refused with %s before Landlock is asked, the kernel %s", q, errnoName(errno), errnoName(before))
	}
	return ""
}

// words are a step's for policyctl check; nil for what those cannot say.
func (st *stage) words(s *step) []string {
	w := strings.Fields(s.op.Kind.String())
	path := st.m.path(s.op.Path)
	switch s.op.Kind {
	case profile.OpSignal, profile.OpAbstractUnix:
		switch s.shared {
		case 0, sibling:
			return append(w, "out")
		case len(st.sc.layers):
			return append(w, "in")
		}
		return nil
	case profile.OpMount:
		return w
	case profile.OpBindTCP, profile.OpConnectTCP, profile.OpBindUDP, profile.OpConnectUDP, profile.OpSendUDP:
		if s.bind || unmediated[s.by] {
			return nil
		}
		return append(w, strconv.Itoa(int(st.h.port(s.port))))
	case profile.OpRename, profile.OpExchange, profile.OpLink:
		path += " " + st.m.path(s.op.NewPath)
	case profile.OpOpen:
		if s.op.Open&profile.OpenPath != 0 {
			path += " p"
			break
		}
		path += " "
		for _, l := range openLetters {
			if s.op.Open&l.flag != 0 {
				path += l.letter
			}
		}
	case profile.OpIoctlDev:
		path += " " + map[profile.OpenFlags]string{profile.OpenRead: "r", profile.OpenWrite: "w"}[s.op.Open]
		if s.op.Open == profile.OpenRead|profile.OpenWrite {
			path += "rw"
		}
	case profile.OpMknod:
		if s.kind == whiteout {
			return nil
		}
		path += " " + s.kind.String()
	case profile.OpConnectUnix:
		if n := st.m.look(s.op.Path).node; n == nil || n.stage > 0 {
			return nil // who made the socket is not asked
		}
	case profile.OpExec:
		if st.sc.mounts() {
			return nil // which the thread that may read the program does not see
		}
	}
	if strings.HasPrefix(s.op.Path, "@") || strings.HasPrefix(s.op.NewPath, "@") {
		return nil
	}
	return append(w, strings.Fields(path)...)
}

// liveProfile has every rule at one of the names that its inode has now.
func (m *model) liveProfile(port func(string) uint16, nth int) (*profile.Profile, error) {
	names := map[*node][]string{}
	m.walk(func(path string, _ int, n *node) {
		if len(n.rules) > 0 {
			names[n] = append(names[n], m.path(path))
		}
	})
	b := profile.NewBuilder(m.layers)
	for n, all := range names {
		for _, r := range n.rules {
			b.AddPath(r.layer, all[nth%len(all)], r.access, false, profile.Fail)
		}
	}
	for _, r := range m.outer {
		b.AddPath(r.layer, m.path(r.path), r.access, false, profile.Fail)
	}
	for _, r := range m.ports {
		b.AddPorts(r.layer, port(r.port), port(r.port), r.access, false)
	}
	return b.Build()
}
