package profile

// LogChange is a difference of what the kernel logs of the denials that both
// profiles make, each right asked for alone: the innermost layer that denies it
// says how. That of Kind Scope has neither a path nor ports.
type LogChange struct {
	Kind          Kind
	Path          string // Kind FS: it holds beneath too, down to the next one
	First, Last   uint16 // Kind Net
	Rights        Access // that are logged otherwise; 0 where a difference ends
	Before, After LogState
}

// LogState says by right how its denial is logged.
type LogState struct {
	Silent      Access // never: quiet, or an older layer has subdomains_off
	SameExecOff Access // not for the program that was started first
	NewExecOn   Access // for the programs it starts, too
}

func (s LogState) only(a Access) LogState {
	return LogState{s.Silent & a, s.SameExecOff & a, s.NewExecOn & a}
}

// logger tells how one side logs.
type logger struct {
	*side
	muted []bool // by layer: an older one has subdomains_off
	flags []LogFlags
}

func newLogger(s *side) *logger {
	g := &logger{side: s}
	muted := false
	for l := range s.p.Layers {
		flags := s.p.Layers[l].Log & logFlagsKnown(s.abi)
		g.muted, g.flags = append(g.muted, muted), append(g.flags, flags)
		muted = muted || flags&LogSubdomainsOff != 0
	}
	return g
}

// state goes from the innermost layer out. masks is what is granted by layer,
// with the quiet rules met; nil stands for nothing.
func (g *logger) state(k Kind, masks []Access) (denied Access, st LogState) {
	for l := g.layers - 1; l >= 0; l-- {
		layer := &g.p.Layers[l]
		refused, quiet := layer.handled(k)&Handled(k, g.abi), k == Scope
		if k == FS {
			refused = g.handled[l]
		}
		if masks != nil {
			refused, quiet = refused&^masks[l], quiet || masks[l]&QuietRule != 0
		}
		refused &^= denied
		denied |= refused
		silent := Access(0)
		switch {
		case g.muted[l]:
			silent = refused
		case quiet && g.abi >= abiQuiet:
			silent = refused & layer.quiet(k)
		}
		st.Silent |= silent
		if g.flags[l]&LogSameExecOff != 0 {
			st.SameExecOff |= refused &^ silent
		}
		if g.flags[l]&LogNewExecOn != 0 {
			st.NewExecOn |= refused &^ silent
		}
	}
	return denied, st
}

// logChange compares one object; the result has Rights, Before and After.
func logChange(k Kind, a, b *logger, inA, inB []Access) (c LogChange) {
	deniedA, before := a.state(k, inA)
	deniedB, after := b.state(k, inB)
	c.Kind = k
	c.Rights = (before.Silent ^ after.Silent) | (before.SameExecOff ^ after.SameExecOff) | (before.NewExecOn ^ after.NewExecOn)
	c.Rights &= deniedA & deniedB
	c.Before, c.After = before.only(c.Rights), after.only(c.Rights)
	return c
}

func compareLog(sideA, sideB *side, pl *places) []LogChange {
	a, b := newLogger(sideA), newLogger(sideB)
	var out []LogChange
	at := func(i int) LogChange { return logChange(FS, a, b, a.at(i), b.at(i)) }
	for i := range pl.paths {
		here, above := at(i), LogChange{Kind: FS}
		if up := pl.up[i]; up >= 0 {
			above = at(int(up))
		}
		if here != above {
			here.Path = pl.paths[i].Path
			out = append(out, here)
		}
	}
	first := len(out)
	eachPorts(sideA.p, sideB.p, func(from, to uint16, inA, inB []Access) {
		c := logChange(Net, a, b, inA, inB)
		if c.Rights == 0 {
			return
		}
		c.First, c.Last = from, to
		if k := len(out) - 1; k >= first && out[k].Last+1 == from {
			before := out[k]
			before.First, before.Last = from, to
			if before == c {
				out[k].Last = to
				return
			}
		}
		out = append(out, c)
	})
	if c := logChange(Scope, a, b, nil, nil); c.Rights != 0 {
		out = append(out, c)
	}
	return out
}
