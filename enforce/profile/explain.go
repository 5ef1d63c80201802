package profile

// ExplainPath is DecidePath that also shows every row met on the way, from the
// object up, with the bits it was the first to clear in each layer. Like the
// kernel it stops when nothing is left to clear. cleared is reused for the next
// row. It allocates; decisions that need no reasons should use DecidePath.
func (p *Profile) ExplainPath(path string, req Access, visit func(row *PathRow, cleared []Access)) Decision {
	if !isPath(path) {
		return badQuestion(len(p.Layers))
	}
	m := p.start(FS, req)
	s := m.slice()
	cleared := make([]Access, len(s))
	for row, rest, n := p.above(path, len(p.Paths)); row >= 0; row, rest, n = p.above(rest, n) {
		r := &p.Paths[row]
		more := clearAndShow(s, r.Access, cleared)
		visit(r, cleared)
		if !more {
			break
		}
	}
	return p.decide(FS, m)
}

// ExplainPort is DecidePort that also shows the row met, if there is one.
func (p *Profile) ExplainPort(port uint16, req Access, visit func(row *PortRow, cleared []Access)) Decision {
	m := p.start(Net, req)
	if i := p.findPort(port); i >= 0 {
		r := &p.Ports[i]
		cleared := make([]Access, m.Len())
		clearAndShow(m.slice(), r.Access, cleared)
		visit(r, cleared)
	}
	return p.decide(Net, m)
}

func clearAndShow(unfulfilled, granted, cleared []Access) (more bool) {
	for l := range cleared {
		cleared[l] = unfulfilled[l] & granted[l] &^ QuietRule
	}
	return clearGranted(unfulfilled, granted)
}
