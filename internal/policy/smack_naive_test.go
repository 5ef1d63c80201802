package policy

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"policyd.dev/policyd/smack"
)

// The tests of this file hold the compiler against what docs/smack.md says, written down as simply as it can be: letters are
// strings, rules are applied one after the other to maps, and nothing of package smack decides anything.

const naiveLetters = "rwxatlb"

type naivePair struct{ subject, object string }

type naiveLayer struct {
	handles string
	access  map[naivePair]string // of pairs that have a rule
}

// apply is one rule; deny is "" for one of 3 columns.
func (l *naiveLayer) apply(p naivePair, allow string, modify bool, deny string) {
	was, known := l.access[p]
	if modify && !known && strings.Trim(allow+deny, "-") == "" {
		return
	}
	now := ""
	for _, c := range naiveLetters {
		in := strings.ContainsRune(allow, c)
		if modify {
			in = (in || strings.ContainsRune(was, c)) && !strings.ContainsRune(deny, c)
		}
		if in {
			now += string(c)
		}
	}
	l.access[p] = now
}

// naiveAccess is what the layers let through together, with what w implies; has is whether there is a rule.
func naiveAccess(layers []*naiveLayer, p naivePair) (access string, has bool) {
	for _, c := range naiveLetters {
		in, decided := true, false
		for _, l := range layers {
			given, known := l.access[p]
			has = has || known
			if strings.Contains(given, "w") {
				given += "l"
			}
			if strings.ContainsRune(l.handles, c) {
				decided = true
				in = in && strings.ContainsRune(given, c)
			}
		}
		if in && decided {
			access += string(c)
		}
	}
	if strings.Contains(access, "w") && !strings.Contains(access, "l") {
		access += "l"
	}
	return access, has
}

// naiveDecide is smk_access without bring-up, as docs/smack.md lists it.
func naiveDecide(layers []*naiveLayer, p naivePair, want string) bool {
	within := func(letters string) bool { return strings.Trim(want, letters) == "" }
	switch {
	case p.subject == "*":
		return false
	case p.subject == "@", p.object == "@", p.object == "*", p.subject == p.object:
		return true
	case (p.object == "_" || p.subject == "^") && (within("rx") || within("l")):
		return true
	}
	access, _ := naiveAccess(layers, p)
	return access != "" && within(access)
}

// naivePolicy makes a document and what it means.
func naivePolicy(r *rand.Rand) (string, []*naiveLayer) {
	labels := []string{"A", "B", "b", "App::1", "App::2", "_", "^", "*", "@", "?", "#x", ";y", "~T~", "$", "a#b", strings.Repeat("L", 255)}
	pick := func() string { return labels[r.IntN(len(labels))] }
	var out strings.Builder
	out.WriteString("apiVersion: policyd/v1\nkind: SmackPolicy\nmetadata: {name: n}\nspec:\n  variables: {app: [App::1, App::2], acc: [r, wx]}\n  layers:\n")
	var layers []*naiveLayer
	for range 1 + r.IntN(3) {
		handles := []string{"rwxatlb", "rwxatlb", "rwl", "w", "rx", "RWA-B", "t"}[r.IntN(7)]
		l := &naiveLayer{handles: strings.ToLower(handles), access: map[naivePair]string{}}
		layers = append(layers, l)
		letters := func() string {
			s := ""
			for _, c := range naiveLetters {
				if strings.ContainsRune(l.handles, c) && r.IntN(2) == 0 {
					s = string(c) + s
				}
			}
			switch {
			case s == "":
				return "-"
			case r.IntN(4) == 0:
				return strings.ToUpper(s) + "-" + s[:1]
			}
			return s
		}
		lower := strings.ToLower
		fmt.Fprintf(&out, "    - handles: %s\n      rules: |\n        # a comment\n", handles)
		for range r.IntN(12) {
			p, allow := naivePair{pick(), pick()}, letters()
			sep := []string{" ", "\t", "  "}[r.IntN(3)]
			line := p.subject + sep + p.object + sep + allow
			modify := r.IntN(3) == 0
			deny := ""
			if modify {
				deny = letters()
				line += sep + deny
			}
			if p.subject[0] != '#' { // else it is a comment
				l.apply(p, lower(allow), modify, lower(deny))
			}
			out.WriteString("        " + line + []string{"", " ", "\t"}[r.IntN(3)] + "\n")
		}
		out.WriteString("      list:\n        - {subject: A, object: \"#x\", allow: \"-\", deny: \"-\"}\n")
		for range r.IntN(6) {
			p, allow := naivePair{pick(), pick()}, letters()
			fmt.Fprintf(&out, "        - {subject: %q, object: %q, ", p.subject, p.object)
			switch r.IntN(3) {
			case 0:
				fmt.Fprintf(&out, "access: %q}\n", allow)
				l.apply(p, lower(allow), false, "")
			case 1:
				fmt.Fprintf(&out, "deny: %q}\n", allow)
				l.apply(p, "", true, lower(allow))
			default:
				deny := letters()
				fmt.Fprintf(&out, "allow: %q, deny: %q}\n", allow, deny)
				l.apply(p, lower(allow), true, lower(deny))
			}
		}
		if !strings.Contains(l.handles, "r") || !strings.Contains(l.handles, "w") || !strings.Contains(l.handles, "x") {
			continue
		}
		out.WriteString("      templates:\n        - rules: |\n            ${app} B ${acc}\n            $$ ${app} r ${acc}\n            ${app} ${app} w\n            Pre::${app}.x ~T~ x\n")
		for _, app := range []string{"App::1", "App::2"} {
			for _, acc := range []string{"r", "wx"} {
				l.apply(naivePair{app, "B"}, acc, false, "")
			}
		}
		for _, app := range []string{"App::1", "App::2"} {
			for _, acc := range []string{"r", "wx"} {
				l.apply(naivePair{"$", app}, "r", true, acc)
			}
		}
		for _, app := range []string{"App::1", "App::2"} {
			l.apply(naivePair{app, app}, "w", false, "")
			l.apply(naivePair{"Pre::" + app + ".x", "~T~"}, "x", false, "")
		}
	}
	return out.String(), layers
}

func naivePairs(layers ...*naiveLayer) []naivePair {
	all := map[naivePair]bool{}
	for _, l := range layers {
		for p := range l.access {
			all[p] = true
		}
	}
	return slices.SortedFunc(maps.Keys(all), func(a, b naivePair) int {
		return strings.Compare(a.subject+" "+a.object, b.subject+" "+b.object)
	})
}

// naiveText gives the letters in the kernel's order.
func naiveText(access string) string {
	out := ""
	for _, c := range naiveLetters {
		if strings.ContainsRune(access, c) {
			out += string(c)
		}
	}
	if out == "" {
		return "-"
	}
	return out
}

// naiveClosed adds what w implies.
func naiveClosed(a smack.Access) string {
	if a&smack.Write != 0 {
		a |= smack.Lock
	}
	return a.String()
}

func TestSmackAgainstTheDocument(t *testing.T) {
	r := rand.New(rand.NewPCG(4, 4))
	var before *smack.Policy
	var layersBefore []*naiveLayer
	for n := range 400 {
		text, layers := naivePolicy(r)
		c := compiledImport(t, []byte(text))
		p := c.Policy
		set := p.Effective()
		rules := 0
		for _, pair := range naivePairs(layers...) {
			want, has := naiveAccess(layers, pair)
			got, ok := set.Lookup(pair.subject, pair.object)
			if has != ok || naiveText(want) != naiveClosed(got) {
				t.Fatalf("policy %d: %v is %s (%v), the document says %s (%v)\n%s", n, pair, got, ok, naiveText(want), has, text)
			}
			rules++
		}
		if set.Len() != rules {
			t.Fatalf("policy %d: %d rules, the document says %d\n%s", n, set.Len(), rules, text)
		}
		pairs := append(naivePairs(layers...), naivePair{"A", "B"})
		live := set.Live()
		for range 200 {
			pair := pairs[r.IntN(len(pairs))]
			if r.IntN(3) == 0 {
				pair.object = pairs[r.IntN(len(pairs))].subject
			}
			access := smack.Access(1 + r.IntN(127))
			want := naiveDecide(layers, pair, access.String())
			q := smack.Query{Subject: pair.subject, Object: pair.object, Access: access}
			if d := p.Decide(q, false); d.Allowed != want {
				t.Fatalf("policy %d: %v %s: %s, the document says %v\n%s", n, pair, access, d, want, text)
			}
			if d := live.Decide(q, smack.Kernel{}); d.Allowed != want {
				t.Fatalf("policy %d: %v %s: %s without dead rules, the document says %v\n%s", n, pair, access, d, want, text)
			}
		}
		encoded := p.Encode()
		back, err := smack.Decode(encoded)
		if err != nil || string(back.Encode()) != string(encoded) {
			t.Fatalf("policy %d: decoded: %v", n, err)
		}
		naiveExports(t, set)
		if before != nil {
			naiveDifference(t, before, p, layersBefore, layers)
		}
		before, layersBefore = p, layers
	}
}

// naiveDifference holds the semantic difference against the decisions of both.
func naiveDifference(t *testing.T, from, to *smack.Policy, layersFrom, layersTo []*naiveLayer) {
	t.Helper()
	changed := map[naivePair]smack.Change{}
	for _, c := range to.Difference(from).All() {
		changed[naivePair{c.Subject, c.Object}] = c
	}
	for _, p := range naivePairs(slices.Concat(layersFrom, layersTo)...) {
		differs := false
		for a := smack.Access(1); a <= smack.AllAccess; a++ {
			differs = differs || naiveDecide(layersFrom, p, a.String()) != naiveDecide(layersTo, p, a.String())
		}
		// The t of a rule on * or @ is no access, and counts.
		_, told := changed[p]
		if differs && !told || told && !differs && p.object != "*" && p.object != "@" {
			t.Fatalf("%v: decisions differ: %v, told: %v %v", p, differs, told, changed[p])
		}
		delete(changed, p)
	}
	if len(changed) > 0 {
		t.Fatalf("told of other pairs: %v", changed)
	}
}

// naiveExports exports and imports rules again.
func naiveExports(t *testing.T, s *smack.Set) {
	t.Helper()
	for dialect, export := range map[smack.Dialect]func(*smack.Set, *smack.Settings) ([]smack.File, []string){
		smack.DialectSystemd: smack.ExportSystemd, smack.DialectLibsmack: smack.ExportLibsmack,
	} {
		files, lost := export(s, &smack.Settings{})
		im, err := ImportSmack(files, smack.ImportOptions{Dialect: dialect}, "back")
		if err != nil {
			t.Fatalf("%s: %v", dialect, err)
		}
		got := compiledImport(t, im.Text).Policy.Effective()
		for _, c := range got.Difference(s).All() {
			long := len(c.Subject)+len(c.Object)+2+len(c.Old.String()) >= 254
			if dialect == smack.DialectLibsmack && c.New == c.Old&^smack.Bringup || dialect == smack.DialectSystemd && c.New == 0 && long {
				if len(lost) > 0 {
					continue
				}
			}
			t.Fatalf("%s: %v; lost %q", dialect, c, lost)
		}
	}
}
