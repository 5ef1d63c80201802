package main

import (
	"fmt"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/enforce/profile"
)

// told is a comparison in words. Its JSON names are an interface.
type told struct {
	First    toldSide      `json:"first"`
	Second   toldSide      `json:"second"`
	ABI      int           `json:"abi"`
	Equal    bool          `json:"equal"`
	Gained   bool          `json:"gained"`
	Lost     bool          `json:"lost"`
	Paths    []toldPath    `json:"paths"`
	Ports    []toldPorts   `json:"ports"`
	Scopes   toldChange    `json:"scopes"`
	Mount    string        `json:"mount"` // "gained", "lost", "unchanged"
	Moves    toldMoves     `json:"moves"`
	Log      []toldLog     `json:"log"`
	Settings []toldSetting `json:"settings"`
	// Values that stand for parameters without one, by name.
	Parameters []toldValue `json:"parameters"`

	oneOfMany bool // of folders
}

type toldValue struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// toldSeveral is what is told of folders with several policies, by their names.
type toldSeveral struct {
	Equal    bool    `json:"equal"`
	Gained   bool    `json:"gained"`
	Lost     bool    `json:"lost"`
	Policies []*told `json:"policies"`
}

func (s *toldSeveral) add(t *told) {
	s.Equal, s.Gained, s.Lost = s.Equal && t.Equal, s.Gained || t.Gained, s.Lost || t.Lost
	s.Policies = append(s.Policies, t)
}

type toldSide struct {
	Name   string `json:"name"`
	Digest string `json:"digest"`
}

type toldChange struct {
	Gained  []string     `json:"gained"`
	Lost    []string     `json:"lost"`
	Reasons []toldReason `json:"reasons"`

	kind profile.Kind
}

type toldPath struct {
	Path string `json:"path"`
	toldChange
}

type toldPorts struct {
	First uint16 `json:"first"`
	Last  uint16 `json:"last"`
	toldChange
}

// toldReason is why one of the two allows rights or refuses them.
type toldReason struct {
	Side   string       `json:"side"`   // "first", "second"
	Effect string       `json:"effect"` // "refuses", "grants", "unhandled"
	Layer  string       `json:"layer"`
	Rights []string     `json:"rights"`
	Rule   string       `json:"rule"`    // path or ports, with "grants"
	Origin []toldOrigin `json:"origins"` // where the rule stands; none for compiled profiles
}

type toldOrigin struct {
	File     string `json:"file"`
	Line     uint32 `json:"line"`
	Field    string `json:"field"`
	Fragment string `json:"fragment"`
}

type toldMoves struct {
	Unknown bool        `json:"unknown"`
	Groups  []toldGroup `json:"groups"`
	Changes []toldMove  `json:"changes"`
}

type toldGroup struct {
	In        []string `json:"in"`
	Except    []string `json:"except"`
	Itself    []string `json:"itself"`
	NotItself []string `json:"not_itself"`
}

type toldMove struct {
	From          int      `json:"from"` // index in groups
	To            int      `json:"to"`
	Gained        []string `json:"gained"`
	Lost          []string `json:"lost"`
	MountedGained []string `json:"mounted_gained"`
	MountedLost   []string `json:"mounted_lost"`
}

type toldLog struct {
	Kind   string       `json:"kind"`
	Path   string       `json:"path"`
	First  uint16       `json:"first"`
	Last   uint16       `json:"last"`
	Rights []string     `json:"rights"`
	Before toldLogState `json:"before"`
	After  toldLogState `json:"after"`
}

type toldLogState struct {
	Silent      []string `json:"silent"`
	SameExecOff []string `json:"same_exec_off"`
	NewExecOn   []string `json:"new_exec_on"`
}

type toldSetting struct {
	Name   string `json:"name"`
	Path   string `json:"path"`
	First  string `json:"first"`
	Second string `json:"second"`
}

// teller puts a comparison into words.
type teller struct {
	sides   [2]*compiled
	origins [2]map[rowOfLayer][]*apiv1.Origin
}

type rowOfLayer struct {
	table      apiv1.Origin_Table
	row, layer int
}

func newTold(names [2]string, sides [2]*compiled, d *profile.Comparison) *told {
	t := &teller{sides: sides}
	out := &told{ABI: d.ABI, Equal: d.Equal(), Gained: d.Gains(), Lost: d.Loses(), Mount: "unchanged", Parameters: []toldValue{}}
	for i, s := range sides {
		t.origins[i] = map[rowOfLayer][]*apiv1.Origin{}
		for _, o := range s.origins {
			k := rowOfLayer{o.GetTable(), int(o.GetRow()), int(o.GetLayer())}
			t.origins[i][k] = append(t.origins[i][k], o)
		}
	}
	out.First, out.Second = toldSide{names[0], sides[0].digest}, toldSide{names[1], sides[1].digest}
	for i, p := range d.Paths {
		out.Paths = append(out.Paths, toldPath{p.Path, t.change(profile.FS, p.Change, d.PathReasons(i))})
	}
	for i, p := range d.Ports {
		out.Ports = append(out.Ports, toldPorts{p.First, p.Last, t.change(profile.Net, p.Change, d.PortReasons(i))})
	}
	out.Scopes = t.change(profile.Scope, d.Scope, d.ScopeReasons())
	switch d.Mount {
	case profile.Gained:
		out.Mount = "gained"
	case profile.Lost:
		out.Mount = "lost"
	}
	out.Moves = toldMovesOf(d.Moves)
	for _, l := range d.Log {
		state := func(s profile.LogState) toldLogState {
			return toldLogState{rightNames(l.Kind, s.Silent), rightNames(l.Kind, s.SameExecOff), rightNames(l.Kind, s.NewExecOn)}
		}
		out.Log = append(out.Log, toldLog{l.Kind.String(), l.Path, l.First, l.Last, rightNames(l.Kind, l.Rights), state(l.Before), state(l.After)})
	}
	for _, s := range d.Settings {
		out.Settings = append(out.Settings, toldSetting(s))
	}
	out.Paths, out.Ports = list(out.Paths), list(out.Ports)
	out.Log, out.Settings = list(out.Log), list(out.Settings)
	return out
}

// list is never null in JSON.
func list[T any](s []T) []T { return append([]T{}, s...) }

func rightNames(k profile.Kind, a profile.Access) []string { return list(k.Names(a)) }

func (t *teller) change(k profile.Kind, c profile.Change, reasons []profile.Reason) toldChange {
	out := toldChange{kind: k, Gained: rightNames(k, c.Gained), Lost: rightNames(k, c.Lost), Reasons: []toldReason{}}
	for _, r := range reasons {
		side := 0
		if r.Second {
			side = 1
		}
		w := toldReason{Side: [2]string{"first", "second"}[side], Effect: r.Effect.String(), Rights: rightNames(k, r.Rights), Origin: []toldOrigin{}}
		p := t.sides[side].profile
		if r.Layer >= 0 {
			w.Layer = p.Layers[r.Layer].Name
		}
		if r.Effect == profile.Grants {
			table := apiv1.Origin_TABLE_PATHS
			if k == profile.FS {
				w.Rule = p.Paths[r.Row].Path
			} else {
				table = apiv1.Origin_TABLE_PORTS
				w.Rule = portText(p.Ports[r.Row].First, p.Ports[r.Row].Last)
			}
			for _, o := range t.origins[side][rowOfLayer{table, r.Row, r.Layer}] {
				if profile.Access(o.GetAccess())&r.Rights != 0 {
					w.Origin = append(w.Origin, toldOrigin{o.GetFile(), o.GetLine(), o.GetField(), o.GetFragment()})
				}
			}
		}
		out.Reasons = append(out.Reasons, w)
	}
	return out
}

func portText(first, last uint16) string {
	if first == last {
		return fmt.Sprint(first)
	}
	return fmt.Sprintf("%d-%d", first, last)
}

func toldMovesOf(m profile.Moves) toldMoves {
	out := toldMoves{Unknown: m.Unknown, Groups: []toldGroup{}, Changes: []toldMove{}}
	for _, g := range m.Groups {
		out.Groups = append(out.Groups, toldGroup{list(g.In), list(g.Except), list(g.Itself), list(g.NotItself)})
	}
	for _, c := range m.Changes {
		out.Changes = append(out.Changes, toldMove{
			c.From, c.To, rightNames(profile.FS, c.Gained), rightNames(profile.FS, c.Lost),
			rightNames(profile.FS, c.Mounted.Gained), rightNames(profile.FS, c.Mounted.Lost),
		})
	}
	return out
}
