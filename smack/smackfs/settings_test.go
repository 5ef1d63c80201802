package smackfs

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"policyd.dev/policyd/internal/errs"
	"policyd.dev/policyd/smack"
)

func TestSettings(t *testing.T) {
	for _, k := range []ModelKernel{{Old: true}, {Bringup: true}} {
		t.Run(fmt.Sprintf("%+v", k), func(t *testing.T) { testSettings(t, NewModel(k).As(Root), k) })
	}
}

func num(n uint8) *uint8 { return &n }

func prefix(s string) netip.Prefix { return netip.MustParsePrefix(s) }

func every(k ModelKernel) *smack.Settings {
	s := &smack.Settings{
		DOI: 77, Direct: num(200), Mapped: num(201),
		Cipso:    []smack.Cipso{{Label: "SetA", Level: 9, Categories: []int{3, 1}}, {Label: "SetB", Level: 255}},
		Netlabel: []smack.Netlabel{{Prefix: prefix("10.77.0.0/16"), Label: "SetNet"}, {Prefix: prefix("10.78.0.1/32"), Label: "-CIPSO"}},
		IPv6Host: []smack.IPv6Host{{Prefix: prefix("fd77::/16"), Label: "SetNet6"}, {Prefix: prefix("fd78::1/128"), Label: "SetHost6"}},
		Ambient:  "SetAmbient", Syslog: "SetSyslog", PTrace: num(1), Logging: num(2),
		RelabelSelf: []string{"SetR2", "SetR1"}, Onlycap: []string{"_", "SetCap"},
	}
	if k.Bringup {
		s.Unconfined = "SetUnconfined"
	}
	return s
}

// testSettings runs on the model and on kernels.
func testSettings(t *testing.T, fs FS, k ModelKernel) {
	h := &hookFS{FS: fs}
	writes := 0
	h.hook = func(_ int, _ string, p []byte) ([]byte, error) {
		writes++
		return p, nil
	}
	shown := func() string {
		t.Helper()
		e, err := ReadSettings(fs)
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint(e)
	}
	apply := func(want, owned *smack.Settings, o SettingsOptions) *SettingsReport {
		t.Helper()
		writes = 0
		r, err := ApplySettings(t.Context(), h, want, owned, o)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	boot := shown()

	// Everything, then again; a dry run before.
	want := every(k)
	n := 15
	if k.Bringup {
		n++
	}
	if r := apply(want, nil, SettingsOptions{DryRun: true}); len(r.Changes) != n || writes != 0 || shown() != boot {
		t.Errorf("dry run: %d changes, want %d, %d writes", len(r.Changes), n, writes)
	}
	if r := apply(want, nil, SettingsOptions{}); len(r.Changes) != n || writes != n {
		t.Errorf("%d changes, %d writes, want %d", len(r.Changes), writes, n)
	}
	full := shown()
	for _, s := range []string{`doi "77"`, `direct "200"`, `cipso2 SetA "9/1,3"`, `netlabel 10.77.0.0/16 "SetNet"`, `ipv6host fd77::/16 "SetNet6"`, `onlycap "SetCap _"`, `relabel-self "SetR1 SetR2"`} {
		if !strings.Contains(full, s) {
			t.Errorf("%s is not among %s", s, full)
		}
	}
	if r := apply(want, want, SettingsOptions{}); r.Kept != n || writes != 0 {
		t.Errorf("again: %d kept, %d writes", r.Kept, writes)
	}

	// Every write fails in turn: what was before is put back.
	other := every(k)
	other.DOI, other.Direct, other.Cipso[0].Level, other.Ambient, other.PTrace = 78, num(190), 10, "SetAmbient2", num(0)
	other.Netlabel[0].Label, other.IPv6Host[0].Label, other.IPv6Host[1].Label, other.RelabelSelf = "SetNet2", "SetNet62", smack.IPv6Delete, []string{"SetR3"}
	other.Onlycap = []string{"_"}
	for fail := 0; ; fail++ {
		h.hook = func(_ int, _ string, p []byte) ([]byte, error) {
			if fail--; fail == -1 {
				return nil, unix.ENOMEM
			}
			return p, nil
		}
		at := fail
		r, err := ApplySettings(t.Context(), h, other, want, SettingsOptions{})
		if err == nil {
			if at < 10 {
				t.Errorf("only %d writes", at)
			}
			break
		}
		fail = at
		if !errors.Is(err, errs.ErrSmackRefused) || errors.Is(err, errs.ErrSmackPartly) || !r.PutBack || shown() != full {
			t.Fatalf("write %d fails: %v\n%s\n%s", at, err, shown(), full)
		}
	}
	h.hook = func(_ int, _ string, p []byte) ([]byte, error) {
		writes++
		return p, nil
	}
	apply(want, other, SettingsOptions{})
	if got := shown(); got != full {
		t.Errorf("back: %s", got)
	}

	// The kernel takes something else than was written.
	h.hook = func(_ int, name string, p []byte) ([]byte, error) {
		if name == fileOnlycap && string(p) == "_ SetCap2" {
			return []byte("_\nSetCap2"), nil
		}
		return p, nil
	}
	typo := every(k)
	typo.Onlycap = []string{"_", "SetCap2"}
	if r, err := ApplySettings(t.Context(), h, typo, want, SettingsOptions{}); !errors.Is(err, errs.ErrSmackRefused) || !r.PutBack || shown() != full {
		t.Errorf("a list that was cut: %v", err)
	}

	// What is wrong is refused before anything is written.
	h.hook = func(_ int, name string, p []byte) ([]byte, error) {
		t.Errorf("%s: %q is written", name, p)
		return p, nil
	}
	for name, bad := range map[string]*smack.Settings{
		"onlycap of a dash":   {Onlycap: []string{"-typo"}},
		"onlycap of a slash":  {Onlycap: []string{"/x", "_"}},
		"onlycap without us":  {Onlycap: []string{"System"}},
		"two lines":           {Onlycap: []string{"_\nSystem"}},
		"ambient that is cut": {Ambient: "x/y"},
		"category 0":          {Cipso: []smack.Cipso{{Label: "X", Categories: []int{0}}}},
	} {
		if r, err := ApplySettings(t.Context(), h, bad, nil, SettingsOptions{}); !errors.Is(err, errs.ErrInvalid) || r != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if !k.Bringup {
		if _, err := ApplySettings(t.Context(), h, &smack.Settings{Unconfined: "X"}, nil, SettingsOptions{}); !errors.Is(err, errs.ErrSmackRefused) {
			t.Errorf("unconfined without bringup: %v", err)
		}
	}
	// Entries of others are in the way, or shown.
	theirs := &smack.Settings{
		Cipso:    []smack.Cipso{{Label: "SetA", Level: 11}},
		Netlabel: []smack.Netlabel{{Prefix: prefix("10.77.0.0/16"), Label: "Mine"}},
		IPv6Host: []smack.IPv6Host{{Prefix: prefix("fd77::/16"), Label: "Mine"}},
	}
	r, err := ApplySettings(t.Context(), h, theirs, nil, SettingsOptions{})
	if !errors.Is(err, errs.ErrSmackForeign) || strings.Count(err.Error(), ";") != 2 || len(r.Foreign) < 3 {
		t.Errorf("entries of others: %v, %v", err, r)
	}
	h.hook = nil
	apply(theirs, nil, SettingsOptions{Adopt: true})
	apply(want, theirs, SettingsOptions{})

	// What policyd no longer wants: ipv6host is deleted, the rest stays and is named.
	r = apply(&smack.Settings{ClearOnlycap: true, ClearUnconfined: k.Bringup, ClearRelabelSelf: true}, want, SettingsOptions{})
	got := shown()
	if strings.Contains(got, "fd77") || !strings.Contains(got, `onlycap ""`) || !strings.Contains(got, `relabel-self ""`) {
		t.Errorf("taken back: %s", got)
	}
	if s := fmt.Sprint(r.Stays); !strings.Contains(s, `netlabel 10.77.0.0/16 "SetNet"`) || !strings.Contains(s, "cipso2 SetA") || !strings.Contains(s, `ambient "SetAmbient"`) {
		t.Errorf("stays: %s", s)
	}
	apply(&smack.Settings{DOI: 3, Direct: num(250), Mapped: num(251), Ambient: "_", Syslog: "*", PTrace: num(0), Logging: num(1)}, nil, SettingsOptions{})
}

// TestSettingsInterrupted: entries of a call that did not end are policyd's.
func TestSettingsInterrupted(t *testing.T) {
	m := newModel()
	want := &smack.Settings{IPv6Host: []smack.IPv6Host{{Prefix: prefix("fd00::/16"), Label: "A"}, {Prefix: prefix("fd01::/16"), Label: "B"}}}
	put := func(text string) {
		t.Helper()
		if err := writeFile(m, fileIPv6, []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	put("fd00:0:0:0:0:0:0:0/16 A") // the first write of want
	put("fd02:0:0:0:0:0:0:0/16 Theirs")
	other := &smack.Settings{IPv6Host: []smack.IPv6Host{{Prefix: prefix("fd00::/16"), Label: "C"}}}
	if _, err := ApplySettings(t.Context(), m, other, nil, SettingsOptions{}); !errors.Is(err, errs.ErrSmackForeign) {
		t.Errorf("without it: %v", err)
	}
	r, err := ApplySettings(t.Context(), m, nil, nil, SettingsOptions{Interrupted: want})
	if err != nil || len(r.Changes) != 1 || fmt.Sprint(r.Foreign) != `[ipv6host fd02::/16 "Theirs"]` {
		t.Errorf("%+v, %v", r, err)
	}
	if e, err := ReadSettings(m); err != nil || strings.Contains(fmt.Sprint(e), "fd00") {
		t.Errorf("%v, %v", e, err)
	}
}

// TestSettingsNetlabelStays: a netlabel entry that is new cannot be put back.
func TestSettingsNetlabelStays(t *testing.T) {
	h := &hookFS{FS: newModel(), hook: func(_ int, name string, p []byte) ([]byte, error) {
		if name == fileAmbient && string(p) != "_" {
			return nil, unix.EIO
		}
		return p, nil
	}}
	want := &smack.Settings{Netlabel: []smack.Netlabel{{Prefix: prefix("10.0.0.0/8"), Label: "N"}}, Ambient: "A"}
	r, err := ApplySettings(t.Context(), h, want, nil, SettingsOptions{})
	if !errors.Is(err, errs.ErrSmackPartly) || !errors.Is(err, unix.EIO) || !strings.Contains(err.Error(), `netlabel 10.0.0.0/8 is "N", was ""`) || r.PutBack {
		t.Errorf("%v", err)
	}
}
