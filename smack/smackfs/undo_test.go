package smackfs

import (
	"net/netip"
	"testing"

	"policyd.dev/policyd/smack"
)

// TestUndoSettings: after any part of a change, everything is as before, but for what somebody else did since.
func TestUndoSettings(t *testing.T) {
	two := uint8(2)
	want := &smack.Settings{
		Ambient: "Net", Logging: &two, Onlycap: []string{"_", "System"},
		Netlabel: []smack.Netlabel{{Prefix: netip.MustParsePrefix("10.0.0.0/8"), Label: "Ten"}},
		IPv6Host: []smack.IPv6Host{{Prefix: netip.MustParsePrefix("fe80::/16"), Label: "Link"}},
		Cipso:    []smack.Cipso{{Label: "Secret", Level: 7, Categories: []int{1, 2}}},
	}
	writes := len(want.Writes())
	for n := range writes + 1 {
		m := NewModel(ModelKernel{})
		before, err := ReadSettings(m)
		if err != nil {
			t.Fatal(err)
		}
		plan, err := ApplySettings(t.Context(), m, want, nil, SettingsOptions{DryRun: true})
		if err != nil {
			t.Fatal(err)
		}
		for _, w := range want.Writes()[:n] {
			if err := writeFile(m, w.File, w.Data); err != nil {
				t.Fatal(err)
			}
		}
		stays, err := UndoSettings(m, plan.Changes)
		if err != nil {
			t.Fatalf("after %d writes: %v", n, err)
		}
		now, err := ReadSettings(m)
		if err != nil {
			t.Fatal(err)
		}
		left := map[Entry]bool{}
		for _, e := range now {
			left[e] = true
		}
		for _, e := range before {
			if !left[e] {
				t.Errorf("after %d writes: %s is not back", n, e)
			}
			delete(left, e)
		}
		for _, e := range stays {
			if e.File != fileNetlabel || !left[e] {
				t.Errorf("after %d writes: %s is said to stay", n, e)
			}
			delete(left, e)
		}
		for e := range left {
			t.Errorf("after %d writes: %s is left", n, e)
		}
	}

	m := NewModel(ModelKernel{})
	plan, err := ApplySettings(t.Context(), m, &smack.Settings{Ambient: "Net"}, nil, SettingsOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := writeFile(m, fileAmbient, []byte("Other")); err != nil {
		t.Fatal(err)
	}
	if _, err := UndoSettings(m, plan.Changes); err != nil {
		t.Fatal(err)
	}
	if now, _ := readFile(m, fileAmbient); string(now[:5]) != "Other" {
		t.Errorf("ambient, which another has set, is %q", now)
	}
}
