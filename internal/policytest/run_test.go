package policytest

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/enforce/landlock"
	"policyd.dev/policyd/enforce/profile"
	"policyd.dev/policyd/internal/errs"
	"policyd.dev/policyd/internal/testkernel"
)

// TestEveryOperation has every operation decided and performed on every kernel.
func TestEveryOperation(t *testing.T) {
	src, err := os.ReadFile("testdata/every.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if res := runOne(t, &Runner{}, string(src)); res.Failed() || res.Count(Passed) != len(res.Expectations) {
		t.Error(failures(res))
	}
	testkernel.Each(t, testkernel.Landlock, func(t *testing.T) {
		dir := t.TempDir()
		t.Setenv("TMPDIR", dir)
		res := runOne(t, enforcing(), string(src))
		if res.Failed() || res.Count(Passed) < 38 {
			t.Errorf("%d passed of %d:\n%s", res.Count(Passed), len(res.Expectations), failures(res))
		}
		for _, x := range res.Expectations {
			if x.Status == Passed && x.Kernel == nil {
				t.Errorf("%s passed and was not performed", x.Op)
			}
		}
		if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
			t.Errorf("left behind: %v, %v", left, err)
		}
	})
}

// TestWrongExpectations: each is told, with what is so instead.
func TestWrongExpectations(t *testing.T) {
	pol := policyText(6, "paths: [{allow: [read], at: '${dir}/a'}]")
	tree := "tree: [{file: a/x}, {file: b/y}, {dir: d}]"
	for _, c := range []struct{ expect, says string }{
		{"{op: 'open ${root}/a/x r', verdict: deny}", "got allow by test.yaml:10"},
		{"{op: 'open ${root}/a/x w', verdict: allow}", "got deny EACCES by layer host (write_file)"},
		{"{op: 'link ${root}/a/x ${root}/b/x', verdict: deny, errno: EXDEV}", "got deny EACCES"},
		{"{op: 'open ${root}/a/x w', verdict: deny, layer: other}", "layer other does not deny it"},
		{"{op: 'stat ${root}/a/x', verdict: allow}", "got not_mediated"},
		{"{op: 'open ${root}/d w', verdict: deny}", "is a directory"},
		{"{op: 'exec ${root}/none', verdict: deny}", "no such file"},
	} {
		res := runOne(t, &Runner{}, pol+testText("set: {dir: '${root}'}", tree, "expect: ["+c.expect+"]"))
		if x := res.Expectations[0]; x.Status != Failed || !strings.Contains(x.Text, c.says) || strings.Contains(x.Text, "/policytest-") {
			t.Errorf("%s: %s %q, want %q", c.expect, x.Status, x.Text, c.says)
		}
	}
}

// TestTreeStaysInside: no object of a tree is made, changed or linked to through
// a symbolic link that leads out of it.
func TestTreeStaysInside(t *testing.T) {
	for _, tree := range []string{
		"{symlink: a, to: OUT}, {file: a/f, content: X}",
		"{symlink: a, to: OUT}, {file: a/new}",
		"{symlink: a, to: OUT}, {symlink: b, to: .}, {dir: b/a, mode: '0700'}",
		"{symlink: a, to: OUT}, {dir: a/d/e}",
		"{symlink: a, to: OUT}, {fifo: a/p}",
		"{symlink: a, to: OUT}, {socket: a/s}",
		"{symlink: a, to: OUT}, {char: a/c}",
		"{symlink: a, to: OUT}, {symlink: a/l, to: x}",
		"{symlink: a, to: OUT}, {link: h, to: a/f}",
		"{symlink: a, to: OUT}, {file: x}, {link: a/h, to: x}",
		"{symlink: a, to: OUT}, {symlink: b, to: a}, {file: b/f, content: X}",
		"{symlink: a, to: ..}, {file: a/new}",
		"{dir: d}, {symlink: d/a, to: ../..}, {link: d/b, to: d/a}, {file: d/b/new}",
	} {
		out := filepath.Join(t.TempDir(), "out")
		if err := errors.Join(os.Mkdir(out, 0o750), os.WriteFile(out+"/f", []byte("kept"), 0o600)); err != nil {
			t.Fatal(err)
		}
		temp := filepath.Dir(out)
		t.Setenv("TMPDIR", temp)
		text := policyText(6, "paths: [{allow: [all], at: '${dir}'}]") +
			testText("set: {dir: '${root}'}", "tree: ["+strings.ReplaceAll(tree, "OUT", out)+"]", "expect: [{op: 'open ${root}/h wt', verdict: allow}]")
		if res := runOne(t, enforcing(), text); !strings.Contains(res.Error, "tree: ") || res.Count(Passed) > 0 {
			t.Errorf("%s: %+v", tree, res)
		}
		content, err := os.ReadFile(out + "/f")
		st, err2 := os.Stat(out)
		list, err3 := os.ReadDir(out)
		left, err4 := os.ReadDir(temp)
		if err := errors.Join(err, err2, err3, err4); err != nil || string(content) != "kept" || st.Mode().Perm() != 0o750 || len(list) != 1 || len(left) != 1 {
			t.Errorf("%s: outside of the tree %q, mode %v, %v, %v (%v)", tree, content, st.Mode(), list, left, err)
		}
	}
}

// TestCannotRun: what keeps a test from being run is no pass.
func TestCannotRun(t *testing.T) {
	for _, c := range []struct{ name, text, says string }{
		{"path of a rule", policyText(6, "paths: [{allow: [read], at: /nonexistent/x}]") + testText("expect: [{op: stat /, verdict: not_mediated}]"), "/nonexistent/x"},
		{"parameter", policyText(6, "paths: [{allow: [read], at: /}]") + testText("set: {none: /x}", "expect: [{op: stat /, verdict: not_mediated}]"), "none"},
		{"right of a later kernel", policyText(6, "scope: [signal]") + testText("abi: 4", "expect: [{op: stat /, verdict: not_mediated}]"), "signal"},
		{"file as a folder", policyText(6, "scope: [signal]") + testText("tree: [{file: a}, {file: a/b}]", "expect: [{op: stat /, verdict: not_mediated}]"), "tree: file a/b"},
		{"link to nothing", policyText(6, "scope: [signal]") + testText("tree: [{link: a, to: b}]", "expect: [{op: stat /, verdict: not_mediated}]"), "tree: link a"},
	} {
		if res := runOne(t, &Runner{}, c.text); !res.Failed() || !strings.Contains(res.Error, c.says) || res.Count(Passed) > 0 {
			t.Errorf("%s: %+v", c.name, res)
		}
	}
	text := policyText(6, "scope: [signal]") + testText("tree: [{dir: a}]", "expect: [{op: signal in, verdict: allow}]")
	t.Run("blank in TMPDIR", func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "a b")
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		t.Setenv("TMPDIR", dir)
		if res := runOne(t, &Runner{}, text); !strings.Contains(res.Error, "TMPDIR") {
			t.Errorf("%+v", res)
		}
	})
	t.Run("performer", func(t *testing.T) {
		r := &Runner{Performer: []string{os.Args[0], "-test.run=^$"}, Support: landlock.Support{ABI: profile.MaxABI}}
		if res := runOne(t, r, text); !strings.Contains(res.Error, "perform") || res.Count(Passed) > 0 {
			t.Errorf("%+v", res)
		}
	})
	t.Run("cancelled", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		r := &Runner{Performer: []string{os.Args[0], performArg}, Support: landlock.Support{ABI: profile.MaxABI}}
		if _, err := r.Run(ctx, load(t, text)[0]); err == nil {
			t.Error("no error")
		}
	})
	t.Run("no Landlock", func(t *testing.T) {
		r := &Runner{Performer: []string{os.Args[0], performArg}, Support: landlock.Support{Err: errs.ErrLandlockDisabled}}
		res := runOne(t, r, text)
		if x := res.Expectations[0]; x.Status != Skipped || !strings.Contains(x.Text, errs.ErrLandlockDisabled.Error()) {
			t.Errorf("%+v", x)
		}
	})
}

// TestNothingElseIsChanged: under a policy that allows all, files outside of the tree stay as they are.
func TestNothingElseIsChanged(t *testing.T) {
	testkernel.Each(t, testkernel.Landlock, func(t *testing.T) {
		dir, err := filepath.EvalSymlinks(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		outside := filepath.Join(dir, "outside")
		if err := os.WriteFile(outside, []byte("kept"), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Mkdir(filepath.Join(dir, "sub"), 0o755); err != nil {
			t.Fatal(err)
		}
		expect := []string{"expect:"}
		for _, op := range []string{
			"truncate OUT", "unlink OUT", "rename OUT ${root}/x", "rename ${root}/a OUT", "exchange OUT ${root}/a", "link OUT ${root}/x",
			"link ${root}/a OUT2", "open OUT wt", "open OUT2 wc", "mkdir OUT2", "mknod OUT2 reg", "symlink OUT2", "rmdir DIR",
			"truncate ${root}/link", "open ${root}/link wt", "open ${root}/dangling wc", "unlink ${root}/folder/outside", "open ${root}/folder/outside wt",
			"unlink ${root}/below/../outside", "link ${root}/a ${root}/below/../new", "rmdir ${root}/folder/sub/", "open ${root}/below/../outside wt", "mkdir ${root}/../policytest-made",
		} {
			op = strings.NewReplacer("OUT2", outside+"2", "OUT", outside, "DIR", dir).Replace(op)
			expect = append(expect, "  - {op: '"+op+"', verdict: allow}")
		}
		res := runOne(t, enforcing(), policyText(3, "paths: [{allow: [all], at: /}]")+testText(append([]string{
			"tree: [{file: a}, {symlink: link, to: " + outside + "}, {symlink: dangling, to: " + outside + "3}, {symlink: folder, to: " + dir + "}, {symlink: below, to: " + dir + "/sub}]",
		}, expect...)...))
		for _, x := range res.Expectations {
			if x.Status != Skipped || x.Kernel != nil || x.Text != skipChanges {
				t.Errorf("%s: %s %s", x.Op, x.Status, x.Text)
			}
		}
		if res.Error != "" {
			t.Error(res.Error)
		}
		list, err := os.ReadDir(dir)
		if b, err2 := os.ReadFile(outside); string(b) != "kept" || err != nil || err2 != nil || len(list) != 2 {
			t.Errorf("%q, %v, %v, %v", b, list, err, err2)
		}
	})
}

// TestLiveSystem: tests without a tree are about this host, and only looked at.
func TestLiveSystem(t *testing.T) {
	testkernel.Each(t, testkernel.Landlock, func(t *testing.T) {
		res := runOne(t, enforcing(), policyText(6, "include: [std/shell]", "paths: [{allow: [read_file], at: /etc/hostname, missing: skip}]")+testText("expect:",
			"  - {op: exec /bin/sh, verdict: allow}",
			"  - {op: open /etc/passwd r, verdict: allow}",
			"  - {op: open /etc/fstab r, verdict: deny}",
			"  - {op: open /root rd, verdict: deny}",
			"  - {op: open /dev/null w, verdict: allow}"))
		if res.Failed() || res.Count(Passed) < 2 {
			t.Errorf("%s", failures(res))
		}
	})
}

// TestOlderKernel: what the kernel is too old for is skipped by name.
func TestOlderKernel(t *testing.T) {
	testkernel.Each(t, testkernel.Landlock, func(t *testing.T) {
		r := enforcing()
		r.Support.ABI = 3 // as Linux 6.2
		res := runOne(t, r, policyText(6, "paths: [{allow: [read], at: '${dir}'}]", "ports: [{allow: [bind_tcp], port: 8080}]", "scope: [signal]")+
			testText("set: {dir: '${root}'}", "tree: [{file: a}]", "expect:",
				"  - {op: 'open ${root}/a w', verdict: deny}", "  - {op: bind tcp 8080, verdict: allow}", "  - {op: bind tcp 8081, verdict: deny}", "  - {op: signal out, verdict: deny}"))
		want := []Status{Passed, Passed, Skipped, Skipped}
		for i, x := range res.Expectations {
			if x.Status != want[i] || x.Status == Skipped && !strings.Contains(x.Text, "ABI 3") {
				t.Errorf("%s: %s %s", x.Op, x.Status, x.Text)
			}
		}
		if res.Error != "" {
			t.Error(res.Error)
		}
	})
}

func TestLoadRefuses(t *testing.T) {
	one := policyText(3, "scope: []", "paths: [{allow: [read], at: /}]")
	two := one + "---\n" + strings.Replace(one, "name: web", "name: other", 1)
	ok := "expect: [{op: stat /, verdict: not_mediated}]"
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	good, bad := write("good.yaml", one), write("bad.yaml", "kind: [")
	for _, c := range []struct{ name, text, says string }{
		{"unknown operation", one + testText("expect: [{op: opne / r, verdict: allow}]"), `test.yaml:17:17: error: not a question that can be answered: unknown operation "opne": did you mean open`},
		{"missing word", one + testText("expect: [{op: open /, verdict: allow}]"), "is missing: want `open PATH"},
		{"word too much", one + testText("expect: [{op: stat / r, verdict: allow}]"), "too much"},
		{"relative path", one + testText("expect: [{op: stat etc, verdict: allow}]"), "is not absolute"},
		{"relative second path", one + testText("expect: [{op: rename /a b, verdict: deny}]"), "is not absolute"},
		{"comment for an operation", one + testText("expect: [{op: '# x', verdict: deny}]"), "no question"},
		{"open quote", one + testText(`expect: [{op: "stat '/a", verdict: deny}]`), "not closed"},
		{"no policy", testText(ok), "test.yaml:6:3: error: no policy to test"},
		{"two policies", two + testText(ok), "which of the policies"},
		{"no such policy in the file", testText("policy: wbe", "policyFile: "+good, ok), "there is no policy wbe in the files; they have: web"},
		{"no such file", testText("policyFile: none.yaml", ok), "none.yaml: no such file"},
		{"bad policy file", testText("policyFile: "+bad, ok), bad + ":"},
		{"no test", one, "no document of kind PolicyTest"},
		{"bad document", one + "---\nkind: x\n", "apiVersion is missing"},
	} {
		tests, err := Load([]*apiv1.SourceFile{{Name: "test.yaml", Content: []byte(c.text)}})
		if err == nil || tests != nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %q", c.name, err, c.says)
		}
	}
	for _, text := range []string{testText("policyFile: "+good, ok), testText("policy: web", "policyFile: "+good, ok), testText("policy: other", ok) + "---\n" + two} {
		if test := load(t, text)[0]; test.policy == nil || test.policy.Name != "web" && test.policy.Name != "other" {
			t.Errorf("%s%+v", text, test)
		}
	}
}
