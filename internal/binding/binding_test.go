package binding

import (
	"fmt"
	"math/rand/v2"
	"path"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
)

func TestPattern(t *testing.T) {
	for _, c := range []struct {
		pattern    string
		yes, no    []string
		prefix     string
		exact      int
		characters int64
	}{
		{"nginx", []string{"nginx"}, []string{"", "nginx2", "Nginx", "anginx"}, "nginx", 1, 5},
		{"*", []string{"", "a", "a/b"}, nil, "", 0, 0},
		{"a*", []string{"a", "ab", "a/b:1"}, []string{"", "ba"}, "a", 0, 1},
		{"*a", []string{"a", "ba", "aa"}, []string{"", "ab"}, "", 0, 1},
		{"a*a", []string{"aa", "aba"}, []string{"a", "ab"}, "a", 0, 2},
		{"a*b*c", []string{"abc", "axbxc", "abbcc"}, []string{"acb", "ab"}, "a", 0, 3},
		{"**a**", []string{"a", "xay"}, []string{"x"}, "", 0, 1},
		{"a?c", []string{"abc", "aéc", "a\xffc"}, []string{"ac", "abbc"}, "a", 0, 2},
		{"?", []string{"x", "世"}, []string{"", "xy"}, "", 0, 0},
		{"*?x", []string{"ax", "世x", "xx"}, []string{"x", "xa"}, "", 0, 1},
		{"a*?b?*c", []string{"axbyc", "aéébbéc"}, []string{"abyc", "axbc"}, "a", 0, 3},
		{`a\*b\?\\`, []string{`a*b?\`}, []string{`axb?\`}, `a*b?\`, 1, 5},
		{`\a`, []string{"a"}, []string{`\a`}, "a", 1, 1},
	} {
		p, err := parsePattern(c.pattern)
		if err != nil {
			t.Errorf("%s: %v", c.pattern, err)
			continue
		}
		for _, s := range c.yes {
			if !p.match(s) {
				t.Errorf("%s does not match %q", c.pattern, s)
			}
		}
		for _, s := range c.no {
			if p.match(s) {
				t.Errorf("%s matches %q", c.pattern, s)
			}
		}
		if p.prefix() != c.prefix || p.exact != c.exact || p.literal != c.characters {
			t.Errorf("%s: prefix %q, %+v", c.pattern, p.prefix(), p.score)
		}
	}
	for _, s := range []string{"", `a\`} {
		if CheckPattern(s) == nil {
			t.Errorf("%q is taken", s)
		}
	}
	if !IsOpen("**") || IsOpen("") || IsOpen("?") || IsOpen("a*") {
		t.Error("IsOpen")
	}
}

// FuzzPattern compares with path.Match, which knows the same signs; "/" is left out, which * does not match there.
func FuzzPattern(f *testing.F) {
	f.Add("a*b?c", "axxbyc")
	f.Add(`\*`, "*")
	f.Add("*?*", "é")
	f.Add("*??", "é")
	f.Fuzz(func(t *testing.T, pattern, s string) {
		if strings.ContainsAny(pattern+s, "/[]") {
			t.Skip()
		}
		p, err := parsePattern(pattern)
		if err != nil {
			return
		}
		want, err := path.Match(pattern, s)
		if err != nil {
			t.Fatalf("%q is taken and is none: %v", pattern, err)
		}
		// path.Match lets a * take a part of a character, and a ? the bytes that are left of it.
		split := want && strings.ContainsFunc(s, func(r rune) bool { return r >= utf8.RuneSelf })
		got := p.match(s)
		if got != want && !split {
			t.Fatalf("%q on %q: %v, path.Match says %v", pattern, s, got, want)
		}
		if got && !strings.HasPrefix(s, p.prefix()) {
			t.Fatalf("%q matches %q, which does not begin with %q", pattern, s, p.prefix())
		}
	})
}

func bound(name string, m *apiv1.BindingMatch) *Binding {
	return &Binding{Name: name, Version: 1, Spec: &apiv1.BindingSpec{Match: m, Policy: name}}
}

func index(t testing.TB, bindings ...*Binding) *Index {
	t.Helper()
	x, err := New(bindings)
	if err != nil {
		t.Fatal(err)
	}
	return x
}

func number(n uint32) *uint32 { return &n }

// TestPrecedence holds each rule of the order: of every pair the first wins, whatever its name, by the rule named.
func TestPrecedence(t *testing.T) {
	w := &apiv1.Workload{
		Image: "reg/nginx:1", Annotations: map[string]string{"a": "one", "b": "two"}, Labels: map[string]string{"l": "x", "m": "y"},
		Namespace: "edge", Unit: "nginx.service", Uid: number(1000), SmackLabel: "Web",
	}
	type match = apiv1.BindingMatch
	all := func() *match {
		return &match{
			Image: []string{"reg/nginx:1"}, Label: map[string]string{"l": "x", "m": "y"}, Namespace: []string{"edge"},
			Unit: []string{"nginx.service"}, Uid: []string{"1000"}, SmackLabel: []string{"Web"},
		}
	}
	after := func(k kind) *match { // all that comes after a kind
		m := all()
		if k >= image {
			m.Image = nil
		}
		if k >= label {
			m.Label = nil
		}
		if k >= namespace {
			m.Namespace = nil
		}
		if k >= unit {
			m.Unit = nil
		}
		if k >= uid {
			m.Uid = nil
		}
		return m
	}
	for _, c := range []struct {
		rule          string
		winner, loser *match
	}{
		{"annotation", &match{Annotation: map[string]string{"a": "*"}}, all()},
		{"annotation", &match{Annotation: map[string]string{"a": "*", "b": "*"}}, &match{Annotation: map[string]string{"a": "one"}}},
		{"annotation", &match{Annotation: map[string]string{"a": "one"}}, &match{Annotation: map[string]string{"b": "tw*"}}},
		{"annotation", &match{Annotation: map[string]string{"a": "on*"}}, &match{Annotation: map[string]string{"a": "o*"}}},
		{"image", &match{Image: []string{"*"}}, after(image)},
		{"image", &match{Image: []string{"*", "reg/nginx:1"}}, &match{Image: []string{"reg/nginx:*"}, Label: map[string]string{"l": "x"}}},
		{"image", &match{Image: []string{"reg/ngin?:*"}}, &match{Image: []string{"reg/*", "other"}}},
		{"label", &match{Label: map[string]string{"l": "*"}}, after(label)},
		{"namespace", &match{Namespace: []string{"*"}}, after(namespace)},
		{"unit", &match{Unit: []string{"*"}}, after(unit)},
		{"uid", &match{Uid: []string{"0-2000"}}, after(uid)},
		{"uid", &match{Uid: []string{"5", "1000"}}, &match{Uid: []string{"1000-1001"}}},
		{"uid", &match{Uid: []string{"1000-1001"}}, &match{Uid: []string{"999-1002"}}},
		{"smackLabel", &match{SmackLabel: []string{"Web"}}, &match{SmackLabel: []string{"W*"}}},
		{"smackLabel", &match{Namespace: []string{"edge"}, SmackLabel: []string{"*"}}, &match{Namespace: []string{"edge"}}},
	} {
		for _, names := range [][2]string{{"a", "b"}, {"b", "a"}} {
			x := index(t, bound(names[0], c.winner), bound(names[1], c.loser))
			got := x.Find(w)
			if len(got) != 2 || got[0].Binding.Name != names[0] || x.Best(w) != got[0].Binding {
				t.Errorf("%s: %v against %v: %v", c.rule, c.winner, c.loser, got)
				continue
			}
			if rule, reason := Why(got[0], got[1]); rule != c.rule || !strings.HasPrefix(reason, names[0]+" selects on ") {
				t.Errorf("%s: %v against %v: by %s, %s", c.rule, c.winner, c.loser, rule, reason)
			}
		}
	}
	got := index(t, bound("b", all()), bound("a", all())).Find(w)
	if rule, _ := Why(got[0], got[1]); rule != "name" || got[0].Binding.Name != "a" {
		t.Errorf("equal ones: %s by %s", got[0].Binding.Name, rule)
	}
	if want := "annotation image label namespace unit uid smackLabel name"; strings.Join(Precedence(), " ") != want {
		t.Errorf("%v, want %s", Precedence(), want)
	}
}

func TestMatch(t *testing.T) {
	type match = apiv1.BindingMatch
	w := &apiv1.Workload{Image: "nginx", Labels: map[string]string{"app": ""}, Uid: number(0)}
	for _, c := range []struct {
		m    *match
		want bool
	}{
		{&match{Image: []string{"a", "nginx"}}, true},
		{&match{Image: []string{"nginx"}, Namespace: []string{"*"}}, false}, // not known
		{&match{Unit: []string{"*"}}, false},
		{&match{SmackLabel: []string{"*"}}, false},
		{&match{Label: map[string]string{"app": "*"}}, true}, // there, and empty
		{&match{Label: map[string]string{"app": "?*"}}, false},
		{&match{Label: map[string]string{"other": "*"}}, false},
		{&match{Annotation: map[string]string{"app": "*"}}, false}, // another map
		{&match{Uid: []string{"0"}}, true},
		{&match{Uid: []string{"1-10"}}, false},
		{&match{Uid: []string{"0-100000"}}, true},
		{&match{Uid: []string{"5", "0-3", "0"}}, true},
	} {
		if got := index(t, bound("b", c.m)).Best(w) != nil; got != c.want {
			t.Errorf("%v: %v", c.m, got)
		}
	}
	if got := index(t, bound("b", &match{Uid: []string{"0-4294967294"}})).Find(&apiv1.Workload{Image: "x"}); len(got) > 0 {
		t.Error("a workload of no known user is of every user")
	}
	var none *Index
	if none.Best(w) != nil || none.Find(nil) != nil || index(t).Best(nil) != nil {
		t.Error("no Bindings match")
	}
	for _, m := range []*match{nil, {}, {Image: []string{""}}, {Uid: []string{"x"}}, {Label: map[string]string{"a": `\`}}} {
		if _, err := New([]*Binding{bound("b", m)}); err == nil || !strings.Contains(err.Error(), "binding b: ") {
			t.Errorf("%v: %v", m, err)
		}
	}
}

// TestIndexFindsAll compares the index with trying every Binding, on many of both.
func TestIndexFindsAll(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	pick := func(of ...string) string { return of[r.IntN(len(of))] }
	value := func() string { return pick("a", "ab", "abc", "b", "ba/a", "ca") }
	pattern := func() string { return pick("a", "ab", "a*", "*a", "ab*", "?", "*", "a?c", "b*/a", `\a`) }
	some := func(f func() string) (out []string) {
		for range r.IntN(6) - 2 {
			out = append(out, f())
		}
		return out
	}
	pairs := func(f func() string) map[string]string {
		out := map[string]string{}
		for range r.IntN(5) - 2 {
			out[pick("k", "l", "m")] = f()
		}
		return out
	}
	users := func() string { return pick("0", "1", "0-1", "1-40", "2-3", "7") }
	var bindings []*Binding
	for i := 0; len(bindings) < 300; i++ {
		b := bound(fmt.Sprintf("b%d", i), &apiv1.BindingMatch{
			Annotation: pairs(pattern), Image: some(pattern), Label: pairs(pattern), Namespace: some(pattern), Unit: some(pattern), Uid: some(users), SmackLabel: some(pattern),
		})
		if _, err := newRule(b); err == nil {
			bindings = append(bindings, b)
		}
	}
	x := index(t, bindings...)
	found := 0
	for range 1000 {
		w := &apiv1.Workload{Image: value(), Annotations: pairs(value), Labels: pairs(value), Namespace: value(), Unit: pick("", value()), SmackLabel: pick("", value())}
		if r.IntN(2) == 0 {
			w.Uid = number(uint32(r.IntN(10)))
		}
		var want []*Match
		for _, b := range bindings {
			rule, err := newRule(b)
			if err != nil {
				t.Fatal(err)
			}
			if s, ok := rule.match(w); ok {
				want = append(want, &Match{b, s})
			}
		}
		slices.SortFunc(want, better)
		got := x.Find(w)
		if !slices.EqualFunc(got, want, func(a, b *Match) bool { return *a == *b }) {
			t.Fatalf("%v: %d found, want %d", w, len(got), len(want))
		}
		if best := x.Best(w); len(want) == 0 && best != nil || len(want) > 0 && best != want[0].Binding {
			t.Fatalf("%v: best %v", w, best)
		}
		found += len(got)
	}
	if found == 0 {
		t.Error("nothing was found at all")
	}
}

func TestNear(t *testing.T) {
	type match = apiv1.BindingMatch
	w := &apiv1.Workload{Image: "nginx:1", Labels: map[string]string{"app": "shop"}, Namespace: "edge", Uid: number(5)}
	for _, c := range []struct {
		m            *match
		rule, reason string // "" for none
	}{
		{&match{Image: []string{"nginx:*"}}, "", ""}, // matches
		{&match{Image: []string{"redis"}}, "", ""},   // nothing in common
		{&match{Image: []string{"redis"}, Namespace: []string{"edge"}}, "image", `the image is "nginx:1"`},
		{&match{Image: []string{"redis"}, Namespace: []string{"core"}}, "", ""}, // two
		{&match{Label: map[string]string{"app": "blog"}}, "label", `label "app" is "shop"`},
		{&match{Label: map[string]string{"other": "x"}}, "", ""},
		{&match{Label: map[string]string{"other": "x", "app": "*"}}, "label", `there is no label "other"`},
		{&match{Annotation: map[string]string{"a": "x"}, Image: []string{"*"}}, "annotation", `there is no annotation "a"`},
		{&match{Unit: []string{"*"}, Image: []string{"*"}}, "unit", "the unit is not known"},
		{&match{Uid: []string{"6-9"}, Image: []string{"*"}}, "uid", "the user is 5"},
		{&match{Uid: []string{"6-9"}}, "", ""},
		{&match{SmackLabel: []string{"Web"}, Uid: []string{"5"}}, "smackLabel", "the Smack label is not known"},
	} {
		got := index(t, bound("b", c.m)).Near(w)
		switch {
		case c.rule == "" && len(got) > 0:
			t.Errorf("%v: %+v", c.m, got[0])
		case c.rule != "" && (len(got) != 1 || got[0].Rule != c.rule || got[0].Reason != c.reason || got[0].Binding.Name != "b"):
			t.Errorf("%v: %v, want %s: %s", c.m, got, c.rule, c.reason)
		}
	}
	var none *Index
	if len(none.Near(w)) > 0 || len(index(t, bound("b", &match{Image: []string{"x"}})).Near(nil)) > 0 {
		t.Error("near misses of nothing")
	}
	long := &apiv1.Workload{Image: strings.Repeat("x", 1000), Namespace: "edge"}
	if got := index(t, bound("b", &match{Image: []string{"y"}, Namespace: []string{"edge"}})).Near(long); len(got) != 1 || len(got[0].Reason) > 300 {
		t.Errorf("%v", got)
	}
}

// TestMemo: what is remembered for a value is what trying each rule gives, also when there is too much to remember.
func TestMemo(t *testing.T) {
	var all []*Binding
	for i := range 3 * memoFrom {
		all = append(all, bound(fmt.Sprintf("b%d", i), &apiv1.BindingMatch{Image: []string{fmt.Sprintf("*/app-%d:*", i), "*-x"}, Namespace: []string{"*", "a"}}))
	}
	all = append(all, bound("empty", &apiv1.BindingMatch{Annotation: map[string]string{"": "*"}}))
	remembers := index(t, all...)
	for round := range 2 {
		for i := range 2 * memoMost {
			w := &apiv1.Workload{Image: fmt.Sprintf("r/app-%d:%d", i%(4*memoFrom), i), Namespace: "n", Annotations: map[string]string{"": "v"}}
			if i%7 == 0 {
				w.Image += strings.Repeat("y", memoValue)
			}
			want := "empty"
			if n := i % (4 * memoFrom); n < 3*memoFrom {
				// An annotation goes before an image.
				w.Annotations, want = nil, fmt.Sprintf("b%d", n)
			}
			if got := remembers.Best(w); got == nil || got.Name != want {
				t.Fatalf("round %d, %s: %v, want %s", round, w.GetImage(), got, want)
			}
		}
	}
	if n := remembers.facts[fact{kind: image}].memo.n.Load(); n > memoMost {
		t.Errorf("%d values are remembered", n)
	}
}

func BenchmarkBest(b *testing.B) {
	var all []*Binding
	for i := range 200 {
		all = append(all, bound(fmt.Sprintf("b%d", i), &apiv1.BindingMatch{Image: []string{fmt.Sprintf("*/app-%d:*", i)}}))
	}
	x := index(b, all...)
	w := &apiv1.Workload{Image: "registry.example/team-3/app-123:1.2", Namespace: "edge", Labels: map[string]string{"app": "a", "team": "b"}, Annotations: map[string]string{"c": "d"}}
	b.ReportAllocs()
	for b.Loop() {
		x.Best(w)
	}
}
