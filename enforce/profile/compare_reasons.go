package profile

// Effect is what a layer or rule does.
type Effect uint8

// The effects.
const (
	Refuses   Effect = iota // the layer handles the rights and no rule of it grants them there
	Grants                  // a rule of the layer grants them
	Unhandled               // no layer handles them
)

// String gives "refuses", "grants" or "unhandled".
func (e Effect) String() string {
	switch e {
	case Grants:
		return "grants"
	case Unhandled:
		return "unhandled"
	}
	return "refuses"
}

// Reason is a part of why one profile allows what the other refuses.
type Reason struct {
	Second bool // of which profile Layer and Row are
	Effect Effect
	Layer  int // index in its Layers; -1 with Unhandled
	Row    int // index in its Paths or Ports with Grants, else -1
	Rights Access
}

// PathReasons tells why c.Paths[i] is: the layers of one profile that refuse, and
// in the other the nearest rule of each layer that grants. Where the refusing
// layers have namesakes there, only the rules of those are told.
func (c *Comparison) PathReasons(i int) []Reason {
	change := &c.Paths[i]
	place := c.places.find(change.Path)
	return c.reasons(change.Change, func(s *side) asked {
		return asked{
			handled: s.handled,
			granted: s.at(place),
			rows: func(yield func(row int, masks []Access) bool) {
				p := s.p
				for row, rest, n := p.above(change.Path, len(p.Paths)); row >= 0; row, rest, n = p.above(rest, n) {
					if !yield(row, p.Paths[row].Access) {
						return
					}
				}
			},
		}
	})
}

// PortReasons tells why c.Ports[i] is. Where the range takes in several rows the
// rules are those of its first port.
func (c *Comparison) PortReasons(i int) []Reason {
	change := &c.Ports[i]
	return c.reasons(change.Change, func(s *side) asked {
		q := asked{handled: s.of(Net), rows: func(func(int, []Access) bool) {}}
		row := s.p.findPort(change.First)
		if row >= 0 {
			q.granted = s.p.Ports[row].Access
			q.rows = func(yield func(int, []Access) bool) { yield(row, q.granted) }
		}
		return q
	})
}

// ScopeReasons tells why c.Scope is.
func (c *Comparison) ScopeReasons() []Reason {
	return c.reasons(c.Scope, func(s *side) asked {
		return asked{handled: s.of(Scope), rows: func(func(int, []Access) bool) {}}
	})
}

// of gives what the layers handle of a kind other than FS.
func (s *side) of(k Kind) []Access {
	handled := make([]Access, s.layers)
	for l := range handled {
		handled[l] = s.p.Layers[l].handled(k) & Handled(k, s.abi)
	}
	return handled
}

// asked is what reasons are found in: masks by layer, and the rows met.
type asked struct {
	handled, granted []Access // granted may be nil
	rows             func(yield func(row int, masks []Access) bool)
}

func (c *Comparison) reasons(d Change, of func(*side) asked) []Reason {
	first, second := of(c.a), of(c.b)
	refused := refusals(first, d.Gained)
	permitted := permits(second, d.Gained, c.b.namesakes(c.a, refused))
	out := append(refused, ofSecond(permitted)...)
	refused = refusals(second, d.Lost)
	out = append(out, permits(first, d.Lost, c.a.namesakes(c.b, refused))...)
	return append(out, ofSecond(refused)...)
}

func ofSecond(reasons []Reason) []Reason {
	for i := range reasons {
		reasons[i].Second = true
	}
	return reasons
}

func refusals(q asked, rights Access) []Reason {
	var out []Reason
	for l, a := range q.handled {
		a &= rights
		if q.granted != nil {
			a &^= q.granted[l]
		}
		if a != 0 {
			out = append(out, Reason{Effect: Refuses, Layer: l, Row: -1, Rights: a})
		}
	}
	return out
}

// namesakes gives by layer of s what layers of that name refuse on the other side.
func (s *side) namesakes(other *side, refused []Reason) []Access {
	names := make(map[string]Access, len(refused))
	for _, r := range refused {
		names[other.p.Layers[r.Layer].Name] |= r.Rights
	}
	out := make([]Access, s.layers)
	for l := range out {
		out[l] = names[s.p.Layers[l].Name]
	}
	return out
}

// permits tells by which rules the rights are granted, layer by layer: those
// that namesakes refuse by these alone, the others by all.
func permits(q asked, rights Access, namesakes []Access) []Reason {
	var out []Reason
	unhandled, named := rights, Access(0)
	for l, a := range q.handled {
		unhandled &^= a
		named |= a & namesakes[l]
	}
	if unhandled != 0 {
		out = append(out, Reason{Effect: Unhandled, Layer: -1, Row: -1, Rights: unhandled})
	}
	for l, a := range q.handled {
		left := a & rights & (namesakes[l] | ^named)
		if left == 0 {
			continue
		}
		for row, masks := range q.rows {
			if got := masks[l] & left; got != 0 {
				out = append(out, Reason{Effect: Grants, Layer: l, Row: row, Rights: got})
				left &^= got
			}
			if left == 0 {
				break
			}
		}
	}
	return out
}
