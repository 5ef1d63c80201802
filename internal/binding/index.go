package binding

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
)

// Binding is a stored Binding.
type Binding struct {
	Name    string
	Version uint64
	Spec    *apiv1.BindingSpec
}

// Match is a Binding that matches a workload.
type Match struct {
	Binding *Binding
	scores  scores
}

// rule is a Binding ready to be matched.
type rule struct {
	*Binding
	pairs [kinds][]keyed    // annotation, label: each must hold
	lists [kinds][]*pattern // of the others one must
	users []uids
}

// keyed is a pattern of the value of a key.
type keyed struct {
	key     string
	pattern *pattern
}

// fact is what a rule can be found by.
type fact struct {
	kind kind
	key  string
}

// prefixes are rules by what the value of a fact must begin with.
type prefixes struct {
	rules   map[string][]*rule
	lengths []int // of the keys of rules
	memo    memo  // of the rules under no beginning
}

// Index finds the Bindings that match. What it answers never changes, and it is safe for use by many goroutines; the nil Index has no
// Bindings.
type Index struct {
	facts map[fact]*prefixes
	users map[uint32][]*rule // that select on nothing but one or few users
	rest  []*rule            // that can only be tried
	all   []*rule
	of    map[string][]*Binding
}

// few is how many users a range may have to be found by each.
const few = 16

// New makes an index. Of a Binding that cannot be read, which the checks of documents keep out, it is an error: leaving
// it out would let another one decide.
func New(bindings []*Binding) (*Index, error) {
	x := &Index{facts: map[fact]*prefixes{}, users: map[uint32][]*rule{}, of: map[string][]*Binding{}}
	for _, b := range bindings {
		r, err := newRule(b)
		if err != nil {
			return nil, fmt.Errorf("binding %s: %w", b.Name, err)
		}
		x.add(r)
		x.all = append(x.all, r)
		policy, _, _ := strings.Cut(b.Spec.GetPolicy(), "@")
		x.of[policy] = append(x.of[policy], b)
	}
	for _, p := range x.facts {
		for s := range p.rules {
			if !slices.Contains(p.lengths, len(s)) {
				p.lengths = append(p.lengths, len(s))
			}
		}
	}
	return x, nil
}

// lists gives the lists of a selection by kind.
func lists(m *apiv1.BindingMatch) [kinds][]string {
	return [kinds][]string{image: m.GetImage(), namespace: m.GetNamespace(), unit: m.GetUnit(), smackLabel: m.GetSmackLabel()}
}

func newRule(b *Binding) (*rule, error) {
	r := &rule{Binding: b}
	m := b.Spec.GetMatch()
	for k, pairs := range map[kind]map[string]string{annotation: m.GetAnnotation(), label: m.GetLabel()} {
		for key, value := range pairs {
			p, err := parsePattern(value)
			if err != nil {
				return nil, fmt.Errorf("%s %q %w", precedence[k].key, key, err)
			}
			r.pairs[k] = append(r.pairs[k], keyed{key, p})
		}
	}
	found := len(r.pairs[annotation]) + len(r.pairs[label])
	for k, list := range lists(m) {
		for _, s := range list {
			p, err := parsePattern(s)
			if err != nil {
				return nil, fmt.Errorf("%s %q %w", precedence[k].key, s, err)
			}
			r.lists[k] = append(r.lists[k], p)
			found++
		}
	}
	for _, s := range m.GetUid() {
		u, err := parseUIDs(s)
		if err != nil {
			return nil, fmt.Errorf("uid %q %w", s, err)
		}
		r.users = append(r.users, u)
		found++
	}
	if found == 0 {
		return nil, errors.New("selects on nothing")
	}
	return r, nil
}

// add puts a rule where the fewest workloads find it: under the fact of which it asks for the longest beginning.
func (x *Index) add(r *rule) {
	var at fact
	var under []string
	most := -1
	try := func(f fact, patterns []*pattern) {
		least := -1
		beginnings := make([]string, 0, len(patterns))
		for _, p := range patterns {
			s := p.prefix()
			beginnings = append(beginnings, s)
			if least < 0 || len(s) < least {
				least = len(s)
			}
		}
		if least > most {
			at, under, most = f, beginnings, least
		}
	}
	for k := range kinds {
		for _, p := range r.pairs[k] {
			try(fact{k, p.key}, []*pattern{p.pattern})
		}
		if len(r.lists[k]) > 0 {
			try(fact{kind: k}, r.lists[k])
		}
	}
	switch {
	case most >= 0:
		p := x.facts[at]
		if p == nil {
			p = &prefixes{rules: map[string][]*rule{}}
			x.facts[at] = p
		}
		slices.Sort(under)
		for _, s := range slices.Compact(under) {
			p.rules[s] = append(p.rules[s], r)
		}
	case slices.ContainsFunc(r.users, func(u uids) bool { return u.high-u.low >= few }):
		x.rest = append(x.rest, r)
	default:
		for _, u := range r.users {
			for n := uint64(u.low); n <= uint64(u.high); n++ {
				if list := x.users[uint32(n)]; !slices.Contains(list, r) {
					x.users[uint32(n)] = append(list, r)
				}
			}
		}
	}
}

// Of gives the Bindings that name a policy or a version of it.
func (x *Index) Of(policy string) []*Binding {
	if x == nil {
		return nil
	}
	return x.of[policy]
}

// Find gives the Bindings that match a workload, the one that decides first.
func (x *Index) Find(w *apiv1.Workload) []*Match {
	var out []*Match
	x.each(w, func(m *Match) { out = append(out, m) })
	slices.SortFunc(out, better)
	return slices.CompactFunc(out, func(a, b *Match) bool { return a.Binding == b.Binding })
}

// Best gives the one that decides, nil when none matches.
func (x *Index) Best(w *apiv1.Workload) *Binding {
	var best *Match
	x.each(w, func(m *Match) {
		if best == nil || better(m, best) < 0 {
			best = m
		}
	})
	if best == nil {
		return nil
	}
	return best.Binding
}

// each calls f for what matches, for some more than once.
func (x *Index) each(w *apiv1.Workload, f func(*Match)) {
	if x == nil {
		return
	}
	try := func(rules []*rule) {
		for _, r := range rules {
			if s, ok := r.match(w); ok {
				f(&Match{r.Binding, s})
			}
		}
	}
	look := func(k kind, key, value string) {
		p := x.facts[fact{k, key}]
		if p == nil {
			return
		}
		for _, n := range p.lengths {
			switch {
			case n > len(value):
			case n == 0 && k != annotation && k != label:
				try(p.memo.matching(p.rules[""], k, value))
			default:
				try(p.rules[value[:n]])
			}
		}
	}
	for key, value := range w.GetAnnotations() {
		look(annotation, key, value)
	}
	for key, value := range w.GetLabels() {
		look(label, key, value)
	}
	for k, value := range values(w) {
		look(kind(k), "", value)
	}
	if w != nil && w.Uid != nil {
		try(x.users[w.GetUid()])
	}
	try(x.rest)
}

// values gives the single values of a workload by kind.
func values(w *apiv1.Workload) [kinds]string {
	return [kinds]string{image: w.GetImage(), namespace: w.GetNamespace(), unit: w.GetUnit(), smackLabel: w.GetSmackLabel()}
}

// match tells whether all of a rule holds, and how specific each part of it is.
func (r *rule) match(w *apiv1.Workload) (s scores, ok bool) {
	for k, have := range [...]map[string]string{annotation: w.GetAnnotations(), label: w.GetLabels()} {
		for _, p := range r.pairs[k] {
			value, there := have[p.key]
			if !there || !p.pattern.match(value) {
				return s, false
			}
			s[k] = s[k].plus(p.pattern.score)
		}
	}
	for k, value := range values(w) {
		if len(r.lists[k]) == 0 {
			continue
		}
		// What is not known matches nothing, not even *.
		if value == "" {
			return s, false
		}
		for _, p := range r.lists[k] {
			if p.match(value) && p.score.compare(s[k]) > 0 {
				s[k] = p.score
			}
		}
		if s[k] == (score{}) {
			return s, false
		}
	}
	if len(r.users) > 0 {
		if w == nil || w.Uid == nil {
			return s, false
		}
		for _, u := range r.users {
			if n := w.GetUid(); u.low <= n && n <= u.high && (s[uid] == score{} || u.score().compare(s[uid]) > 0) {
				s[uid] = u.score()
			}
		}
		if s[uid] == (score{}) {
			return s, false
		}
	}
	return s, true
}

// width is how many bytes the first character of s takes.
func width(s string) int {
	_, n := utf8.DecodeRuneInString(s)
	return max(n, 1)
}
