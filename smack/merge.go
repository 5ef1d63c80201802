package smack

import (
	"bytes"
	"fmt"
	"slices"
)

// Build merges the rules and gives the policy, and the warnings about rules that
// say something twice or to no effect. It changes nothing: more rules may be
// added and Build called again. The error wraps [ErrInvalid] or [ErrLimit], or is
// the first that a rule or a text met: a policy that lacks a rule is not built.
//
// Merging takes time linear in the number of rules.
func (b *Builder) Build() (*Policy, Problems, error) {
	if b.err != nil {
		return nil, nil, b.err
	}
	p := &Policy{Name: b.name, Layers: make([]Layer, len(b.layers))}
	for i, l := range b.layers {
		p.Layers[i] = Layer{Name: l.name, Handled: l.handled}
	}
	if err := p.checkHead(); err != nil {
		return nil, nil, err
	}
	m := merger{b: b}
	m.sort()
	if err := m.rows(p); err != nil {
		return nil, nil, err
	}
	var all Problems
	for _, l := range b.layers {
		all = append(all, l.warned.all()...)
	}
	return p, append(all, m.warned.all()...), nil
}

// checkHead checks the name and the layers.
func (p *Policy) checkHead() error {
	if err := checkName("policy", p.Name, true); err != nil {
		return err
	}
	if len(p.Layers) == 0 {
		return fmt.Errorf("%w: a policy needs a layer", ErrInvalid)
	}
	if len(p.Layers) > MaxLayers {
		return fmt.Errorf("%w: %d layers, at most %d", ErrLimit, len(p.Layers), MaxLayers)
	}
	seen := map[string]bool{}
	for _, l := range p.Layers {
		if err := checkName("layer", l.Name, false); err != nil {
			return err
		}
		switch {
		case seen[l.Name]:
			return fmt.Errorf("%w: two layers %q", ErrInvalid, l.Name)
		case l.Handled == 0 || l.Handled&^AllAccess != 0:
			return fmt.Errorf("%w: layer %q handles no letter", ErrInvalid, l.Name)
		case l.Handled&Lock != 0 && l.Handled&Write == 0:
			return fmt.Errorf("%w: layer %q handles l without w: a rule with w implies l in the kernel, so l could not be refused", ErrInvalid, l.Name)
		}
		seen[l.Name] = true
	}
	return nil
}

func checkName(what, name string, mayBeEmpty bool) error {
	if name == "" && !mayBeEmpty {
		return fmt.Errorf("%w: a %s without a name", ErrInvalid, what)
	}
	if len(name) > maxName {
		return fmt.Errorf("%w: name of a %s has %d bytes, at most %d", ErrLimit, what, len(name), maxName)
	}
	for i := range len(name) {
		if name[i] < ' ' || name[i] == 0x7f {
			return fmt.Errorf("%w: name of a %s holds %s", ErrInvalid, what, byteName(name[i]))
		}
	}
	return nil
}

// merger puts the rules of all layers in order of pairs. Rules are numbered
// through all layers.
type merger struct {
	b      *Builder
	byRank []uint16 // labels in rising order of bytes
	rank   []uint16 // the inverse
	order  []uint32 // numbers of rules, by pair, then by layer and place in it
	warned warnings
}

// rule gives rule number i of all, and its layer.
func (m *merger) rule(i int) (packed, int, int) {
	for n, l := range m.b.layers {
		if i < len(l.rules) {
			return l.rules[i], n, i
		}
		i -= len(l.rules)
	}
	panic("smack: a rule beyond the last")
}

// sort fills order by two stable passes of counting, by object and then by
// subject.
func (m *merger) sort() {
	in := &m.b.labels
	n := in.len()
	m.byRank, m.rank = make([]uint16, n), make([]uint16, n)
	for i := range m.byRank {
		m.byRank[i] = uint16(i)
	}
	slices.SortFunc(m.byRank, func(a, b uint16) int { return bytes.Compare(in.label(int(a)), in.label(int(b))) })
	for r, id := range m.byRank {
		m.rank[id] = uint16(r)
	}

	count := make([]uint32, n)
	bySubject := make([]uint32, n)
	for _, l := range m.b.layers {
		for i := range l.rules {
			count[m.rank[l.rules[i].object]]++
			bySubject[m.rank[l.rules[i].subject]]++
		}
	}
	starts(count)
	starts(bySubject)
	byObject := make([]uint32, m.b.rules)
	number := uint32(0)
	for _, l := range m.b.layers {
		for i := range l.rules {
			at := &count[m.rank[l.rules[i].object]]
			byObject[*at] = number
			*at++
			number++
		}
	}
	m.order = make([]uint32, m.b.rules)
	single := len(m.b.layers) == 1
	for _, number := range byObject {
		var subject uint16
		if single {
			subject = m.b.layers[0].rules[number].subject
		} else {
			r, _, _ := m.rule(int(number))
			subject = r.subject
		}
		at := &bySubject[m.rank[subject]]
		m.order[*at] = number
		*at++
	}
}

// starts turns counts into where each begins.
func starts(count []uint32) {
	sum := uint32(0)
	for i, c := range count {
		count[i] = sum
		sum += c
	}
}

// rows merges the rules of each pair into a row of the policy.
func (m *merger) rows(p *Policy) error {
	pairs := 0
	m.groups(func([]uint32) { pairs++ })
	layers := len(p.Layers)
	if pairs*layers > maxRowLayers {
		return fmt.Errorf("%w: %d rows in %d layers, at most %d together", ErrLimit, pairs, layers, maxRowLayers)
	}
	n := len(m.byRank)
	p.t.first = make([]uint32, n+1)
	p.t.object = make([]uint16, 0, pairs)
	p.mask = make([]Access, 0, pairs*layers)
	used := make([]bool, n)
	special := m.special()
	row := make([]Access, layers)
	m.groups(func(group []uint32) {
		clear(row)
		if !m.merge(group, row) {
			return
		}
		r, _, _ := m.rule(int(group[0]))
		sub, obj := m.rank[r.subject], m.rank[r.object]
		used[sub], used[obj] = true, true
		if sub == obj || special[sub] || special[obj] {
			m.dead(group)
		}
		p.t.first[sub+1]++
		p.t.object = append(p.t.object, obj)
		p.mask = append(p.mask, row...)
	})
	m.table(p, used)
	return nil
}

// groups calls f for the rules of each pair, in order.
func (m *merger) groups(f func([]uint32)) {
	for lo := 0; lo < len(m.order); {
		first, _, _ := m.rule(int(m.order[lo]))
		hi := lo + 1
		for ; hi < len(m.order); hi++ {
			r, _, _ := m.rule(int(m.order[hi]))
			if r.subject != first.subject || r.object != first.object {
				break
			}
		}
		f(m.order[lo:hi])
		lo = hi
	}
}

// merge merges the rules of one pair; false when they all do nothing.
func (m *merger) merge(group []uint32, row []Access) bool {
	any := false
	setter := -1 // the last rule of 3 columns in the layer
	layer := -1
	for _, number := range group {
		r, n, i := m.rule(int(number))
		if n != layer {
			layer, setter = n, -1
		}
		if r.deny&threeColumns == 0 {
			if r.allow|r.deny == 0 && row[n]&stated == 0 {
				continue // "A B - -" of a pair without a rule
			}
			if both := r.allow & r.deny; both != 0 {
				m.warned.add(Problem{Code: WarnBoth, Place: m.b.layers[n].at(i), Text: fmt.Sprintf("%s is allowed and denied by one rule: it is denied", both)})
			}
		} else {
			if setter >= 0 {
				m.duplicate(n, setter, i)
			}
			setter = i
		}
		row[n] = (row[n]|r.allow)&^(r.deny&AllAccess) | stated
		any = true
	}
	return any
}

func (m *merger) duplicate(layer, earlier, later int) {
	l := m.b.layers[layer]
	was, is := l.rules[earlier], l.rules[later]
	p := Problem{Code: WarnDuplicate, Place: l.at(later), Other: l.at(earlier)}
	pair := fmt.Sprintf("%s %s", m.b.labels.label(int(is.subject)), m.b.labels.label(int(is.object)))
	if was.allow == is.allow {
		p.Text = fmt.Sprintf("the rule %s %s stands at %s already", pair, is.allow, p.Other)
	} else {
		p.Text = fmt.Sprintf("the rule %s %s replaces %s of %s: the last one wins", pair, is.allow, was.allow, p.Other)
	}
	m.warned.add(p)
}

// special tells by rank which labels the kernel has built in.
func (m *merger) special() []bool {
	special := make([]bool, len(m.byRank))
	for r, id := range m.byRank {
		if label := m.b.labels.label(int(id)); len(label) == 1 {
			special[r] = BuiltIn(string(label))
		}
	}
	return special
}

// dead warns of the rules of one pair that have no effect, each by itself.
func (m *merger) dead(group []uint32) {
	for _, number := range group {
		r, n, i := m.rule(int(number))
		subject, object := string(m.b.labels.label(int(r.subject))), string(m.b.labels.label(int(r.object)))
		p := Problem{Place: m.b.layers[n].at(i)}
		switch dead := deadLetters(subject, object, r.allow); dead {
		case 0:
			continue
		case r.allow:
			p.Code, p.Text = WarnDead, fmt.Sprintf("the rule %s %s %s has no effect: %s", subject, object, r.allow, whyDead(subject, object))
		default:
			p.Code, p.Text = WarnPartlyDead, fmt.Sprintf("of the rule %s %s %s only %s has an effect: %s", subject, object, r.allow, r.allow&^dead, whyDead(subject, object))
		}
		m.warned.add(p)
	}
}

// table finishes the policy's table: labels that no row names are left out.
func (m *merger) table(p *Policy, used []bool) {
	in := &m.b.labels
	size, labels := 0, 0
	for r, id := range m.byRank {
		if used[r] {
			labels++
			size += len(in.label(int(id)))
		}
	}
	text := make([]byte, 0, size)
	p.t.end = make([]uint32, 0, labels)
	number := make([]uint16, len(used))
	for r, id := range m.byRank {
		if used[r] {
			number[r] = uint16(len(p.t.end))
			text = append(text, in.label(int(id))...)
			p.t.end = append(p.t.end, uint32(len(text)))
			p.t.first[len(p.t.end)] = p.t.first[r+1]
		}
	}
	p.t.text = string(text)
	p.t.first = p.t.first[:labels+1]
	for i := range p.t.first[1:] {
		p.t.first[i+1] += p.t.first[i]
	}
	if labels == len(used) {
		return
	}
	for i := range p.t.object {
		p.t.object[i] = number[p.t.object[i]]
	}
}
