package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"policyd.dev/policyd/internal/errs"
	"policyd.dev/policyd/internal/units"
)

// A policy that services start under is not deleted unasked; what another policyd serves is no business of this one.
func TestDeleteAttached(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("XDG_CONFIG_HOME", filepath.Join(dir, "config"))
	t.Setenv("XDG_RUNTIME_DIR", filepath.Join(dir, "run"))
	t.Setenv("POLICYD_SOCKET", "")
	put := func(unit, policy, socket string) {
		t.Helper()
		text, _, err := units.Text(units.Attachment{Unit: unit, Policy: policy, Socket: socket},
			&units.Service{Unit: &units.Unit{}, Name: unit, Commands: map[string][]units.Command{"ExecStart": {{Program: "/bin/x", Argv0: "/bin/x"}}}},
			units.Files{Launcher: "/usr/bin/env", Profile: "/x"}, false, true)
		if err != nil {
			t.Fatal(err)
		}
		at := filepath.Join(dir, "config/systemd/user", unit+".d", units.DropIn)
		if err := errors.Join(os.MkdirAll(filepath.Dir(at), 0o755), os.WriteFile(at, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	put("one.service", "web@stable", "")
	put("two.service", "web", "")
	put("other.service", "website", "")
	put("far.service", "web", "/srv/policyd.sock")
	for _, tc := range []struct {
		a      *app
		policy string
		want   string
	}{
		{&app{user: true}, "web", "--user one.service, --user two.service"},
		{&app{user: true}, "website", "--user other.service"},
		{&app{user: true}, "none", ""},
		{&app{socket: "unix:///srv/policyd.sock"}, "web", "--user far.service"},
		{&app{socket: "/srv/policyd.sock"}, "web", "--user far.service"},
		{&app{socket: "/srv/another.sock"}, "web", ""},
	} {
		got, err := tc.a.attachedTo(tc.policy)
		if err != nil || strings.Join(got, ", ") != tc.want {
			t.Errorf("%s of %+v: %q, %v; want %q", tc.policy, tc.a, got, err, tc.want)
		}
	}
	if err := (&app{user: true}).notAttached("web"); !errors.Is(err, errs.ErrReferenced) || !strings.Contains(err.Error(), "one.service, --user two.service (policyctl detach") {
		t.Errorf("%v", err)
	}
	t.Setenv("XDG_RUNTIME_DIR", "")
	if err := (&app{socket: "/srv/policyd.sock"}).notAttached("web"); err != nil {
		t.Errorf("without a session: %v", err)
	}
}
