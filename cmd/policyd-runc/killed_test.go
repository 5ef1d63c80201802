//go:build amd64 || arm64

package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"policyd.dev/policyd/internal/testkernel"
)

// TestKilledAtEveryStep kills the wrapper before its first system call that may change a file, before its second, and
// so on until it has become the runtime. config.json is as it was or edited, whole, and the next wrapper has no trouble.
func TestKilledAtEveryStep(t *testing.T) {
	h := newHost(t, "unreachable: last-known\n")
	before := config(`"policyd.dev/profile":"web@stable"`)
	h.put("bundle/config.json", before, 0o640)
	if code, _, errOut := h.run("run", "id"); code != 42 {
		t.Fatal(code, errOut)
	}
	after := h.read("bundle/config.json")
	untouched, edited := 0, 0
	for step := 1; ; step++ {
		if step > 200 {
			t.Fatal("no end of steps")
		}
		for _, dir := range []string{"state", "run"} { // everything is made anew, which are the most steps
			if err := os.RemoveAll(h.path(dir)); err != nil {
				t.Fatal(err)
			}
		}
		h.put("bundle/config.json", before, 0o640)
		done := h.killBefore(step)
		switch text := h.read("bundle/config.json"); text {
		case before:
			untouched++
		case after:
			edited++
		default:
			t.Fatalf("killed before step %d: neither the one nor the other:\n%s", step, text)
		}
		if code, _, errOut := h.run("run", "id"); code != 42 || h.read("bundle/config.json") != after {
			t.Fatalf("after step %d: exit %d, %q", step, code, errOut)
		}
		if done {
			break
		}
	}
	if untouched < 10 || edited < 2 {
		t.Errorf("killed %d times before the edit and %d times behind it", untouched, edited)
	}
	left, _ := filepath.Glob(h.path("bundle/.config.json.*"))
	for _, name := range left {
		if b, _ := os.ReadFile(name); !strings.HasPrefix(after, string(b)) {
			t.Errorf("%s has %q", name, b)
		}
	}
}

// changes are the system calls that count as steps.
var changes = map[uint64]bool{
	unix.SYS_OPENAT: true, unix.SYS_WRITE: true, unix.SYS_PWRITE64: true, unix.SYS_FSYNC: true, unix.SYS_FCHMOD: true, unix.SYS_FCHOWN: true,
	unix.SYS_FCHMODAT: true, unix.SYS_RENAMEAT: true, unix.SYS_RENAMEAT2: true, unix.SYS_UNLINKAT: true, unix.SYS_MKDIRAT: true, unix.SYS_FLOCK: true,
	unix.SYS_EXECVE: true,
}

// killBefore runs the wrapper and kills it on its way into a step; true when it became the runtime before.
func (h *host) killBefore(step int) (done bool) {
	h.t.Helper()
	runtime.LockOSThread() // ptrace is a thread's
	defer runtime.UnlockOSThread()
	cmd := exec.Command(os.Args[0], "run", "id")
	cmd.Env = append(os.Environ(), wrapperEnv+"=1", configEnv+"="+h.config)
	cmd.Dir = h.path("bundle")
	cmd.SysProcAttr = &syscall.SysProcAttr{Ptrace: true}
	if err := cmd.Start(); err != nil {
		h.t.Fatal(err)
	}
	pid := cmd.Process.Pid
	var status unix.WaitStatus
	if _, err := unix.Wait4(pid, &status, 0, nil); err != nil {
		h.t.Fatal(err)
	}
	if err := unix.PtraceSetOptions(pid, unix.PTRACE_O_TRACECLONE|unix.PTRACE_O_TRACESYSGOOD|unix.PTRACE_O_TRACEEXEC|unix.PTRACE_O_EXITKILL); err != nil {
		_ = cmd.Process.Kill()
		testkernel.Skip(h.t, "ptrace", err.Error())
	}
	if err := unix.PtraceSyscall(pid, 0); err != nil {
		h.t.Fatal(err)
	}
	end := func() {
		_ = cmd.Process.Kill()
		for {
			if _, err := unix.Wait4(-1, &status, unix.WALL|unix.WNOTHREAD, nil); errors.Is(err, unix.ECHILD) {
				return
			}
		}
	}
	inside := map[int]bool{} // threads in a system call
	seen := 0
	for {
		tid, err := unix.Wait4(-1, &status, unix.WALL|unix.WNOTHREAD, nil)
		if err != nil {
			h.t.Fatalf("wait: %v, after %d steps", err, seen)
		}
		if !status.Stopped() {
			if tid == pid {
				h.t.Fatalf("the wrapper ended (%v) after %d steps", status, seen)
			}
			continue
		}
		signal := 0
		switch stop := status.StopSignal(); {
		case stop == unix.SIGTRAP|0x80:
			if inside[tid] = !inside[tid]; inside[tid] && changes[h.number(tid)] {
				if seen++; seen == step {
					end()
					return false
				}
			}
		case stop == unix.SIGTRAP && status.TrapCause() == unix.PTRACE_EVENT_EXEC:
			end()
			return true
		case stop != unix.SIGTRAP && stop != unix.SIGSTOP:
			signal = int(stop)
		}
		_ = unix.PtraceSyscall(tid, signal) // a thread that is gone by now
	}
}

// number is that of the system call a stopped thread is on its way into.
func (h *host) number(tid int) uint64 {
	var regs unix.PtraceRegs
	if err := unix.PtraceGetRegs(tid, &regs); err != nil {
		return 0
	}
	return number(&regs)
}
