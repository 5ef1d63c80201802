package smackfs

import (
	"errors"
	"fmt"
	"testing"

	"policyd.dev/policyd/internal/errs"
	"policyd.dev/policyd/smack"
)

func TestSettingsHostile(t *testing.T) { testSettingsHostile(t, newModel()) }

// testSettingsHostile changes settings that others change too, and takes them out of the policy.
func testSettingsHostile(t *testing.T, fs FS) {
	apply := func(want, owned *smack.Settings) *SettingsReport {
		t.Helper()
		r, err := ApplySettings(t.Context(), fs, want, owned, SettingsOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	write := func(file, data string) {
		t.Helper()
		if err := writeFile(fs, file, []byte(data)); err != nil {
			t.Fatal(err)
		}
	}
	net4 := func(label string) *smack.Settings {
		return &smack.Settings{
			Netlabel: []smack.Netlabel{{Prefix: prefix("10.78.0.0/16"), Label: label}},
			Cipso:    []smack.Cipso{{Label: "SetHost", Level: 9, Categories: []int{len(label)}}},
		}
	}
	// An entry that stays, because the kernel deletes none, is still policyd's: it can be wanted again otherwise.
	owned := apply(net4("SetA"), nil).Owned
	r := apply(&smack.Settings{}, &owned)
	if fmt.Sprint(r.Stays) != `[cipso2 SetHost "9/4" netlabel 10.78.0.0/16 "SetA"]` {
		t.Errorf("stays %v", r.Stays)
	}
	owned = r.Owned
	r = apply(&smack.Settings{}, &owned)
	if len(r.Stays) != 2 {
		t.Errorf("still stays %v", r.Stays)
	}
	owned = r.Owned
	r = apply(net4("SetLonger"), &owned)
	if len(r.Changes) != 2 || len(r.Owned.Netlabel) != 1 || len(r.Owned.Cipso) != 1 {
		t.Errorf("%+v", r)
	}
	owned = r.Owned
	// Until somebody else changes it: then it is theirs, listed, and in the way.
	write(fileNetlabel, "10.78.0.0/16 SetOther")
	r = apply(&smack.Settings{}, &owned)
	if fmt.Sprint(r.Stays) != `[cipso2 SetHost "9/9"]` || len(r.Owned.Netlabel) != 0 || !hasEntry(r.Foreign, fileNetlabel, "10.78.0.0/16") {
		t.Errorf("changed by somebody else: %+v", r)
	}
	owned = r.Owned
	if _, err := ApplySettings(t.Context(), fs, net4("SetA"), &owned, SettingsOptions{}); !errors.Is(err, errs.ErrSmackForeign) {
		t.Errorf("somebody else's: %v", err)
	}

	// IPv6: an address that maps IPv4, and what is deleted or left when the policy no longer has it.
	for _, p := range []string{"::ffff:1.2.3.4/128", "::ffff:0:0/96", "::/0", "::1/128"} {
		write(fileIPv6, string(ipv6Write(p, smack.IPv6Delete))) // of other tests
		six := &smack.Settings{IPv6Host: []smack.IPv6Host{{Prefix: prefix(p), Label: "SetA"}}}
		owned := apply(six, nil).Owned
		if r := apply(six, &owned); r.Kept != 1 || len(r.Changes) != 0 {
			t.Errorf("%s again: %+v", p, r)
		}
		if r := apply(&smack.Settings{}, &owned); len(r.Changes) != 1 || len(r.Stays) != 0 || len(r.Owned.IPv6Host) != 0 {
			t.Errorf("%s taken out: %+v", p, r)
		}
		if r := apply(&smack.Settings{}, nil); hasEntry(r.Foreign, fileIPv6, prefix(p).String()) {
			t.Errorf("%s was not deleted", p)
		}
	}

	// A single value that is no longer wanted stays as it was set, and is said to.
	owned = apply(&smack.Settings{Ambient: "SetA", PTrace: num(1)}, nil).Owned
	r = apply(&smack.Settings{}, &owned)
	if fmt.Sprint(r.Stays) != `[ambient "SetA" ptrace "1"]` {
		t.Errorf("single values: stays %v", r.Stays)
	}
	write(fileAmbient, "_")
	write(filePtrace, "0")
}

func hasEntry(list []Entry, file, key string) bool {
	for _, e := range list {
		if e.File == file && e.Key == key {
			return true
		}
	}
	return false
}
