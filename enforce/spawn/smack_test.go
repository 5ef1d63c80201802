package spawn

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"policyd.dev/policyd/enforce/landlock"
	"policyd.dev/policyd/enforce/profile"
	"policyd.dev/policyd/internal/errs"
	"policyd.dev/policyd/internal/testkernel"
)

// TestNoSmack: a label on a kernel without Smack starts nothing.
func TestNoSmack(t *testing.T) {
	if _, err := os.Stat(smackCurrent); err == nil {
		t.Skip("the kernel has Smack")
	}
	cmd, ran := faultCommand(t)
	cmd.SmackLabel = "Web"
	_, err := newTestSpawner(t, 1).Start(cmd, faultPolicy(t))
	if !errors.Is(err, errs.ErrSmackUnavailable) || ran() {
		t.Errorf("error %v, ran %v", err, ran())
	}
}

// TestSmackLabel: the child has the label, policyd keeps its own.
func TestSmackLabel(t *testing.T) {
	testkernel.Each(t, testkernel.Landlock|testkernel.Smack, func(t *testing.T) {
		own, err := os.ReadFile(smackCurrent)
		if err != nil {
			t.Fatal(err)
		}
		cmd := sh("cat /proc/self/attr/current")
		cmd.SmackLabel = "_"
		s := newTestSpawner(t, 1)
		rs := openPolicy(t, support(t))
		if out, st := output(t, s, cmd, rs); st.Code != 0 || strings.TrimRight(out, "\n\x00") != "_" {
			t.Errorf("%q %+v", out, st)
		}
		cmd = sh("true")
		cmd.SmackLabel = "no/such label"
		if _, err := s.Start(cmd, rs); !errors.Is(err, errs.ErrSmackUnavailable) {
			t.Errorf("a bad label: %v", err)
		}
		testSmackExec(t, s, rs)
		testSmackRelabel(t, s, openPolicy(t, support(t), rule{"/proc", readAll | profile.FSWriteFile}))
		if now, _ := os.ReadFile(smackCurrent); string(now) != string(own) {
			t.Errorf("policyd's label was %q and is %q", own, now)
		}
	})
}

// testSmackRelabel: a program may take one of the labels it was given, once. Where onlycap leaves out the program's
// label no list can be given, and nothing starts.
func testSmackRelabel(t *testing.T, s *Spawner, rs *landlock.Rulesets) {
	const smackfs = "/sys/fs/smackfs/"
	write := func(file, data string) {
		t.Helper()
		if err := os.WriteFile(smackfs+file, []byte(data), 0); err != nil {
			t.Fatal(err)
		}
	}
	write("load2", "Relabel _ rwxa\nRelabel-1 _ rwxa\nRelabel-2 _ rwxa\nOther _ rwxa\n")
	for _, tc := range []struct {
		list []string
		want string
	}{
		{nil, "no Other\nno Relabel-1\nno Relabel-2\n"},
		{[]string{"Relabel-1", "Relabel-2"}, "no Other\nok Relabel-1\nno Relabel-2\n"},
		{[]string{"Relabel-2"}, "no Other\nno Relabel-1\nok Relabel-2\n"},
	} {
		cmd := sh(`exec 2>/dev/null; for l in Other Relabel-1 Relabel-2; do if printf $l >>/proc/self/attr/current; then echo ok $l; else echo no $l; fi; done`)
		cmd.Credential = &Credential{UID: 65534, GID: 65534}
		cmd.SmackLabel, cmd.SmackRelabel = "Relabel", tc.list
		if out, st := output(t, s, cmd, rs); st.Code != 0 || out != tc.want {
			t.Errorf("relabel to %q: %q %+v, want %q", tc.list, out, st, tc.want)
		}
	}
	for _, bad := range [][]string{{"a/b"}, {""}, {"-x"}, {"Fine", "a b"}} {
		cmd := sh("true")
		cmd.SmackLabel, cmd.SmackRelabel = "Relabel", bad
		if _, err := s.Start(cmd, rs); !errors.Is(err, errs.ErrSmackUnavailable) {
			t.Errorf("relabel to %q: %v", bad, err)
		}
	}
	write("onlycap", "_")
	defer write("onlycap", "-")
	cmd := sh("true")
	cmd.SmackLabel, cmd.SmackRelabel = "Relabel", []string{"Relabel-1"}
	if _, err := s.Start(cmd, rs); !errors.Is(err, errs.ErrSmackUnavailable) || !strings.Contains(err.Error(), "onlycap") {
		t.Errorf("with onlycap: %v", err)
	}
}

// testSmackExec: a program with a SMACK64EXEC starts under that label alone, and the refusal says so. A script's
// attribute counts, its interpreter's does not.
func testSmackExec(t *testing.T, s *Spawner, rs *landlock.Rulesets) {
	dir := t.TempDir()
	prog := filepath.Join(dir, "prog")
	interp := filepath.Join(dir, "sh")
	sh, err := os.ReadFile("/bin/sh")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(interp, sh, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(prog, []byte("#!"+interp+"\n:\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name, onProg, onInterp, label string
		refused                       bool
	}{
		{name: "no attribute"},
		{name: "another label", onProg: "Other", refused: true},
		{name: "another than asked", onProg: "Other", label: "^", refused: true},
		{name: "the own label", onProg: "_"},
		{name: "the label asked", onProg: "^", label: "^"},
		{name: "of the interpreter", onInterp: "Other"},
	} {
		for path, label := range map[string]string{prog: tc.onProg, interp: tc.onInterp} {
			_ = unix.Removexattr(path, "security.SMACK64EXEC")
			if label == "" {
				continue
			}
			if err := unix.Setxattr(path, "security.SMACK64EXEC", []byte(label), 0); err != nil {
				t.Fatal(err)
			}
		}
		cmd := &Command{Path: prog, SmackLabel: tc.label}
		child, err := s.Start(cmd, rs)
		if child != nil {
			if st, err := child.Wait(t.Context()); err != nil || st.Code != 0 {
				t.Errorf("%s: %+v, %v", tc.name, st, err)
			}
			child.Close()
		}
		if (err != nil) != tc.refused {
			t.Errorf("%s: %v", tc.name, err)
		}
		if tc.refused && (!errors.Is(err, errs.ErrProgramRefused) || !strings.Contains(err.Error(), `SMACK64EXEC is "Other"`)) {
			t.Errorf("%s: %v", tc.name, err)
		}
	}
}
