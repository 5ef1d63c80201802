package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/adaptation"
	"github.com/containerd/nri/pkg/api"
	nrilog "github.com/containerd/nri/pkg/log"
	validator "github.com/containerd/nri/plugins/default-validator/builtin"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/internal/cli"
)

// built tells that programs has made something.
var built atomic.Bool

// programs builds policyd and the launcher and gives their folder.
var programs = sync.OnceValues(func() (dir string, err error) {
	if dir, err = os.MkdirTemp("", "policyd-nri"); err != nil {
		return "", err
	}
	built.Store(true)
	cmd := exec.Command("go", "build", "-o", dir+"/", "../policyd", "../policyd-launch")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return dir, fmt.Errorf("%w\n%s", err, out)
	}
	return dir, os.Chmod(dir, 0o755)
})

func TestMain(m *testing.M) {
	nrilog.Set(nriLog{slog.New(slog.DiscardHandler)})
	code := m.Run()
	if built.Load() {
		dir, _ := programs()
		os.RemoveAll(dir)
	}
	os.Exit(code)
}

// daemon is a policyd with a state folder of its own.
type daemon struct {
	t   *testing.T
	dir string
	cmd *exec.Cmd
	out bytes.Buffer
	*cli.Client
}

// newDaemon prepares one that does not run yet.
func newDaemon(t *testing.T) *daemon {
	t.Helper()
	d := &daemon{t: t, dir: t.TempDir()}
	c, err := cli.Dial(d.socket())
	if err != nil {
		t.Fatal(err)
	}
	d.Client = c
	t.Cleanup(func() {
		d.stop()
		d.Close()
		if t.Failed() {
			t.Logf("policyd: %s", d.out.String())
		}
	})
	return d
}

func (d *daemon) socket() string { return d.dir + "/policyd/run/policyd.sock" }

// configure writes its configuration, for the next start.
func (d *daemon) configure(text string) {
	d.t.Helper()
	if err := os.WriteFile(d.dir+"/policyd.yaml", []byte(text), 0o600); err != nil {
		d.t.Fatal(err)
	}
}

func (d *daemon) start() {
	d.t.Helper()
	bin, err := programs()
	if err != nil {
		d.t.Fatal(err)
	}
	if _, err := os.Stat(d.dir + "/policyd.yaml"); err != nil {
		d.configure("")
	}
	d.cmd = exec.Command(bin+"/policyd", "--config", d.dir+"/policyd.yaml", "--state-dir", d.dir+"/policyd")
	d.cmd.Stdout, d.cmd.Stderr = &d.out, &d.out
	if err := d.cmd.Start(); err != nil {
		d.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(d.t.Context(), 30*time.Second)
	defer cancel()
	for d.Ready(ctx) != nil {
		if ctx.Err() != nil {
			d.t.Fatal("policyd does not answer")
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func (d *daemon) stop() {
	if d.cmd != nil {
		_ = d.cmd.Process.Signal(syscall.SIGTERM)
		_ = d.cmd.Wait()
	}
	d.cmd = nil
}

func (d *daemon) apply(text string) {
	d.t.Helper()
	if _, err := d.Policies.Apply(d.t.Context(), &apiv1.ApplyRequest{Files: []*apiv1.SourceFile{{Name: "p", Content: []byte(text)}}}); err != nil {
		d.t.Fatal(err)
	}
}

// box is a policy of a container of busybox; more is of its grants.
func box(name string, more ...string) string {
	text := "apiVersion: policyd/v1\nkind: LandlockPolicy\nmetadata: {name: " + name + "}\nspec:\n  abi: 3\n"
	if len(more) > 0 && strings.HasPrefix(more[0], "  parameters") {
		text, more = text+more[0]+"\n", more[1:]
	}
	text += "  layers:\n    - paths:\n        - {allow: [read, execute], at: [/bin, /data]}\n"
	for _, m := range more {
		text += "        - " + m + "\n"
	}
	return text + "---\n"
}

// host is what a container runtime is for NRI, and the plugin on it.
type host struct {
	t        *testing.T
	dir      string
	settings *settings
	log      *lockedBuffer
	runtime  *adaptation.Adaptation
	n        atomic.Int32
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// newHost starts a runtime and a plugin with more of a configuration.
func newHost(t *testing.T, socket, more string) *host {
	t.Helper()
	bin, err := programs()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	h := &host{t: t, dir: dir, log: &lockedBuffer{}}
	h.put("nri.yaml", fmt.Sprintf("nriSocket: %[1]s/nri.sock\nlauncher: %[2]s/policyd-launch\nsocket: %[3]s\nstate: %[1]s/state\nrecords: %[1]s/records\n%[4]s", dir, bin, socket, more))
	if h.settings, err = loadSettings(dir + "/nri.yaml"); err != nil {
		t.Fatal(err)
	}
	h.settings.node = "node-7"
	h.startRuntime()
	t.Cleanup(func() { h.runtime.Stop() })
	return h
}

// startPlugin runs the plugin until the test ends and waits until the runtime has it.
func (h *host) startPlugin() {
	h.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- serve(ctx, h.settings, slog.New(slog.NewTextHandler(h.log, nil))) }()
	h.t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			h.t.Error(err)
		}
		if h.t.Failed() {
			h.t.Logf("policyd-nri: %s", h.log.String())
		}
	})
	h.logged("registered with the runtime", 1)
	h.connected()
}

// connected waits until the runtime asks the plugin, which is a little after it has registered.
func (h *host) connected() {
	h.t.Helper()
	wait(h.t, func() error {
		_, err := h.create(pod("required-plugins.noderesource.dev", "[policyd]"), h.container("first", "true"))
		if err != nil && !strings.Contains(err.Error(), "policyd-nri") { // refused by it is asked, too
			return err
		}
		return nil
	})
}

// logged waits until the plugin's log has a text so many times.
func (h *host) logged(text string, times int) {
	h.t.Helper()
	wait(h.t, func() error {
		if n := strings.Count(h.log.String(), text); n < times {
			return fmt.Errorf("the log has %q %d times, want %d", text, n, times)
		}
		return nil
	})
}

func wait(t *testing.T, f func() error) {
	t.Helper()
	var err error
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if err = f(); err == nil {
			return
		}
	}
	t.Fatal(err)
}

func (h *host) startRuntime() {
	h.t.Helper()
	sync := func(ctx context.Context, synchronized adaptation.SyncCB) error {
		_, err := synchronized(ctx, nil, nil)
		return err
	}
	update := func(context.Context, []*api.ContainerUpdate) ([]*api.ContainerUpdate, error) { return nil, nil }
	r, err := adaptation.New("containerd", "2.2.1", sync, update, adaptation.WithSocketPath(h.dir+"/nri.sock"),
		adaptation.WithPluginPath(h.dir+"/plugins"), adaptation.WithPluginConfigPath(h.dir+"/conf"),
		adaptation.WithDefaultValidator(&validator.DefaultValidatorConfig{Enable: true}))
	if err != nil {
		h.t.Fatal(err)
	}
	if err := r.Start(); err != nil {
		h.t.Fatal(err)
	}
	h.runtime = r
}

func (h *host) put(name, text string) {
	h.t.Helper()
	path := filepath.Join(h.dir, name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
		h.t.Fatal(err)
	}
}

// pod is one of Kubernetes, with annotations by key and value.
func pod(annotations ...string) *api.PodSandbox {
	p := &api.PodSandbox{Id: "pod", Name: "web-0", Namespace: "edge", Annotations: map[string]string{}, Labels: map[string]string{"app": "web"}}
	for i := 0; i+1 < len(annotations); i += 2 {
		p.Annotations[annotations[i]] = annotations[i+1]
	}
	return p
}

// container is one that would run argv.
func (h *host) container(name string, argv ...string) *api.Container {
	return &api.Container{
		Id: fmt.Sprintf("policyd-nri-%d-%d", os.Getpid(), h.n.Add(1)), PodSandboxId: "pod", Name: name, Args: argv,
		Annotations: map[string]string{"io.kubernetes.cri.container-type": "container", "io.kubernetes.cri.image-name": "nginx:1"},
		Mounts: []*api.Mount{
			{Destination: "/proc", Type: "proc", Source: "proc"},
			{Destination: "/dev", Type: "tmpfs", Source: "tmpfs", Options: []string{"nosuid", "strictatime", "mode=755", "size=65536k"}},
		},
	}
}

// create asks the plugins as a runtime does. adjust is nil when they left the container as it is.
func (h *host) create(p *api.PodSandbox, c *api.Container) (*api.ContainerAdjustment, error) {
	res, err := h.runtime.CreateContainer(context.Background(), &api.CreateContainerRequest{Pod: p, Container: c})
	if err != nil || len(res.GetAdjust().GetArgs())+len(res.GetAdjust().GetMounts()) == 0 {
		return nil, err
	}
	return res.GetAdjust(), nil
}

// under waits until such a container would run under a version.
func (h *host) under(p *api.PodSandbox, version string) {
	h.t.Helper()
	wait(h.t, func() error {
		a, err := h.create(p, h.container("web", "true"))
		if got := a.GetAnnotations()["policyd.dev/version"]; err != nil || got != version {
			return fmt.Errorf("a container runs under %q (%w), want %q", got, err, version)
		}
		return nil
	})
}

// bundle makes a container's root file system and its config.json with the adjustment, as a runtime does.
func (h *host) bundle(c *api.Container, a *api.ContainerAdjustment, busybox []byte) (dir string) {
	h.t.Helper()
	text, err := os.ReadFile("../../enforce/oci/testdata/runc-spec.json")
	if err != nil {
		h.t.Fatal(err)
	}
	var spec map[string]any
	if err := json.Unmarshal(text, &spec); err != nil {
		h.t.Fatal(err)
	}
	process := spec["process"].(map[string]any)
	process["terminal"], process["args"] = false, c.GetArgs()
	delete(process, "rlimits") // more than the machine of the tests may allow
	if args := a.GetArgs(); len(args) > 0 {
		process["args"] = args
	}
	mounts := spec["mounts"].([]any)
	for _, m := range a.GetMounts() {
		mounts = append(mounts, map[string]any{"destination": m.GetDestination(), "type": m.GetType(), "source": m.GetSource(), "options": m.GetOptions()})
	}
	spec["mounts"], spec["annotations"] = mounts, a.GetAnnotations()
	if text, err = json.Marshal(spec); err != nil {
		h.t.Fatal(err)
	}
	h.put(c.GetId()+"/config.json", string(text))
	h.put(c.GetId()+"/rootfs/bin/busybox", string(busybox))
	h.put(c.GetId()+"/rootfs/secret", "told\n")
	h.put(c.GetId()+"/rootfs/data/open", "open\n")
	dir = filepath.Join(h.dir, c.GetId())
	if err := os.Chmod(dir+"/rootfs/bin/busybox", 0o755); err != nil {
		h.t.Fatal(err)
	}
	for _, applet := range []string{"sh", "cat", "true", "ls"} {
		if err := os.Symlink("busybox", filepath.Join(dir, "rootfs/bin", applet)); err != nil {
			h.t.Fatal(err)
		}
	}
	return dir
}

func testLog(h *host) *slog.Logger { return slog.New(slog.NewTextHandler(h.log, nil)) }
