package smack

import (
	"math/rand/v2"
	"strings"
	"testing"
)

// The answers of access2 on a kernel.
func TestDecideAsTheKernel(t *testing.T) {
	s, _, err := ParseRules("f", []byte("As Ob r\nAw Ob w\nAx Ob rx\nNone Ob -\nAb Ob rb\nAs _ w\nAl _ rl\n* Ob rwxatl\n? Ob r\nAt Ob t\n"))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		subject, object, access string
		unconfined              string
		allowed                 bool
		reason                  Reason
	}{
		{"As", "Ob", "r", "", true, ByRule},
		{"As", "Ob", "rw", "", false, RuleLacks},
		{"As", "Ob", "-", "", true, ByRule},
		{"None", "Ob", "-", "", false, EmptyRule},
		{"None", "Ob", "r", "", false, EmptyRule},
		{"Nope", "Ob", "-", "", false, NoRule},
		{"Aw", "Ob", "l", "", true, ByRule},
		{"Aw", "Ob", "wl", "", true, ByRule},
		{"As", "Ob", "l", "", false, RuleLacks},
		{"Ax", "Ob", "rx", "", true, ByRule},
		{"At", "Ob", "t", "", true, ByRule},

		{"As", "_", "r", "", true, FloorObject},
		{"As", "_", "x", "", true, FloorObject},
		{"As", "_", "rx", "", true, FloorObject},
		{"As", "_", "l", "", true, FloorObject},
		{"As", "_", "rl", "", false, RuleLacks},
		{"As", "_", "xl", "", false, RuleLacks},
		{"As", "_", "w", "", true, ByRule},
		{"As", "_", "-", "", true, FloorObject},
		{"Al", "_", "rl", "", true, ByRule},
		{"Other", "_", "rl", "", false, NoRule},
		{"^", "Ob", "r", "", true, HatSubject},
		{"^", "Ob", "rx", "", true, HatSubject},
		{"^", "Ob", "l", "", true, HatSubject},
		{"^", "Ob", "rl", "", false, NoRule},
		{"^", "Ob", "w", "", false, NoRule},
		{"As", "^", "r", "", false, NoRule},
		{"^", "*", "w", "", true, StarObject},
		{"*", "*", "r", "", false, StarSubject},
		{"*", "@", "r", "", false, StarSubject},
		{"*", "Ob", "r", "", false, StarSubject},
		{"*", "_", "r", "", false, StarSubject},
		{"As", "*", "rwxatl", "", true, StarObject},
		{"As", "@", "rwxatl", "", true, WebLabel},
		{"@", "Ob", "w", "", true, WebLabel},
		{"@", "*", "w", "", true, WebLabel},
		{"As", "As", "rwxatl", "", true, SameLabel},
		{"?", "?", "w", "", true, SameLabel},
		{"_", "_", "rwxatl", "", true, SameLabel},
		{"?", "Ob", "r", "", true, ByRule},
		{"?", "Ob", "w", "", false, RuleLacks},
		{"As", "?", "r", "", false, NoRule},

		{"Ab", "Ob", "r", "", true, ByBringupRule},
		{"Ab", "Ob", "b", "", true, ByBringupRule},
		{"Ab", "Ob", "w", "", false, RuleLacks},
		{"As", "Ob", "w", "Ob", true, UnconfinedObject},
		{"As", "Ob", "w", "As", true, UnconfinedSubject},
		{"As", "Ob", "r", "As", true, ByRule},
		{"*", "Ob", "w", "*", true, UnconfinedSubject},
		{"*", "Ob", "w", "Ob", true, UnconfinedObject},
		{"As", "Ob", "w", "Other", false, RuleLacks},
	} {
		want, err := ParseAccess(c.access)
		if err != nil {
			t.Fatal(err)
		}
		q := Query{c.subject, c.object, want}
		d := s.Decide(q, Kernel{Bringup: true, Unconfined: c.unconfined})
		if d.Allowed != c.allowed || d.Reason != c.reason {
			t.Errorf("%s %s %s (unconfined %q): %s (%s), want %v by %s", c.subject, c.object, c.access, c.unconfined, d, d.Reason, c.allowed, c.reason)
		}
		logged := c.reason == ByBringupRule || c.unconfined != "" && c.allowed && c.reason != ByRule
		if d.Logged != logged {
			t.Errorf("%s %s %s: logged %v", c.subject, c.object, c.access, d.Logged)
		}
		// Without bring-up neither b nor the unconfined label means anything.
		plain := s.Decide(q, Kernel{Unconfined: c.unconfined})
		if plain.Logged || plain.Allowed != (c.allowed && c.reason != UnconfinedObject && c.reason != UnconfinedSubject) {
			t.Errorf("%s %s %s without bring-up: %s", c.subject, c.object, c.access, plain)
		}
	}
}

func TestDecideSentences(t *testing.T) {
	p := layered(t)
	p.Settings.Unconfined = "Lab"
	for _, c := range []struct {
		subject, object string
		want            Access
		text            string
	}{
		{"App", "Data", Read, "allowed: by the rule App Data rxl"},
		{"App", "Data", Write, "denied: the rule App Data rxl lacks w; layer ceiling refuses w"},
		{"App", "Log", Append, "denied: the rule for App Log gives nothing; layer ceiling refuses a (it has no rule for the pair)"},
		{"App", "Nope", Read | Append, "denied: no rule for App Nope; layer platform refuses ra (it has no rule for the pair), layer ceiling refuses ra (it has no rule for the pair)"},
		{"App", "Off", Read, "denied: the rule for App Off gives nothing; layer ceiling refuses r"},
		{"Web", "Data", Lock, "allowed: by the rule Web Data w, in which w implies l"},
		{"App", "_", Read | Lock, "denied: no rule for App _; read and execute, and lock, are granted by the labels one at a time, not together; layer platform refuses rl (it has no rule for the pair), layer ceiling refuses rl (it has no rule for the pair)"},
		{"*", "Data", Read, "denied: the subject * may do nothing"},
		{"Lab", "Data", Read, "allowed: the subject Lab is unconfined, the kernel logs it; else denied: no rule for Lab Data; layer platform refuses r (it has no rule for the pair), layer ceiling refuses r (it has no rule for the pair)"},
	} {
		if got := p.Decide(Query{c.subject, c.object, c.want}, true).String(); got != c.text {
			t.Errorf("%s %s %s:\n%s, want\n%s", c.subject, c.object, c.want, got, c.text)
		}
	}
	for r := StarSubject; r <= UnconfinedSubject; r++ {
		if strings.HasPrefix(r.String(), "reason_") {
			t.Errorf("reason %d has no name", r)
		}
	}
	if Reason(0).String() != "reason_0" || Reason(200).String() != "reason_200" {
		t.Error("an unknown reason has a name")
	}
}

func TestDecideAllocatesNothing(t *testing.T) {
	p := layered(t)
	s := p.Effective()
	for _, q := range []Query{{"App", "Data", Read}, {"App", "_", Read}, {"App", "Nope", Read}} {
		if n := testing.AllocsPerRun(100, func() { s.Decide(q, Kernel{}) }); n != 0 {
			t.Errorf("%v: %v allocations", q, n)
		}
	}
}

// The answer of a policy is the AND of what each layer alone answers, wherever
// rules decide; and what goes into the kernel answers the same.
func TestDecideIsTheAndOfLayers(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	labels := []string{"A", "B", "C", "_", "^", "*", "@", "?"}
	handled := []Access{AllAccess, Read | Write | Lock, Read | Execute, Write | Lock | Append | Bringup, Write}
	for range 300 {
		b := NewBuilder("")
		var alone []*Builder
		for i := range 1 + rng.IntN(3) {
			name, h := string(rune('a'+i)), handled[rng.IntN(len(handled))]
			single := NewBuilder("")
			ls := []*LayerBuilder{b.Layer(name, h), single.Layer(name, h)}
			alone = append(alone, single)
			for range rng.IntN(20) {
				s, o := labels[rng.IntN(len(labels))], labels[rng.IntN(len(labels))]
				allow, deny := Access(rng.IntN(128))&h, Access(rng.IntN(128))&h
				modify := rng.IntN(3) == 0
				for _, l := range ls {
					var err error
					if modify {
						err = l.Modify(Place{}, s, o, allow, deny)
					} else {
						err = l.Set(Place{}, s, o, allow)
					}
					if err != nil {
						t.Fatal(err)
					}
				}
			}
		}
		p, _, err := b.Build()
		if err != nil {
			t.Fatal(err)
		}
		set, all := p.Effective(), p.handled()
		live := set.Live()
		for range 200 {
			q := Query{labels[rng.IntN(len(labels))], labels[rng.IntN(len(labels))], Access(rng.IntN(128))}
			d, s := p.Decide(q, true), set.Decide(q, Kernel{Bringup: true})
			if d.Allowed != s.Allowed || d.Reason != s.Reason || d.Rule != s.Rule {
				t.Fatalf("%v: policy %s, its rules %s", q, d, s)
			}
			if l := live.Decide(q, Kernel{Bringup: true}); l.Allowed != s.Allowed {
				t.Fatalf("%v: %s, without dead rules %s", q, s, l)
			}
			if (len(d.Refused) > 0) != (d.Reason == RuleLacks || (d.Reason == NoRule || d.Reason == EmptyRule) && q.Access&all != 0) && q.Access&^all == 0 {
				t.Fatalf("%v: %s names the layers %v", q, d, d.Refused)
			}
			switch d.Reason {
			case NoRule, EmptyRule, RuleLacks, ByRule, ByBringupRule:
			default:
				continue
			}
			asked := q.Access
			if all&Lock == 0 && asked&Lock != 0 {
				asked = asked&^Lock | Write // the kernel's implication is left
			}
			want := asked&^all == 0
			for _, single := range alone {
				one, _, err := single.Build()
				if err != nil {
					t.Fatal(err)
				}
				// A layer answers for the letters it handles.
				rule, _ := one.Effective().Lookup(q.Subject, q.Object)
				want = want && (asked&one.Layers[0].Handled)&^rule.closed() == 0
			}
			if q.Access != 0 && d.Allowed != want {
				t.Fatalf("%v: %s, the layers one by one say %v", q, d, want)
			}
		}
	}
}
