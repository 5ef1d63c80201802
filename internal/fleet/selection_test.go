package fleet

import (
	"errors"
	"fmt"
	"math"
	"testing"

	"pgregory.net/rapid"

	"policyd.dev/policyd/internal/errs"
)

func TestSelectionIsMonotone(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		salt, node := rapid.String().Draw(t, "salt"), rapid.String().Draw(t, "node")
		low := rapid.IntRange(0, Full).Draw(t, "low")
		high := rapid.IntRange(low, Full).Draw(t, "high")
		if Selected(salt, node, low) && !Selected(salt, node, high) {
			t.Fatal("a larger share drops a node")
		}
		if Selected(salt, node, 0) || !Selected(salt, node, Full) {
			t.Fatal("0 % are all, or 100 % are not")
		}
	})
}

const selectionNodes = 2000

// chosen is which of the nodes a salt chooses.
func chosen(salt string, basisPoints int) (nodes [selectionNodes]bool, n int) {
	for i := range nodes {
		if nodes[i] = Selected(salt, fmt.Sprintf("node-%04d.example.org", i), basisPoints); nodes[i] {
			n++
		}
	}
	return nodes, n
}

// sixSigma is six standard deviations of a binomial distribution: beyond it by
// chance once in a thousand million draws.
func sixSigma(n int, p float64) float64 { return 6 * math.Sqrt(float64(n)*p*(1-p)) }

func TestSelectionWithinBinomialBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		salt := rapid.String().Draw(t, "salt")
		bp := rapid.IntRange(1, Full-1).Draw(t, "percent")
		p := float64(bp) / Full
		if _, n := chosen(salt, bp); math.Abs(float64(n)-p*selectionNodes) > sixSigma(selectionNodes, p)+1 {
			t.Fatalf("%d of %d nodes at %s", n, selectionNodes, PercentText(bp))
		}
	})
}

// Two rollouts choose independently: of the nodes the one chooses, the other
// chooses its share, no more and no fewer.
func TestSelectionIndependentBetweenRollouts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		one, two := rapid.String().Draw(t, "one"), rapid.String().Draw(t, "two")
		if one == two {
			t.Skip("one rollout")
		}
		bp := rapid.IntRange(500, 9500).Draw(t, "percent")
		x, _ := chosen(one, bp)
		y, _ := chosen(two, bp)
		both := 0
		for i := range x {
			if x[i] && y[i] {
				both++
			}
		}
		p := float64(bp) / Full * float64(bp) / Full
		if math.Abs(float64(both)-p*selectionNodes) > sixSigma(selectionNodes, p)+1 {
			t.Fatalf("%d of %d nodes in both at %s", both, selectionNodes, PercentText(bp))
		}
	})
}

func TestDesired(t *testing.T) {
	p := testPointer()
	p.Rollout.Labels = map[string]string{"zone": "eu"}
	p.Rollout.Percent = Full
	for name, tc := range map[string]struct {
		labels  map[string]string
		want    string
		reached bool
	}{
		"labels fit":     {map[string]string{"zone": "eu", "more": "x"}, p.Digest, true},
		"another value":  {map[string]string{"zone": "us"}, p.Prev, false},
		"no such label":  {nil, p.Prev, false},
		"value is empty": {map[string]string{"zone": ""}, p.Prev, false},
	} {
		if got, reached, why := p.Desired("n1", tc.labels); got != tc.want || reached != tc.reached || why == "" {
			t.Errorf("%s: %s %t %q", name, got, reached, why)
		}
	}
	// A sticky rollout has the same first nodes as the one before; others have not.
	a, b := testPointer(), testPointer()
	b.Rollout.ID = "r8"
	if a.Salt() == b.Salt() {
		t.Error("two rollouts with one salt")
	}
	a.Rollout.Sticky, b.Rollout.Sticky = true, true
	if a.Salt() != b.Salt() {
		t.Error("sticky rollouts with two salts")
	}
}

func TestParsePercent(t *testing.T) {
	for in, want := range map[string]int{"1": 100, "100%": 10000, "2.5": 250, "0.01%": 1, "0": 0, "5": 500, "12.34": 1234} {
		if got, err := ParsePercent(in); err != nil || got != want {
			t.Errorf("%s: %d, %v", in, got, err)
		}
	}
	for _, in := range []string{"", "%", "101", "100.01", "-1", "+1", "1.", "1.234", "1e1", ".5", "1 %", "0x1", "9999", "٣"} {
		if got, err := ParsePercent(in); !errors.Is(err, errs.ErrInvalid) {
			t.Errorf("%q: %d, %v", in, got, err)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		bp := rapid.IntRange(0, Full).Draw(t, "basis points")
		if got, err := ParsePercent(PercentText(bp)); err != nil || got != bp {
			t.Fatalf("%d is %s is %d (%v)", bp, PercentText(bp), got, err)
		}
	})
}
