package main

import (
	"context"
	"net"
	"os"
	"strings"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/enforce/landlock"
	"policyd.dev/policyd/smack/smackfs"
)

// labelled dials from a thread with a label and of the user nobody, which nobody else runs on after.
func labelled(label string) func(context.Context, string) (net.Conn, error) {
	return func(ctx context.Context, path string) (net.Conn, error) {
		type result struct {
			conn net.Conn
			err  error
		}
		got := make(chan result, 1)
		inThread(func() {
			err := os.WriteFile("/proc/thread-self/attr/smack/current", []byte(label), 0)
			if err == nil {
				if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, 65534, 65534, 65534); errno != 0 {
					err = errno
				}
			}
			if err != nil {
				got <- result{nil, err}
				return
			}
			conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: path, Net: "unix"})
			got <- result{conn, err}
		})
		r := <-got
		return r.conn, r.err
	}
}

// clients get their roles by label.
func (h *smackTest) clients() {
	h.byHand("Watcher _ rwx", "_ Watcher rwx", "Other _ rwx", "_ Other rwx")
	h.start()
	for label, want := range map[string]codes.Code{"Watcher": codes.OK, "Other": codes.PermissionDenied} {
		c := apiv1.NewSmackServiceClient(h.dial(labelled(label)))
		if _, err := c.GetSmack(ctx(h.T), &apiv1.GetSmackRequest{}); status.Code(err) != want {
			h.Errorf("%s looks: %v", label, err)
		}
		if _, err := c.Revoke(ctx(h.T), &apiv1.RevokeRequest{Subject: "_"}); status.Code(err) != codes.PermissionDenied {
			h.Errorf("%s revokes: %v", label, err)
		}
	}
	h.stop()
}

// programs run with the label that was asked for.
func (h *smackTest) programs() {
	if landlock.Probe().State != landlock.Available {
		h.Skip("the kernel has no Landlock, so that nothing is started")
	}
	h.start()
	h.put(sleepPolicy)
	boxes := apiv1.NewSandboxServiceClient(h.dial(nil))
	run := func(label, pool string) (*apiv1.Sandbox, error) {
		res, err := boxes.Start(ctx(h.T), &apiv1.StartRequest{Spec: &apiv1.SandboxSpec{
			Ref: "sleep", Argv: []string{"/bin/sleep", "300"}, SmackLabel: label, SmackPool: pool,
		}})
		return res.GetSandbox(), err
	}
	end := func(sb *apiv1.Sandbox) {
		if _, err := boxes.Signal(ctx(h.T), &apiv1.SignalRequest{Id: sb.GetId(), All: true}); err != nil {
			h.Error(err)
		}
		if _, err := boxes.Wait(ctx(h.T), &apiv1.WaitRequest{Id: sb.GetId()}); err != nil {
			h.Error(err)
		}
	}
	var last []*apiv1.Sandbox
	for _, tc := range []struct{ label, pool, want string }{{"Job", "", "Job"}, {"", "Pool", "Pool-1"}, {"", "Pool", "Pool-2"}} {
		sb, err := run(tc.label, tc.pool)
		if err != nil {
			h.Fatalf("%+v: %v\n%s", tc, err, h.p.out)
		}
		last = append(last, sb)
		got, err := smackfs.ProcessLabel(int(sb.GetPid()))
		if err != nil || got != tc.want || sb.GetSmackLabel() != tc.want {
			h.Errorf("%+v: %q, recorded %q, %v", tc, got, sb.GetSmackLabel(), err)
		}
	}
	if _, err := run("", "Pool"); status.Code(err) != codes.ResourceExhausted {
		h.Errorf("a pool that is used up: %v", err)
	}
	for _, bad := range [][2]string{{"a/b", ""}, {"*", ""}, {"A", "B"}, {"", strings.Repeat("p", 255)}, {"", "-"}} {
		if _, err := run(bad[0], bad[1]); status.Code(err) != codes.InvalidArgument {
			h.Errorf("label %q, pool %.10q: %v", bad[0], bad[1], err)
		}
	}
	h.stop()
	h.start() // another policyd knows which labels are taken
	boxes = apiv1.NewSandboxServiceClient(h.dial(nil))
	if _, err := run("", "Pool"); status.Code(err) != codes.ResourceExhausted {
		h.Errorf("after a restart: %v", err)
	}
	end(last[1])
	if sb, err := run("", "Pool"); err != nil || sb.GetSmackLabel() != "Pool-1" {
		h.Errorf("given out again: %v %v", sb, err)
	} else {
		end(sb)
	}
	end(last[0])
	end(last[2])
	h.relabel(boxes)
	h.stop()
}

// relabel: the labels that the SmackPolicy in force lets programs take are in their list, and only then.
func (h *smackTest) relabel(boxes apiv1.SandboxServiceClient) {
	h.Helper()
	h.put(strings.Replace(sleepPolicy, "name: sleep", "name: look", 1) + "        - {allow: [read], at: [/sys]}\n")
	h.put("apiVersion: policyd/v1\nkind: SmackPolicy\nmetadata: {name: relabel}\nspec: {layers: [{rules: Job Data r}], settings: {relabelSelf: [Job-next]}}\n")
	list := func(want string) {
		h.Helper()
		res, err := boxes.Start(ctx(h.T), &apiv1.StartRequest{Spec: &apiv1.SandboxSpec{
			Ref: "look", Argv: []string{"/bin/sh", "-c", `read -r l </sys/fs/smackfs/relabel-self; [ "$l" = "$0" ]`, want}, SmackLabel: "Job",
		}})
		if err != nil {
			h.Fatal(err)
		}
		ended, err := boxes.Wait(ctx(h.T), &apiv1.WaitRequest{Id: res.GetSandbox().GetId()})
		if err != nil || ended.GetExit().GetCode() != 0 {
			h.Errorf("want %q in the list: %v, %v", want, ended, err)
		}
	}
	list("")
	h.load(&apiv1.LoadRequest{Ref: "relabel"})
	list("Job-next")
	if _, err := h.smack.Unload(ctx(h.T), &apiv1.UnloadRequest{}); err != nil {
		h.Error(err)
	}
	list("")
}
