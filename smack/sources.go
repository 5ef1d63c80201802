package smack

// Source is what one rule says of a pair, before rules and layers merge.
type Source struct {
	Layer       int
	At          Place
	Modify      bool // 4 columns
	Allow, Deny Access
}

// Sources gives the rules that name a pair, layer by layer and in the order in
// which they merge. It takes time linear in the rules.
func (b *Builder) Sources(subject, object string) []Source {
	sub, ok1 := b.labels.find(subject)
	obj, ok2 := b.labels.find(object)
	if !ok1 || !ok2 {
		return nil
	}
	var out []Source
	for n, l := range b.layers {
		for i, r := range l.rules {
			if r.subject == sub && r.object == obj {
				out = append(out, Source{
					Layer: n, At: l.at(i), Modify: r.deny&threeColumns == 0, Allow: r.allow, Deny: denied(r.deny),
				})
			}
		}
	}
	return out
}

// find gives the number of a label that id was asked for before.
func (in *interner) find(label string) (uint16, bool) {
	for i := range in.len() {
		if string(in.label(i)) == label {
			return uint16(i), true
		}
	}
	return 0, false
}
