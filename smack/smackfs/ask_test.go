package smackfs

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"

	"policyd.dev/policyd/internal/errs"
	"policyd.dev/policyd/smack"
)

// testAsk asks random queries on random rules: the kernel answers as package smack decides, for labels it knows.
func testAsk(t *testing.T, fs FS, k ModelKernel, queries int) {
	r := rand.New(rand.NewPCG(11, 11))
	builtin := []string{"_", "^", "*", "?", "@"}
	for round := range 4 {
		rules := randomRules(r, fmt.Sprintf("Ask%d", round), 25, 300, true)
		for _, b := range builtin { // rules on special labels, some of them dead
			for range 6 {
				other := append(builtin, fmt.Sprintf("Ask%d%d", round, r.IntN(25)))[r.IntN(6)]
				rules[b+" "+other], rules[other+" "+b] = smack.Access(r.IntN(128)), smack.Access(r.IntN(128))
			}
		}
		set := setOfMap(t, rules)
		rep := load(t, fs, set, nil, Options{Adopt: true})
		kernel := smack.Kernel{Bringup: k.Bringup}
		if k.Bringup && round%2 == 1 {
			kernel.Unconfined = set.Label(set.Labels() / 2)
			if _, err := ApplySettings(t.Context(), fs, &smack.Settings{Unconfined: kernel.Unconfined}, nil, SettingsOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		labels := slices.Clone(builtin)
		for i := range set.Labels() {
			labels = append(labels, set.Label(i))
		}
		pick := func() string { return labels[r.IntN(len(labels))] }
		wrong := 0
		for range queries / 4 {
			q := smack.Query{Subject: pick(), Object: pick(), Access: smack.Access(1 + r.IntN(127))}
			if r.IntN(2) == 0 { // one letter is allowed more often
				q.Access = 1 << r.IntN(7)
			}
			want := rep.Owned.Decide(q, kernel)
			got, err := ask(fs, q)
			if err != nil {
				t.Fatal(err)
			}
			if got != want.Allowed {
				if wrong++; wrong < 10 {
					t.Errorf("%s %s %s: the kernel says %v, we %v", q.Subject, q.Object, q.Access, got, want)
				}
			}
		}
		if k.Bringup {
			if _, err := ApplySettings(t.Context(), fs, &smack.Settings{ClearUnconfined: true}, nil, SettingsOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		load(t, fs, &smack.Set{}, rep.Owned, Options{})
	}

	load(t, fs, setOf(t, "AskA AskB r"), nil, Options{})
	for _, tc := range []struct {
		q       smack.Query
		allowed bool
		unknown []string
	}{
		{q: smack.Query{Subject: "AskA", Object: "AskB", Access: smack.Read}, allowed: true},
		{q: smack.Query{Subject: "AskA", Object: "AskB", Access: smack.Write}},
		{q: smack.Query{Subject: "*", Object: "AskB", Access: smack.Write}},
		{q: smack.Query{Subject: "AskNever", Object: "_", Access: smack.Read}, unknown: []string{"AskNever"}},
		{q: smack.Query{Subject: "AskNever", Object: "AskNever", Access: smack.Read}, unknown: []string{"AskNever"}},
		{q: smack.Query{Subject: "AskNever", Object: "AskNever2", Access: smack.Read}, unknown: []string{"AskNever", "AskNever2"}},
	} {
		a, err := Ask(fs, tc.q)
		if err != nil || a.Allowed != tc.allowed || !slices.Equal(a.Unknown, tc.unknown) {
			t.Errorf("%v: %v, %v", tc.q, a, err)
		}
	}
	for _, q := range []smack.Query{{}, {Subject: "A", Object: "B"}, {Subject: "A/x", Object: "B", Access: smack.Read}, {Subject: "A", Object: "-B", Access: smack.Read}} {
		if _, err := Ask(fs, q); !errors.Is(err, errs.ErrInvalid) {
			t.Errorf("%v: %v", q, err)
		}
	}
}

func TestAsk(t *testing.T) {
	for _, k := range []ModelKernel{{Old: true}, {Bringup: true}} {
		testAsk(t, NewModel(k), k, 40000)
	}
}

// queries is how many the kernels are asked: POLICYD_SMACK_QUERIES, or as many as a fast test takes.
func queries(t *testing.T) int { return fromEnv(t, "POLICYD_SMACK_QUERIES", 4000) }

// operations is how many the model and the kernels are given side by side: POLICYD_SMACK_OPERATIONS, or likewise.
func operations(t *testing.T) int { return fromEnv(t, "POLICYD_SMACK_OPERATIONS", 2000) }

func fromEnv(t *testing.T, name string, usual int) int {
	t.Helper()
	s := os.Getenv(name)
	if s == "" {
		return usual
	}
	n, err := strconv.Atoi(s)
	if err != nil {
		t.Fatal(err)
	}
	return n
}
