package main

import (
	"errors"
	"os"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/enforce/landlock"
)

// inThread runs f on a thread of its own that nothing runs on afterwards; it is not the process's first, which would
// stay what f makes of it.
func inThread(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // and never unlocked: the thread ends
		if unix.Gettid() == unix.Getpid() {
			defer runtime.UnlockOSThread()
			inThread(f)
			return
		}
		f()
	}()
	<-done
}

// bootFails: what keeps the assigned policy out of the kernel is told at the start, each in words and by its state, and
// nothing else is said to be in force.
func (h *smackTest) bootFails() {
	h.start()
	h.apply("first", "First Data r")
	h.load(&apiv1.LoadRequest{Ref: "first"})
	h.stop()
	write := func(file, data string) error {
		return os.WriteFile(string(smackfsDir)+"/"+file, []byte(data), 0)
	}
	// A thread with the label that onlycap names: no other could take it back.
	lists, answers := make(chan string), make(chan error)
	defer close(lists)
	go inThread(func() {
		labelErr := os.WriteFile("/proc/thread-self/attr/smack/current", []byte("BootAdmin"), 0)
		for list := range lists {
			answers <- errors.Join(labelErr, write("onlycap", list))
		}
	})
	asAdmin := func(onlycap string) error {
		lists <- onlycap
		return <-answers
	}
	readOnly := func(flag uintptr) error {
		return unix.Mount("", string(smackfsDir), "", unix.MS_REMOUNT|unix.MS_BIND|flag, "")
	}
	nothing := func() error { return nil }
	for _, tc := range []struct {
		name        string
		cause, undo func() error
		words       string
		state       apiv1.GetSmackResponse_State
		uncapable   bool
	}{
		{
			"foreign rule", func() error { return write("load2", "First Data w") }, func() error { return write("load2", "First Data r") },
			`"First Data w" is loaded, r is wanted`, apiv1.GetSmackResponse_STATE_AVAILABLE, false,
		},
		{
			"onlycap", func() error { return asAdmin("BootAdmin") }, func() error { return asAdmin("-") },
			`this process has the label "_", onlycap names BootAdmin`, apiv1.GetSmackResponse_STATE_ONLYCAP, false,
		},
		{
			"read-only", func() error { return readOnly(unix.MS_RDONLY) }, func() error { return readOnly(0) },
			"smackfs is not mounted for writing", apiv1.GetSmackResponse_STATE_NOT_MOUNTED, false,
		},
		{"no capability", nothing, nothing, "CAP_MAC_ADMIN", apiv1.GetSmackResponse_STATE_NOT_PRIVILEGED, true},
	} {
		h.Run(tc.name, func(t *testing.T) {
			h := h.with(t)
			// Another boot: nothing is policyd's, and what is there, somebody else's.
			if err := write("load2", "First Data -"); err != nil {
				t.Fatal(err)
			}
			defer h.rebooted()()
			if err := tc.cause(); err != nil {
				t.Fatal(err)
			}
			h.p = h.command()
			start := h.p.listen
			if tc.uncapable {
				start = func() {
					inThread(func() {
						if err := unix.Prctl(unix.PR_CAPBSET_DROP, unix.CAP_MAC_ADMIN, 0, 0, 0); err != nil {
							t.Error(err)
						}
						h.p.listen()
					})
				}
			}
			start()
			h.p.told("STATUS=not ready: policy first@1 is assigned to this host")
			h.p.logs(strings.ReplaceAll(tc.words, `"`, `\"`))
			h.smack = apiv1.NewSmackServiceClient(h.dial(nil))
			if s := h.state(); s.GetState() != tc.state || !strings.Contains(s.GetFailed(), tc.words) || s.GetPolicy() != "" {
				t.Errorf("%v: %q", s.GetState(), s)
			}
			h.stop()
			if err := tc.undo(); err != nil {
				t.Fatal(err)
			}
		})
	}
	if h.Failed() {
		return
	}
	h.start() // and all is well when nothing is in the way
	if s := h.state(); s.GetFailed() != "" || h.kernel()["First Data"] != "r" {
		h.Errorf("nothing in the way: %v", s)
	}
	if _, err := h.smack.Unload(ctx(h.T), &apiv1.UnloadRequest{}); err != nil {
		h.Error(err)
	}
	h.stop()
}

// notMounted: policyd serves, is not ready and starts nothing with a label until the assigned policy can be loaded.
func (h *smackTest) notMounted() {
	h.start()
	h.apply("late", "Late Data r")
	h.load(&apiv1.LoadRequest{Ref: "late"})
	h.stop()
	h.byHand("Late Data -")
	if err := unix.Unmount(string(smackfsDir), 0); err != nil {
		h.Fatal(err)
	}
	h.p = h.command()
	h.p.listen()
	h.p.told("STATUS=not ready: policy late@1 is assigned to this host: smackfs is not mounted")
	conn := h.dial(nil)
	h.smack = apiv1.NewSmackServiceClient(conn)
	if s := h.state(); s.GetState() != apiv1.GetSmackResponse_STATE_NOT_MOUNTED || s.GetFailed() == "" {
		h.Errorf("not mounted: %v", s)
	}
	health, err := healthv1.NewHealthClient(conn).Check(ctx(h.T), &healthv1.HealthCheckRequest{})
	if err != nil || health.GetStatus() != healthv1.HealthCheckResponse_NOT_SERVING {
		h.Errorf("health: %v %v", health, err)
	}
	if landlock.Probe().State == landlock.Available {
		_, err := apiv1.NewSandboxServiceClient(conn).Start(ctx(h.T), &apiv1.StartRequest{Spec: &apiv1.SandboxSpec{
			Ref: "sleep", Argv: []string{"/bin/true"}, SmackLabel: "Job",
		}})
		if status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), "late@1") {
			h.Errorf("a program with a label: %v", err)
		}
	}
	if err := unix.Mount("smackfs", string(smackfsDir), "smackfs", 0, ""); err != nil {
		h.Fatal(err)
	}
	h.p.told("READY=1")
	if s := h.state(); s.GetFailed() != "" || s.GetPolicy() != "late" || h.kernel()["Late Data"] != "r" {
		h.Errorf("mounted: %v", s)
	}
	h.stop()
}
