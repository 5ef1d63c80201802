package decide

import (
	"strings"

	"policyd.dev/policyd/enforce/profile"
)

// nothing is a profile to ask which rights an operation needs.
var nothing profile.Profile

func makeRight(t profile.FileType) profile.Access {
	if t == profile.NoFile {
		return 0
	}
	return nothing.Decide(profile.Operation{Kind: profile.OpMknod, Path: "/x/x", Make: t}, profile.Facts{}).Questions[0].Request
}

func removeRight(t profile.FileType) profile.Access {
	switch t {
	case profile.NoFile:
		return 0
	case profile.Directory:
		return profile.FSRemoveDir
	}
	return profile.FSRemoveFile
}

// concludeMove takes the engine's answer to a rename, exchange or link.
func (x *inquiry) concludeMove(m profile.MoveDecision) {
	old, new := profile.Access(0), makeRight(x.facts.Type)
	if x.op.Kind == profile.OpExchange {
		old = makeRight(x.facts.NewType)
	}
	if x.op.Kind != profile.OpLink {
		old |= removeRight(x.facts.Type)
		new |= removeRight(x.facts.NewType)
	}
	from, to := parent(x.op.Path), parent(x.op.NewPath)
	if from == to {
		x.side("parent", x.q.op.NewPath, to, old|new, m.NewParent.Slice())
		return
	}
	if x.d.opt.ABI == 1 && x.a.Verdict == Deny {
		x.reparentByOldest(from, to)
		return
	}
	x.side("from", x.q.op.Path, from, old|profile.FSRefer, m.OldParent.Slice())
	x.side("to", x.q.op.NewPath, to, new|profile.FSRefer, m.NewParent.Slice())
	if x.a.Errno != "EXDEV" {
		return
	}
	for l := range x.d.p.Layers {
		if (m.OldParent.At(l)|m.NewParent.At(l))&profile.FSRefer != 0 {
			x.a.note(noteNoRefer, "layer %s does not grant refer on both directories: every layer needs it for a move between directories, handled or not", x.d.p.Layers[l].Name)
		}
		x.gain(l, m.Gain.At(l), x.q.op.Path, from, to)
		x.gain(l, m.GainBack.At(l), x.q.op.NewPath, to, from)
	}
}

// reparentByOldest answers for hook_path_rename and hook_path_link of linux
// 5.13: of a move between directories they ask nothing, they refuse it.
func (x *inquiry) reparentByOldest(from, to string) {
	x.a.Errno = "EXDEV"
	left := make([]profile.Access, len(x.d.p.Layers))
	for l := range left {
		left[l] = profile.FSRefer
	}
	x.side("from", x.q.op.Path, from, profile.FSRefer, left)
	x.side("to", x.q.op.NewPath, to, profile.FSRefer, left)
	x.a.note(noteNoRefer, "a kernel of ABI 1 refuses every move between directories under a policy with fs rights; rules can allow it from ABI 2 (linux %s) on", profile.KernelOf(2))
}

// gain is the reason for EXDEV that refer does not help against.
func (x *inquiry) gain(layer int, a profile.Access, object, from, to string) {
	if a == 0 {
		return
	}
	name := x.d.p.Layers[layer].Name
	x.addLayer(Layer{name, names(profile.FS, a)})
	x.refuse()
	x.decidedBy(x.d.against(profile.FS, layer, x.rules.walk(to, a)))
	x.a.note(noteGain, "in layer %s %s would gain %s: granted beneath %s, but not beneath %s", name, object, strings.Join(names(profile.FS, a), ", "), to, from)
}

// side takes the look at one parent.
func (x *inquiry) side(what, object, path string, req profile.Access, left []profile.Access) {
	l := Look{What: what, Object: object, Real: path, Verdict: Allow}
	for i := range left {
		if left[i] != 0 {
			l.Verdict = Deny
		}
	}
	if x.a.Verdict == Deny && l.Verdict == Allow {
		// The other side denies; what this one grants is no reason.
		x.silent(&l, req, left)
		return
	}
	x.take(&l, profile.FS, req, left, x.rules.walk(path, req))
}

// silent shows a look without making it a reason.
func (x *inquiry) silent(l *Look, req profile.Access, left []profile.Access) {
	kept := x.a.DecidedBy
	x.take(l, profile.FS, req, left, x.rules.walk(l.Real, req))
	x.a.DecidedBy = kept
}
