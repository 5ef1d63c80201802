package preflight

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"policyd.dev/policyd/enforce/landlock"
	"policyd.dev/policyd/enforce/profile"
	"policyd.dev/policyd/enforce/spawn"
	"policyd.dev/policyd/internal/cli/decide"
	"policyd.dev/policyd/internal/errs"
	"policyd.dev/policyd/internal/testkernel"
)

// stage is a command with its circumstances.
type stage struct {
	argv []string
	env  []string
	dir  string
	want int // exit status when it starts
}

func (s *stage) options(g Grants) Options { return Options{Env: s.env, Dir: s.dir, Grants: g} }

// start runs the command under a profile and tells whether it got to its main
// function.
func (s *stage) start(path string, p *profile.Profile, sup landlock.Support) (bool, error) {
	rs, err := landlock.Build(p, sup)
	if err != nil {
		return false, err
	}
	defer rs.Release()
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return false, err
	}
	defer null.Close()
	type outcome struct {
		pid int
		err error
	}
	done := make(chan outcome)
	go func() {
		runtime.LockOSThread() // for good: the thread ends with the goroutine
		if err := rs.RestrictThread(); err != nil {
			done <- outcome{0, fmt.Errorf("restrict: %w", err)}
			return
		}
		pid, err := syscall.ForkExec(path, s.argv, &syscall.ProcAttr{Dir: s.dir, Env: s.env, Files: []uintptr{null.Fd(), null.Fd(), null.Fd()}})
		done <- outcome{pid, err}
	}()
	o := <-done
	if errors.Is(o.err, syscall.EACCES) || errors.Is(o.err, syscall.ENOENT) {
		return false, nil
	}
	if o.err != nil {
		return false, o.err
	}
	var status syscall.WaitStatus
	for {
		if _, err := syscall.Wait4(o.pid, &status, 0, nil); err != syscall.EINTR {
			if err != nil {
				return false, err
			}
			break
		}
	}
	switch code := status.ExitStatus(); {
	case status.Exited() && code == s.want:
		return true, nil
	case status.Exited() && (code == 126 || code == 127):
		return false, nil // of a loader, or of env
	}
	return false, fmt.Errorf("wait status %#x", status)
}

// granting makes a profile of one layer with a rule for each path.
func granting(t *testing.T, rules map[string]profile.Access) *profile.Profile {
	t.Helper()
	b := profile.NewBuilder([]profile.Layer{{Name: "host", FS: execRights}})
	b.AddPath(0, "/dev/null", readRights, false, profile.Skip)
	for path, access := range rules {
		b.AddPath(0, path, access, false, profile.Skip)
	}
	p, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	p.ABI = 1
	return p
}

// agree compares what Find says with what the kernel and the loader do, with
// every need granted, each alone left out, and random ones.
func agree(t *testing.T, s *stage, random int) {
	t.Helper()
	if s.dir == "" {
		s.dir = "/"
	}
	path, err := spawn.LookPath(s.argv[0], s.env, s.dir)
	if err != nil {
		t.Fatal(err)
	}
	sup := landlock.Probe()
	all, err := Find(path, s.options(everything))
	if err != nil {
		t.Fatal(err)
	}
	if !all.Starts {
		t.Fatalf("it never starts: %+v", all.Needs)
	}
	ask := func(rules map[string]profile.Access, what string) bool {
		t.Helper()
		p := granting(t, rules)
		d, err := decide.New(p, nil, decide.Options{ABI: sup.ABI, Errata: sup.Errata})
		if err != nil {
			t.Fatal(err)
		}
		res, err := Find(path, s.options(By(d)))
		if err != nil {
			t.Fatal(err)
		}
		starts, err := s.start(path, p, sup)
		if errors.Is(err, errs.ErrInvalid) {
			return false // no rule is left: nothing starts at all
		}
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if starts != res.Starts {
			t.Errorf("%s: it starts: %v, preflight says %v:\n%s", what, starts, res.Starts, table(res))
		}
		return starts
	}
	rules := func(keep func(i int) bool) map[string]profile.Access {
		m := map[string]profile.Access{}
		for i, n := range all.Needs {
			if n.access != 0 && keep(i) {
				m[n.Path] |= n.access
			}
		}
		return m
	}
	if !ask(rules(func(int) bool { return true }), "all granted") {
		t.Error("all is granted, but it does not start")
	}
	for i, n := range all.Needs {
		if n.access != 0 {
			ask(rules(func(j int) bool { return j != i }), "without "+n.Path)
		}
	}
	const seed = 20261130
	rng := rand.New(rand.NewPCG(seed, 0))
	for range random {
		left := rng.Uint64()
		ask(rules(func(j int) bool { return left>>(j%64)&1 == 1 || rng.IntN(2) == 0 }), fmt.Sprintf("random %#x", left))
	}
}

func table(r *Result) string {
	var b strings.Builder
	for _, n := range r.Needs {
		fmt.Fprintf(&b, "%-12s %-10s required=%-5v %s %s\n", n.Kind, n.Verdict, n.Required, n.Path, n.Problem)
	}
	return b.String()
}

var hostEnv = []string{"PATH=/usr/bin:/bin", "HOME=/"}

// Programs of the host start under a policy exactly when preflight says so.
func TestKernelAgrees(t *testing.T) {
	testkernel.Each(t, testkernel.Landlock, func(t *testing.T) {
		dir := t.TempDir()
		script := func(name, head string) string {
			path := filepath.Join(dir, name)
			if err := os.WriteFile(path, []byte(head+"\nexit 7\n"), 0o755); err != nil {
				t.Fatal(err)
			}
			return path
		}
		plain := script("plain", "#!/bin/sh -e")
		for _, s := range []stage{
			{argv: []string{"true"}},
			{argv: []string{"bash", "--version"}},
			{argv: []string{"/usr/bin/busybox", "true"}},
			{argv: []string{"/usr/bin/python3", "--version"}},
			{argv: []string{"/usr/bin/perl", "-v"}},
			{argv: []string{"git", "--version"}},
			{argv: []string{plain}, want: 7},
			{argv: []string{script("env", "#!/usr/bin/env bash")}, want: 7},
			{argv: []string{script("env-S", "#!/usr/bin/env -S X=1 bash -e")}, want: 7},
			{argv: []string{script("nested", "#!"+plain)}, want: 7},
		} {
			t.Run(filepath.Base(s.argv[0]), func(t *testing.T) {
				s.env = hostEnv
				if _, err := spawn.LookPath(s.argv[0], s.env, "/"); err != nil {
					testkernel.Skip(t, s.argv[0], "apt-get install "+filepath.Base(s.argv[0]))
				}
				agree(t, &s, 2)
			})
		}
	})
}

// build compiles source text, with flags.
func build(t *testing.T, compiler, out, source string, flags ...string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(out), 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), compiler, append([]string{"-o", out, "-x", "c", "-", "-x", "none"}, flags...)...)
	cmd.Stdin = strings.NewReader(source)
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", cmd, err, text)
	}
}

// tree builds a program with libraries that are found in each of the ways.
func tree(t *testing.T, compiler string) (dir, app string) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	// deep is needed by mid alone and found by mid's RUNPATH, spare stands in two folders of LD_LIBRARY_PATH.
	build(t, compiler, dir+"/deep/libdeep.so.1", "int deep(void){return 1;}", "-shared", "-fPIC", "-Wl,-soname,libdeep.so.1")
	build(t, compiler, dir+"/lib/libmid.so", "int deep(void); int mid(void){return deep();}", "-shared", "-fPIC", dir+"/deep/libdeep.so.1",
		"-Wl,--enable-new-dtags,-rpath,$ORIGIN/../deep")
	build(t, compiler, dir+"/one/libspare.so", "int spare(void){return 6;}", "-shared", "-fPIC", "-Wl,-soname,libspare.so")
	b, err := os.ReadFile(dir + "/one/libspare.so")
	if err == nil {
		err = errors.Join(os.Mkdir(dir+"/two", 0o755), os.WriteFile(dir+"/two/libspare.so", b, 0o755))
	}
	if err != nil {
		t.Fatal(err)
	}
	app = dir + "/bin/app"
	build(t, compiler, app, "int mid(void), spare(void); int main(void){return mid()+spare();}",
		"-Wl,--disable-new-dtags,-rpath,${ORIGIN}/../lib,-rpath-link,"+dir+"/deep", "-L"+dir+"/lib", "-L"+dir+"/one", "-lmid", "-lspare")
	return dir, app
}

// Search paths of all kinds, with a copy of a library behind a refused one.
func TestKernelAgreesOnSearchPaths(t *testing.T) {
	testkernel.Each(t, testkernel.Landlock, func(t *testing.T) {
		for _, c := range []struct{ compiler, install string }{{"gcc", "apt-get install gcc libc6-dev"}, {"musl-gcc", "apt-get install musl-tools"}} {
			t.Run(c.compiler, func(t *testing.T) {
				testkernel.RequireTool(t, c.compiler, c.install)
				dir, app := tree(t, c.compiler)
				s := &stage{argv: []string{app}, dir: dir, want: 7, env: []string{"LD_LIBRARY_PATH=" + dir + "/none:one:" + dir + "/two"}}
				res, err := Find(app, s.options(everything))
				if err != nil {
					t.Fatal(err)
				}
				for _, want := range []string{"/lib/libmid.so", "/one/libspare.so", "/deep/libdeep.so.1"} {
					if !strings.Contains(table(res), dir+want) {
						t.Errorf("%s is not found:\n%s", want, table(res))
					}
				}
				agree(t, s, 4)
				// With the second copy granted besides, the first may be refused.
				second := map[string]profile.Access{dir + "/two": readRights}
				for _, n := range res.Needs {
					if n.access != 0 && n.Path != dir+"/one/libspare.so" {
						second[n.Path] |= n.access
					}
				}
				sup := landlock.Probe()
				p := granting(t, second)
				d, err := decide.New(p, nil, decide.Options{ABI: sup.ABI, Errata: sup.Errata})
				if err != nil {
					t.Fatal(err)
				}
				res, err = Find(app, s.options(By(d)))
				if err != nil {
					t.Fatal(err)
				}
				starts, err := s.start(app, p, sup)
				if err != nil || !starts || !res.Starts || !strings.Contains(table(res), dir+"/two/libspare.so") {
					t.Errorf("it starts: %v (%v), preflight says %v:\n%s", starts, err, res.Starts, table(res))
				}
			})
		}
	})
}
