package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"policyd.dev/policyd/enforce/profile"
	"policyd.dev/policyd/enforce/unit"
)

// attached writes the profile of a bench as policyctl attach does.
func (b *bench) attached(t *testing.T, change func(*unit.Record)) string {
	t.Helper()
	enc, err := os.ReadFile(b.file)
	if err != nil {
		t.Fatal(err)
	}
	r := &unit.Record{Unit: "x.service", Policy: "web@7", ProfileDigest: profile.Digest(enc), Written: time.Now(), Profile: enc}
	if change != nil {
		change(r)
	}
	out, err := r.Encode()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(b.dir, "x.service.profile")
	put(t, path, string(out), 0o644)
	return path
}

func (b *bench) unitCommand(t *testing.T, file, program string, argv ...string) *exec.Cmd {
	t.Helper()
	cmd := b.command(t)
	cmd.Args = append([]string{cmd.Path, "unit", "--unit", "x.service", "--profile", file, "--program", program, "--ignore-sigpipe", "--"}, argv...)
	return cmd
}

func TestUnitConfines(t *testing.T) {
	b := prepare(t, nil)
	file := b.attached(t, func(r *unit.Record) {
		r.Umask, r.Environment, r.Limits = "0027", map[string]string{"FIRST": "2", "NEW": "x"}, map[string]string{"core": "0"}
	})
	code, out, errOut := run(t, b.unitCommand(t, file, "cat", "cat", b.secret))
	if code != 1 || out != "" || !strings.Contains(errOut, "Permission denied") {
		t.Errorf("exit %d, %q, %q", code, out, errOut)
	}
	code, out, errOut = run(t, b.unitCommand(t, file, "/bin/sh", "-name", "-c", `echo $0 $FIRST $NEW $(umask) $(ulimit -c); grep SigIgn /proc/self/status`))
	if want := "-name 2 x 0027 0\n"; code != 0 || !strings.HasPrefix(out, want) || !strings.Contains(out, "1000\n") {
		t.Errorf("exit %d, %q, %q; want %q and SIGPIPE ignored", code, out, errOut, want)
	}
}

// None of these may run the program.
func TestUnitRefuses(t *testing.T) {
	b := prepare(t, nil)
	file := b.attached(t, nil)
	other := filepath.Join(b.dir, "other.profile")
	enc, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	put(t, other, string(enc), 0o666)
	if err := os.Chmod(other, 0o666); err != nil {
		t.Fatal(err)
	}
	missing := prepare(t, func(pb *profile.Builder, dir string) {
		pb.AddPath(0, filepath.Join(dir, "absent"), profile.FSReadFile, false, profile.Fail)
	})
	labelled := prepare(t, nil)
	for name, tc := range map[string]struct {
		args []string
		code int
		says string
	}{
		"no file":           {[]string{"--unit", "x.service", "--profile", b.dir + "/absent", "--program", "echo", "--", "echo", "ran"}, exitPolicy, "policyctl attach x.service POLICY"},
		"another unit":      {[]string{"--unit", "y.service", "--profile", file, "--program", "echo", "--", "echo", "ran"}, exitPolicy, "it is for x.service"},
		"writable":          {[]string{"--unit", "x.service", "--profile", other, "--program", "echo", "--", "echo", "ran"}, exitPolicy, "others may write it"},
		"missing path":      {[]string{"--unit", "x.service", "--profile", missing.attached(t, nil), "--program", "echo", "--", "echo", "ran"}, exitPolicy, "does not exist"},
		"no arguments":      {[]string{"--unit", "x.service", "--profile", file, "--program", "echo", "--"}, exitPolicy, "arguments"},
		"no program":        {[]string{"--unit", "x.service", "--profile", file, "--", "echo", "ran"}, exitPolicy, "--program"},
		"absent":            {[]string{"--unit", "x.service", "--profile", file, "--program", "/no/such", "--", "echo", "ran"}, exitNotFound, "/no/such"},
		"not in search":     {[]string{"--unit", "x.service", "--profile", file, "--search", b.dir, "--program", "echo", "--", "echo", "ran"}, exitNotFound, b.dir},
		"a bad umask":       {[]string{"--unit", "x.service", "--profile", prepare(t, nil).attached(t, func(r *unit.Record) { r.Umask = "9" }), "--program", "echo", "--", "echo", "ran"}, exitPolicy, "umask"},
		"a wrong label":     {[]string{"--unit", "x.service", "--profile", labelled.attached(t, func(r *unit.Record) { r.SmackLabel = "NoSuchLabel" }), "--program", "echo", "--", "echo", "ran"}, exitPolicy, "NoSuchLabel"},
		"an unknown option": {[]string{"--lenient", "--unit", "x.service", "--profile", file, "--program", "echo", "--", "echo", "ran"}, exitPolicy, "lenient"},
	} {
		cmd := b.command(t)
		cmd.Args = append([]string{cmd.Path, "unit"}, tc.args...)
		if code, out, errOut := run(t, cmd); code != tc.code || out != "" || !strings.Contains(errOut, tc.says) {
			t.Errorf("%s: exit %d, %q, %q", name, code, out, errOut)
		}
	}
}
