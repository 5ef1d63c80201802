package store

import (
	"errors"
	"strings"
	"testing"

	"policyd.dev/policyd/internal/errs"
)

func TestParseRef(t *testing.T) {
	hex := strings.Repeat("0a", 32)
	for _, c := range []struct {
		kind, ref string
		want      Ref
	}{
		{KindLandlockPolicy, "web", Ref{Name: "web"}},
		{KindLandlockPolicy, "a", Ref{Name: "a"}},
		{KindLandlockPolicy, "9-x.y", Ref{Name: "9-x.y"}},
		{KindLandlockPolicy, strings.Repeat("a", 63), Ref{Name: strings.Repeat("a", 63)}},
		{KindLandlockPolicy, "web@3", Ref{Name: "web", Number: 3}},
		{KindLandlockPolicy, "web@18446744073709551615", Ref{Name: "web", Number: 1<<64 - 1}},
		{KindLandlockPolicy, "web@stable", Ref{Name: "web", Tag: "stable"}},
		{KindLandlockPolicy, "web@v1.2_x-y", Ref{Name: "web", Tag: "v1.2_x-y"}},
		{KindLandlockPolicy, "web@sha256:0123abcd", Ref{Name: "web", Digest: "sha256:0123abcd"}},
		{KindFragment, "std/base@sha256:" + hex, Ref{Name: "std/base", Digest: "sha256:" + hex}},
		{KindFragment, "base", Ref{Name: "base"}},
	} {
		got, err := ParseRef(c.kind, c.ref)
		if err != nil || got != c.want {
			t.Errorf("%s: %+v %v, want %+v", c.ref, got, err, c.want)
		}
		if got.String() != c.ref {
			t.Errorf("%s is written as %s", c.ref, got)
		}
	}
	for _, c := range []struct{ kind, ref string }{
		{KindLandlockPolicy, ""},
		{KindLandlockPolicy, "@1"},
		{KindLandlockPolicy, "web@"},
		{KindLandlockPolicy, "Web"},
		{KindLandlockPolicy, "-web"},
		{KindLandlockPolicy, "web-"},
		{KindLandlockPolicy, ".."},
		{KindLandlockPolicy, "a/b"},
		{KindLandlockPolicy, "a_b"},
		{KindLandlockPolicy, "a\x00b"},
		{KindLandlockPolicy, "wéb"},
		{KindLandlockPolicy, strings.Repeat("a", 64)},
		{KindLandlockPolicy, strings.Repeat("a", 1<<20)},
		{KindLandlockPolicy, "web@" + strings.Repeat("a", 1<<20)},
		{KindLandlockPolicy, "web@0"},
		{KindLandlockPolicy, "web@03"},
		{KindLandlockPolicy, "web@-1"},
		{KindLandlockPolicy, "web@+1"},
		{KindLandlockPolicy, "web@18446744073709551616"},
		{KindLandlockPolicy, "web@3x"},
		{KindLandlockPolicy, "web@1@2"},
		{KindLandlockPolicy, "web@sha256:0123abc"},
		{KindLandlockPolicy, "web@sha256:0123ABCD"},
		{KindLandlockPolicy, "web@sha256:" + hex + "0"},
		{KindLandlockPolicy, "web@Stable"},
		{KindLandlockPolicy, "web@a."},
		{KindLandlockPolicy, "web@sha512:01234567"},
		{KindFragment, "a/b/c"},
		{KindFragment, "/a"},
		{KindFragment, "a/"},
		{KindFragment, "a/-b"},
		{"Poem", "web"},
		{"", "web"},
	} {
		_, err := ParseRef(c.kind, c.ref)
		if !errors.Is(err, errs.ErrInvalid) {
			t.Errorf("%.40q: %v, want invalid", c.ref, err)
		} else if len(err.Error()) > 400 {
			t.Errorf("%.40q: the message has %d bytes", c.ref, len(err.Error()))
		}
	}
}

func FuzzParseRef(f *testing.F) {
	for _, s := range []string{"web", "web@3", "web@stable", "web@sha256:0123abcd", "std/base", "a@0", "@", "a@b@c"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		for _, kind := range []string{KindLandlockPolicy, KindFragment} {
			r, err := ParseRef(kind, s)
			if err != nil {
				if !errors.Is(err, errs.ErrInvalid) {
					t.Errorf("%q: %v", s, err)
				}
				continue
			}
			if r.String() != s {
				t.Errorf("%q is written as %q", s, r)
			}
			if strings.ContainsAny(s, "\x00 \n") || CheckName(kind, r.Name) != nil {
				t.Errorf("%q was accepted", s)
			}
		}
	})
}
