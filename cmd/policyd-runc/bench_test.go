package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"policyd.dev/policyd/enforce/landlock"
	"policyd.dev/policyd/enforce/profile"
	"policyd.dev/policyd/internal/testkernel"
)

// timed is how long a program takes from before its start until its end is known, with its output thrown away.
func timed(b *testing.B, env []string, argv []string, want int) time.Duration {
	b.Helper()
	path, err := exec.LookPath(argv[0])
	if err != nil {
		b.Fatal(err)
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		b.Fatal(err)
	}
	defer null.Close()
	began := time.Now()
	pid, err := syscall.ForkExec(path, argv, &syscall.ProcAttr{Env: env, Files: []uintptr{null.Fd(), null.Fd(), null.Fd()}})
	if err != nil {
		b.Fatal(err)
	}
	var status syscall.WaitStatus
	for {
		if _, err = syscall.Wait4(pid, &status, 0, nil); err != syscall.EINTR {
			break
		}
	}
	took := time.Since(began)
	if err != nil || status.ExitStatus() != want {
		b.Fatalf("%q: exit %d, want %d, %v", argv, status.ExitStatus(), want, err)
	}
	return took
}

// way is one of several that are measured in turn, so that what else the machine does is the same to all.
type way struct {
	name   string
	before func()
	argv   []string
	env    []string
}

// inTurn runs each way b.N times, one after the other, and tells the median of each and its ratio to the first.
func inTurn(b *testing.B, ways []way) {
	took := make([][]time.Duration, len(ways))
	for _, w := range ways { // what is read from disk for the first time
		if w.before != nil {
			w.before()
		}
		timed(b, w.env, w.argv, 0)
	}
	b.ResetTimer()
	for n := range b.N {
		for i := range ways {
			i := (i + n) % len(ways)
			if w := ways[i]; w.before != nil {
				w.before()
			}
			took[i] = append(took[i], timed(b, ways[i].env, ways[i].argv, 0))
		}
	}
	b.StopTimer()
	b.ReportMetric(0, "ns/op")
	var first time.Duration
	for i, w := range ways {
		slices.Sort(took[i])
		median := took[i][len(took[i])/2]
		first = cmp.Or(first, median)
		b.ReportMetric(median.Seconds()*1e3, w.name+"-ms")
		if i > 0 {
			b.ReportMetric(float64(median)/float64(first), w.name+"-ratio")
		}
	}
}

// BenchmarkContainerStart runs `true` in a container: by the runtime alone, through policyd-runc without a profile,
// and with one, in turn. The bundle and what policyd-runc keeps for containers are in a tmpfs, as engines and policyd
// have them in /run. Twice: with what `runc spec` writes, and with the seccomp filter that engines add. To reach: with a
// profile at most 1.05 of runc alone. Wants -benchtime 200x or more.
func BenchmarkContainerStart(b *testing.B) {
	testkernel.RequireRoot(b)
	if sup := landlock.Probe(); sup.State != landlock.Available {
		testkernel.Skip(b, "Landlock", sup.Err.Error())
	}
	b.Setenv("TMPDIR", "/dev/shm")
	dir := b.TempDir()
	socket := startPolicyd(b, dir)
	bin, err := programs()
	if err != nil {
		b.Fatal(err)
	}
	for _, bundle := range []struct {
		name   string
		change func(spec map[string]any)
	}{{"spec", nil}, {"engine", withSeccomp(b)}} {
		for _, name := range []string{"runc", "crun"} {
			b.Run(bundle.name+"/"+name, func(b *testing.B) { startInTurn(b, name, socket, bin, bundle.change) })
		}
	}
}

func startInTurn(b *testing.B, name, socket, bin string, change func(spec map[string]any)) {
	e := newEngine(b, b.TempDir(), name, socket)
	if name == "crun" {
		withoutHybrid(b)
	}
	env := append(os.Environ(), configEnv+"="+e.dir+"/runc.yaml")
	var ways []way
	for _, w := range []struct{ name, program, profile string }{
		{name, name, ""}, {"passthrough", bin + "/policyd-runc", ""}, {"profile", bin + "/policyd-runc", "box"},
	} {
		bundle := e.bundle(w.profile, change, "true")
		text := read(b, bundle+"/config.json")
		ways = append(ways, way{w.name, func() {
			if err := os.WriteFile(bundle+"/config.json", []byte(text), 0o644); err != nil {
				b.Fatal(err)
			}
		}, []string{w.program, "--root", e.dir + "/root", "run", "--bundle", bundle, e.id()}, env})
	}
	inTurn(b, ways)
}

// withSeccomp adds what engines add to what `runc spec` writes and a start spends time on: a seccomp filter, the one of podman's package, as
// far as it holds for every container.
func withSeccomp(b *testing.B) func(spec map[string]any) {
	b.Helper()
	const file = "/usr/share/containers/seccomp.json"
	text, err := os.ReadFile(file)
	if err != nil {
		testkernel.Skip(b, file, "apt-get install podman")
	}
	var filter struct {
		DefaultAction   string           `json:"defaultAction"`
		DefaultErrnoRet int              `json:"defaultErrnoRet"`
		Syscalls        []map[string]any `json:"syscalls"`
	}
	if err := json.Unmarshal(text, &filter); err != nil {
		b.Fatal(err)
	}
	var calls []map[string]any
	for _, c := range filter.Syscalls {
		if inc := fmt.Sprint(c["includes"]); strings.Contains(inc, "caps") || strings.Contains(inc, "arches") && !strings.Contains(inc, "amd64") {
			continue
		}
		if exc := fmt.Sprint(c["excludes"]); strings.Contains(exc, "amd64") {
			continue
		}
		for _, key := range []string{"includes", "excludes", "comment", "errno"} {
			delete(c, key)
		}
		if c["args"] == nil {
			delete(c, "args")
		}
		calls = append(calls, c)
	}
	return func(spec map[string]any) {
		spec["linux"].(map[string]any)["seccomp"] = map[string]any{
			"defaultAction": filter.DefaultAction, "defaultErrnoRet": filter.DefaultErrnoRet, "syscalls": calls,
			"architectures": []string{"SCMP_ARCH_X86_64", "SCMP_ARCH_X86", "SCMP_ARCH_X32"},
		}
	}
}

// BenchmarkContainerExec executes `true` in a running container under a profile: by the runtime alone, which leaves what
// it executes unconfined, and through policyd-runc.
func BenchmarkContainerExec(b *testing.B) {
	testkernel.RequireRoot(b)
	if sup := landlock.Probe(); sup.State != landlock.Available {
		testkernel.Skip(b, "Landlock", sup.Err.Error())
	}
	b.Setenv("TMPDIR", "/dev/shm")
	dir := b.TempDir()
	socket := startPolicyd(b, dir)
	bin, err := programs()
	if err != nil {
		b.Fatal(err)
	}
	e := newEngine(b, dir, "runc", socket)
	bundle, id := e.bundle("box", nil, "sleep", "600"), e.id()
	for _, args := range [][]string{{"create", "--bundle", bundle, id}, {"start", id}} {
		if code, _, errOut := e.call(args...); code != 0 {
			b.Fatalf("%q: exit %d, %q", args, code, errOut)
		}
	}
	defer e.call("delete", "--force", id)
	env := append(os.Environ(), configEnv+"="+e.dir+"/runc.yaml")
	inTurn(b, []way{
		{"runc", nil, e.argv("runc", "exec", id, "true"), env},
		{"policyd-runc", nil, e.argv(bin+"/policyd-runc", "exec", id, "true"), env},
	})
}

// withoutHybrid takes hybrid cgroups, which crun refuses, out of the sight of what this goroutine starts. Its thread goes
// with it.
func withoutHybrid(b *testing.B) {
	b.Helper()
	const hybrid = "/sys/fs/cgroup/unified"
	if _, err := os.Stat(hybrid); err != nil {
		return
	}
	runtime.LockOSThread()
	if err := errors.Join(unix.Unshare(unix.CLONE_NEWNS|unix.CLONE_FS), unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""), unix.Unmount(hybrid, unix.MNT_DETACH)); err != nil {
		testkernel.Skip(b, "crun in working order", err.Error())
	}
}

// BenchmarkPassedOn starts a program that does nothing, and the same as the runtime behind policyd-runc: what every
// command pays that policyd-runc has no part in.
func BenchmarkPassedOn(b *testing.B) {
	bin, err := programs()
	if err != nil {
		b.Fatal(err)
	}
	config := filepath.Join(b.TempDir(), "runc.yaml")
	nothing, err := exec.LookPath("true")
	if err != nil {
		b.Fatal(err)
	}
	if err := os.WriteFile(config, fmt.Appendf(nil, "runtime: %s\n", nothing), 0o644); err != nil {
		b.Fatal(err)
	}
	inTurn(b, []way{
		{"exec", nil, []string{nothing, "state", "id"}, os.Environ()},
		{"policyd-runc", nil, []string{bin + "/policyd-runc", "state", "id"}, append(os.Environ(), configEnv+"="+config)},
	})
}

// BenchmarkLaunch starts a program that does nothing, and the same through policyd-launch with a profile of three
// paths: its own time is the difference.
func BenchmarkLaunch(b *testing.B) {
	if sup := landlock.Probe(); sup.State != landlock.Available {
		testkernel.Skip(b, "Landlock", sup.Err.Error())
	}
	bin, err := programs()
	if err != nil {
		b.Fatal(err)
	}
	builder := profile.NewBuilder([]profile.Layer{{Name: "box", FS: profile.FSReadFile | profile.FSExecute | profile.FSReadDir}})
	for _, p := range []string{"/", "/usr", "/etc"} {
		builder.AddPath(0, p, profile.FSReadFile|profile.FSExecute|profile.FSReadDir, false, profile.Fail)
	}
	p, err := builder.Build()
	if err != nil {
		b.Fatal(err)
	}
	file := filepath.Join(b.TempDir(), "profile")
	if err := os.WriteFile(file, p.Encode(), 0o644); err != nil {
		b.Fatal(err)
	}
	nothing, err := exec.LookPath("true")
	if err != nil {
		b.Fatal(err)
	}
	inTurn(b, []way{
		{"exec", nil, []string{nothing}, os.Environ()},
		{"policyd-launch", nil, strings.Fields(bin + "/policyd-launch exec --file " + file + " --digest " + profile.Digest(p.Encode()) + " -- " + nothing), os.Environ()},
	})
}
