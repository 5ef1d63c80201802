package differential_test

import (
	"math/bits"
	"regexp"
	"slices"
	"strings"
	"testing"

	"policyd.dev/policyd/enforce/profile"
)

var objects = regexp.MustCompile(`"[^"]*"|/\S+`)

// kindOf is a failure without what it is about, so that shrinking does not end
// at another failure.
func kindOf(failure string) string {
	failure, _, _ = strings.Cut(failure, " (")
	return objects.ReplaceAllString(failure, "")
}

// shrink takes from a failing scenario whatever it fails in the same way without.
func shrink(h *host, sc *scenario) (*scenario, report) {
	sc.random = nil
	best := sc.clone()
	result := run(h, best)
	if result.failure == "" {
		return sc, result // it does not fail again
	}
	kind := kindOf(result.failure)
	tries := 3000
	try := func(change func(sc *scenario)) bool {
		if tries--; tries < 0 {
			return false
		}
		next := best.clone()
		change(next)
		if len(next.layers) == 0 {
			return false
		}
		if r := run(h, next); r.failure != "" && r.broken == nil && kindOf(r.failure) == kind {
			best, result = next, r
			return true
		}
		return false
	}
	for better := true; better && tries > 0; {
		better = false
		each := func(count func() int, change func(sc *scenario, i int)) {
			for i := count() - 1; i >= 0; i-- {
				if i < count() && try(func(sc *scenario) { change(sc, i) }) {
					better = true
				}
			}
		}
		each(func() int { return len(best.steps) - 1 }, func(sc *scenario, i int) { sc.steps = slices.Delete(sc.steps, i, i+1) })
		each(func() int { return len(best.layers) }, (*scenario).dropLayer)
		each(func() int { return len(best.rules) }, func(sc *scenario, i int) { sc.rules = slices.Delete(sc.rules, i, i+1) })
		each(func() int { return len(best.ports) }, func(sc *scenario, i int) { sc.ports = slices.Delete(sc.ports, i, i+1) })
		each(func() int { return len(best.tree) }, func(sc *scenario, i int) { sc.tree = slices.Delete(sc.tree, i, i+1) })
		if best.flatten && try(func(sc *scenario) { sc.flatten = false }) {
			better = true
		}
		if n := len(best.steps) - 1; best.steps[n].by != "" && try(func(sc *scenario) { sc.steps[n].by = "" }) {
			better = true
		}
		if shrinkMasks(best, try) {
			better = true
		}
	}
	return best, result
}

// shrinkMasks takes single rights from rules and from what layers handle.
func shrinkMasks(best *scenario, try func(func(*scenario)) bool) (better bool) {
	masks := func(sc *scenario) (all []*profile.Access) {
		for i := range sc.rules {
			all = append(all, &sc.rules[i].access)
		}
		for i := range sc.ports {
			all = append(all, &sc.ports[i].access)
		}
		for i := range sc.layers {
			all = append(all, &sc.layers[i].FS, &sc.layers[i].Net, &sc.layers[i].Scope)
		}
		return all
	}
	for i, m := range masks(best) {
		for left := *m; left != 0; left &= left - 1 {
			bit := profile.Access(1) << bits.TrailingZeros32(uint32(left))
			if try(func(sc *scenario) { *masks(sc)[i] &^= bit; sc.onlyHandled() }) {
				better = true
				break // the scenario is another one now
			}
		}
		if better {
			return true
		}
	}
	return false
}

// onlyHandled takes from rules what their layer no longer handles.
func (sc *scenario) onlyHandled() {
	for i := range sc.rules {
		sc.rules[i].access &= sc.layers[sc.rules[i].layer].FS
	}
	for i := range sc.ports {
		sc.ports[i].access &= sc.layers[sc.ports[i].layer].Net
	}
	sc.rules = slices.DeleteFunc(sc.rules, func(r rule) bool { return r.access == 0 })
	sc.ports = slices.DeleteFunc(sc.ports, func(r portRule) bool { return r.access == 0 })
}

func (sc *scenario) dropLayer(i int) {
	sc.layers = slices.Delete(sc.layers, i, i+1)
	sc.rules = slices.DeleteFunc(sc.rules, func(r rule) bool { return r.layer == i })
	sc.ports = slices.DeleteFunc(sc.ports, func(r portRule) bool { return r.layer == i })
	for k := range sc.rules {
		if sc.rules[k].layer > i {
			sc.rules[k].layer--
		}
	}
	for k := range sc.ports {
		if sc.ports[k].layer > i {
			sc.ports[k].layer--
		}
	}
	for k := range sc.tree {
		if sc.tree[k].stage > i {
			sc.tree[k].stage--
		}
	}
	for k := range sc.steps {
		switch n := sc.steps[k].shared; {
		case n > i:
			sc.steps[k].shared--
		case n < branch-i:
			sc.steps[k].shared++
		}
	}
}

func (sc *scenario) clone() *scenario {
	c := *sc
	c.tree, c.layers, c.rules = slices.Clone(sc.tree), slices.Clone(sc.layers), slices.Clone(sc.rules)
	c.ports, c.steps = slices.Clone(sc.ports), slices.Clone(sc.steps)
	return &c
}

// shrinks holds that what does not matter goes: the scenario is wrong about its
// last step.
func shrinks(t *testing.T, h *host) {
	sc, err := parse(`tree a/ a/f b/ c d=link:c
layer fs=read_file|write_file|refer net=bind_tcp
layer fs=make_reg|remove_file
layer fs=read_file|execute scope=signal
rule 1 . read_file|refer
rule 1 a write_file
rule 2 . make_reg|remove_file
rule 3 a execute
port 1 p0 bind_tcp
open c w
bind tcp p0 six
rename a/f a/g
open a/g r = 0 # wrong: the third layer does not grant it
`)
	if err != nil {
		t.Fatal(err)
	}
	small, r := shrink(h, sc)
	const want = "tree a/ a/f\nlayer fs=read_file\nrename a/f a/g\nopen a/g r = 0 # wrong: the third layer does not grant it\n"
	if got := small.String(); got != want || r.failure == "" {
		t.Errorf("%s\n%s", r.failure, got)
	}
	if !strings.Contains(r.text, `{op: "open ${root}/a/g r", verdict: deny, errno: EACCES, reason: the kernel answers EACCES}`) {
		t.Errorf("as a PolicyTest:\n%s", r.text)
	}
}
