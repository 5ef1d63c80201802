package main

import (
	"context"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/internal/testkernel"
	"policyd.dev/policyd/smack/smackfs"
	"policyd.dev/policyd/smack/smacktest"
)

// killEnv is the path of a file. While it is there, a daemon of tests counts its writes to smackfs, and kills itself
// with SIGKILL instead of the one whose number, from 0 on, is in the file.
const killEnv = "POLICYD_TEST_SMACK_KILL"

func killedWriting(file string) {
	if file == "" {
		return
	}
	n := 0
	findSmackfs = func() (smackfs.FS, error) {
		fs, err := smackfs.Find()
		return &countingFS{fs, file, &n}, err
	}
}

type countingFS struct {
	smackfs.FS
	killAt string
	writes *int
}

func (f *countingFS) Unwrap() smackfs.FS { return f.FS }

func (f *countingFS) Open(name string, flag int) (smackfs.File, error) {
	file, err := f.FS.Open(name, flag)
	if err != nil || flag == unix.O_RDONLY {
		return file, err
	}
	return countingFile{file, f}, nil
}

type countingFile struct {
	smackfs.File
	fs *countingFS
}

func (f countingFile) Write(p []byte) (int, error) {
	if at, err := os.ReadFile(f.fs.killAt); err == nil && len(p) > 0 {
		if string(at) == strconv.Itoa(*f.fs.writes) {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
		*f.fs.writes++
	}
	return f.File.Write(p)
}

// TestSmackHost is policyd on kernels with Smack: beside the rules of others, killed in loads, after a reboot, with clients by label,
// with programs by label, and without smackfs.
func TestSmackHost(t *testing.T) {
	testkernel.Each(t, testkernel.Smack, func(t *testing.T) {
		testkernel.RequireRoot(t)
		h := &smackTest{T: t, dir: folder(t)}
		if err := os.Chmod(h.dir, 0o755); err != nil { // clients of other users
			t.Fatal(err)
		}
		h.config = filepath.Join(h.dir, "policyd.yaml")
		if err := os.WriteFile(h.config, []byte("roles: [{role: viewer, smackLabels: [Watcher]}]\nsmack: {poolSize: 2}\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		t.Run("large", func(t *testing.T) { h.with(t).large() })
		t.Run("killed", func(t *testing.T) { h.with(t).killed() })
		t.Run("drift and reboot", func(t *testing.T) { h.with(t).reboot() })
		t.Run("clients by label", func(t *testing.T) { h.with(t).clients() })
		t.Run("programs by label", func(t *testing.T) { h.with(t).programs() })
		t.Run("boot fails", func(t *testing.T) { h.with(t).bootFails() })
		t.Run("not mounted", func(t *testing.T) { h.with(t).notMounted() })
	}, testkernel.Memory(768))
}

type smackTest struct {
	*testing.T
	dir, config string
	p           *process
	smack       apiv1.SmackServiceClient
}

func (h *smackTest) with(t *testing.T) *smackTest {
	return &smackTest{T: t, dir: h.dir, config: h.config}
}

func (h *smackTest) command(env ...string) *process {
	h.Helper()
	p := command(h.T, h.dir, "--config", h.config, "--listen", "unix://"+filepath.Join(h.dir, "s"), "--socket-mode", "0666")
	p.cmd.Env = append(p.cmd.Env, env...)
	return p
}

// start starts policyd and waits until it is ready.
func (h *smackTest) start(env ...string) {
	h.Helper()
	h.p = h.command(env...)
	h.p.run()
	h.smack = apiv1.NewSmackServiceClient(h.dial(nil))
}

func (h *smackTest) stop() { h.p.stop(syscall.SIGTERM) }

func (h *smackTest) dial(dialer func(context.Context, string) (net.Conn, error)) *grpc.ClientConn {
	h.Helper()
	if dialer == nil {
		dialer = func(ctx context.Context, path string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", path)
		}
	}
	conn, err := grpc.NewClient("passthrough:///"+filepath.Join(h.dir, "s"), grpc.WithContextDialer(dialer), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		h.Fatal(err)
	}
	h.Cleanup(func() { conn.Close() })
	return conn
}

// apply stores a policy of one layer.
func (h *smackTest) apply(name, rules string) {
	h.Helper()
	text := fmt.Sprintf("apiVersion: policyd/v1\nkind: SmackPolicy\nmetadata: {name: %s}\nspec:\n  layers:\n    - rules: |\n        %s\n",
		name, strings.ReplaceAll(strings.TrimSpace(rules), "\n", "\n        "))
	h.put(text)
}

func (h *smackTest) put(text string) {
	h.Helper()
	_, err := apiv1.NewPolicyServiceClient(h.dial(nil)).Apply(ctx(h.T), &apiv1.ApplyRequest{Files: []*apiv1.SourceFile{{Name: "p.yaml", Content: []byte(text)}}})
	if err != nil {
		h.Fatal(err)
	}
}

func (h *smackTest) load(req *apiv1.LoadRequest) *apiv1.LoadResponse {
	h.Helper()
	res, err := h.smack.Load(ctx(h.T), req)
	if err != nil {
		h.Fatalf("%v\n%s", err, h.p.out)
	}
	return res
}

func (h *smackTest) state() *apiv1.GetSmackResponse {
	h.Helper()
	s, err := h.smack.GetSmack(ctx(h.T), &apiv1.GetSmackRequest{})
	if err != nil {
		h.Fatalf("%v\n%s", err, h.p.out)
	}
	return s
}

const smackfsDir = smackfs.Dir("/sys/fs/smackfs")

func (h *smackTest) kernel() map[string]string {
	h.Helper()
	rules, err := smackfs.ReadRules(smackfsDir)
	if err != nil {
		h.Fatal(err)
	}
	out := map[string]string{}
	for r := range rules.All() {
		out[r.Subject+" "+r.Object] = r.Access.String()
	}
	return out
}

// byHand writes rules as anybody might who is root.
func (h *smackTest) byHand(rules ...string) {
	h.Helper()
	for _, r := range rules {
		if err := os.WriteFile(string(smackfsDir)+"/load2", []byte(r+"\n"), 0); err != nil {
			h.Fatal(err)
		}
	}
}

// large loads 17,000 rules over 500 labels, changes them and rolls back.
func (h *smackTest) large() {
	others := h.kernel()
	h.start()
	h.apply("big", string(smacktest.Platform.Text()))
	h.load(&apiv1.LoadRequest{Ref: "big"})
	was := h.kernel()
	h.apply("big", string(smacktest.Shape{Rules: 17000, Labels: 500, Seed: 9}.Text()))
	h.load(&apiv1.LoadRequest{Ref: "big"})
	if s := h.state(); s.GetVersion() != 2 || s.GetDriftTotal() != 0 {
		h.Fatalf("second version: drift %d of %s@%d", s.GetDriftTotal(), s.GetPolicy(), s.GetVersion())
	}
	h.load(&apiv1.LoadRequest{Ref: "big@1"})
	if !maps.Equal(h.kernel(), was) {
		h.Fatal("rolled back, and the kernel has other rules")
	}
	if _, err := h.smack.Unload(ctx(h.T), &apiv1.UnloadRequest{}); err != nil || !maps.Equal(h.kernel(), others) {
		h.Errorf("unloaded: %v, %d rules", err, len(h.kernel()))
	}
	h.stop()
}

// killed kills policyd before every write of a load, of rules and of settings; the next one brings what was before back.
func (h *smackTest) killed() {
	at := filepath.Join(h.dir, "kill")
	version := func(from int, ambient string) string {
		var b strings.Builder
		for i := range 50 { // long labels: few rules make several writes
			fmt.Fprintf(&b, "        Killed%[1]s%02[2]d Killed%[1]s%02[3]d rw\n", strings.Repeat("x", 80), i, i+from)
		}
		return "apiVersion: policyd/v1\nkind: SmackPolicy\nmetadata: {name: long}\nspec:\n  layers:\n    - rules: |\n" + b.String() +
			"  settings: {ambient: " + ambient + ", ptrace: 1}\n"
	}
	shows := func() map[string]string {
		all := h.kernel()
		for _, name := range []string{"ambient", "ptrace"} {
			b, err := os.ReadFile(filepath.Join(string(smackfsDir), name))
			if err != nil {
				h.Fatal(err)
			}
			all[name] = string(b)
		}
		return all
	}
	env := killEnv + "=" + at
	h.start(env)
	h.put(version(1, "KilledBefore"))
	h.put(version(2, "KilledAfter"))
	h.load(&apiv1.LoadRequest{Ref: "long@1"})
	was := shows()
	for n := 0; ; n++ {
		if err := os.WriteFile(at, []byte(strconv.Itoa(n)), 0o600); err != nil {
			h.Fatal(err)
		}
		_, err := h.smack.Load(ctx(h.T), &apiv1.LoadRequest{Ref: "long@2"})
		if err := os.Remove(at); err != nil {
			h.Fatal(err)
		}
		if err == nil {
			if n < 5 {
				h.Errorf("only %d writes: the test is too small", n)
			}
			break
		}
		if status.Code(err) != codes.Unavailable {
			h.Fatalf("killed at write %d: %v", n, err)
		}
		<-h.p.done
		if maps.Equal(shows(), was) != (n == 0) {
			h.Fatalf("killed at write %d, and the kernel is as before: %v", n, n > 0)
		}
		h.start(env)
		if s := h.state(); s.GetVersion() != 1 || s.GetDriftTotal() != 0 || len(s.GetSettingsDrift()) != 0 || !strings.Contains(s.GetInterrupted(), "long@2 was cut off and is undone") {
			h.Errorf("killed at write %d: %s@%d in force, drift %d, %q, %q", n, s.GetPolicy(), s.GetVersion(), s.GetDriftTotal(), s.GetSettingsDrift(), s.GetInterrupted())
		}
		if !maps.Equal(shows(), was) {
			h.Errorf("killed at write %d: the kernel has other rules or settings than before", n)
		}
	}
	if _, err := h.smack.Unload(ctx(h.T), &apiv1.UnloadRequest{}); err != nil {
		h.Error(err)
	}
	for name, value := range map[string]string{"ambient": "_", "ptrace": "0"} {
		if err := os.WriteFile(filepath.Join(string(smackfsDir), name), []byte(value), 0); err != nil {
			h.Error(err)
		}
	}
	h.stop()
}

// rebooted makes the kernel another boot's for those who ask, until the function is called.
func (h *smackTest) rebooted() func() {
	h.Helper()
	id := filepath.Join(h.dir, "boot_id")
	if err := os.WriteFile(id, []byte("11111111-2222-3333-4444-555555555555\n"), 0o644); err != nil {
		h.Fatal(err)
	}
	const bootID = "/proc/sys/kernel/random/boot_id"
	if err := unix.Mount(id, bootID, "", unix.MS_BIND, ""); err != nil {
		h.Fatal(err)
	}
	return func() {
		if err := unix.Unmount(bootID, 0); err != nil {
			h.Error(err)
		}
	}
}

// reboot sees drift made by hand, and loads the assigned policy after a reboot, as far as a test can make one.
func (h *smackTest) reboot() {
	h.start()
	h.apply("a", "Reboot Data rwx\nReboot Log a")
	h.load(&apiv1.LoadRequest{Ref: "a"})
	h.byHand("Reboot Data r", "Hand Data r")
	s := h.state()
	if s.GetDriftTotal() != 1 || len(s.GetDrift()) != 1 || s.GetDrift()[0].GetKernel() != "r" || s.GetDrift()[0].GetPolicy() != "rwx" {
		h.Errorf("drift: %v", s)
	}
	if c, err := h.smack.CheckAccess(ctx(h.T), &apiv1.CheckAccessRequest{Subject: "Reboot", Object: "Data", Access: "w", Kernel: true}); err != nil || !c.GetAllowed() || c.GetKernelAnswer() != "0" {
		h.Errorf("check: %v %v", c, err)
	}
	h.stop()

	// Nothing is left in the kernel, which has another id.
	for pair := range h.kernel() {
		h.byHand(pair + " -")
	}
	defer h.rebooted()()
	h.start()
	if got, want := h.kernel(), (map[string]string{"Reboot Data": "rwx", "Reboot Log": "a"}); !maps.Equal(got, want) {
		h.Errorf("after a reboot: %v", got)
	}
	if s := h.state(); s.GetPolicy() != "a" || !s.GetAssigned() || s.GetOwn() != 2 {
		h.Errorf("after a reboot: %v", s)
	}
	if n, err := h.smack.Revoke(ctx(h.T), &apiv1.RevokeRequest{Subject: "Reboot"}); err != nil || n.GetRevoked() != 2 || len(h.kernel()) != 0 {
		h.Errorf("revoked: %v %v %v", n, err, h.kernel())
	}
	if _, err := h.smack.Unload(ctx(h.T), &apiv1.UnloadRequest{}); err != nil {
		h.Error(err)
	}
	h.stop()
}
