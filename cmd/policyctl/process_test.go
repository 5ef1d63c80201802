package main

import (
	"errors"
	"testing"

	"policyd.dev/policyd/internal/errs"
)

func TestParseUmask(t *testing.T) {
	for in, want := range map[string]int{"": keepUmask, "0": 0, "0027": 0o027, "777": 0o777} {
		if got, err := parseUmask(in); got != want || err != nil {
			t.Errorf("%q: %#o %v", in, got, err)
		}
	}
	for _, in := range []string{"8", "01000", "-1", "rwx", "0x1"} {
		if _, err := parseUmask(in); !errors.Is(err, errs.ErrInvalid) {
			t.Errorf("%q: %v", in, err)
		}
	}
}

func TestRunEnvironment(t *testing.T) {
	t.Setenv("LC_TIME", "C")
	t.Setenv("TERM", "xterm")
	t.Setenv("TOKEN", "secret")
	has := func(env []string, want string) bool {
		for _, e := range env {
			if e == want {
				return true
			}
		}
		return false
	}
	env, err := runEnvironment("0", false, []string{"A=1", "TOKEN", "NOT_SET_HERE", "HOME=/srv", "A=2", "EMPTY="})
	if err != nil {
		t.Fatal(err)
	}
	for want, there := range map[string]bool{
		"A=2": true, "A=1": false, "TOKEN=secret": true, "HOME=/srv": true, "EMPTY=": true, "LC_TIME=C": true,
		"TERM=xterm": false, "NOT_SET_HERE=": false, "PATH=" + rootPath: true, "USER=root": true,
	} {
		if has(env, want) != there {
			t.Errorf("%s: %v, want %v, in %q", want, !there, there, env)
		}
	}
	if env, err = runEnvironment("", true, nil); err != nil || !has(env, "TERM=xterm") || has(env, "TOKEN=secret") {
		t.Errorf("%q, %v", env, err)
	}
	for _, bad := range []string{"=x", "", "A=\x00"} {
		if _, err := runEnvironment("", false, []string{bad}); err == nil {
			t.Errorf("--env %q is no error", bad)
		}
	}
}

func TestPairs(t *testing.T) {
	m, err := pairs("--set", []string{"a=1", "b=x=y", "c=", "a=1"})
	if err != nil || len(m) != 3 || m["b"] != "x=y" || m["c"] != "" {
		t.Errorf("%v %v", m, err)
	}
	for _, bad := range [][]string{{"a"}, {"=1"}, {""}, {"a=1", "a=2"}} {
		if _, err := pairs("--set", bad); err == nil {
			t.Errorf("%q is no error", bad)
		}
	}
}
