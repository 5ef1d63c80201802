package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/nri/pkg/stub"

	"policyd.dev/policyd/enforce/profile"
	"policyd.dev/policyd/internal/containers"
)

// other is a plugin that comes after policyd-nri.
type other struct {
	change func(*api.ContainerAdjustment)
}

func (o *other) CreateContainer(context.Context, *api.PodSandbox, *api.Container) (*api.ContainerAdjustment, []*api.ContainerUpdate, error) {
	a := &api.ContainerAdjustment{}
	o.change(a)
	return a, nil, nil
}

// A plugin that comes later and undoes what this one did has the container refused.
func TestOtherPlugins(t *testing.T) {
	d := newDaemon(t)
	d.start()
	d.apply(box("box"))
	h := newHost(t, d.socket(), "index: \"50\"\n")
	h.startPlugin()
	h.logged("policyd is followed", 1)
	o := &other{}
	later, err := stub.New(o, stub.WithPluginName("other"), stub.WithPluginIdx("60"), stub.WithSocketPath(h.settings.NRISocket), stub.WithOnClose(func() {}))
	if err != nil {
		t.Fatal(err)
	}
	called := false
	o.change = func(*api.ContainerAdjustment) { called = true }
	if err := later.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(later.Stop)
	wait(t, func() error {
		if _, err := h.create(pod(), h.container("web", "true")); err != nil || !called {
			return context.DeadlineExceeded
		}
		return nil
	})
	for name, tc := range map[string]struct {
		change func(*api.ContainerAdjustment)
		err    string
	}{
		"nothing":       {func(*api.ContainerAdjustment) {}, ""},
		"its own":       {func(a *api.ContainerAdjustment) { a.AddEnv("A", "b"); a.AddMount(&api.Mount{Destination: "/srv"}) }, ""},
		"arguments":     {func(a *api.ContainerAdjustment) { a.UpdateArgs([]string{"/bin/other"}) }, "in the place of the launcher's"},
		"arguments set": {func(a *api.ContainerAdjustment) { a.SetArgs([]string{"/bin/other"}) }, "both tried to set"},
		"the folder":    {func(a *api.ContainerAdjustment) { a.RemoveMount("/dev/.policyd") }, "removed the mount"},
		"another launcher": {func(a *api.ContainerAdjustment) {
			a.RemoveMount("/dev/.policyd/launch")
			a.AddMount(&api.Mount{Destination: "/dev/.policyd/launch", Type: "bind", Source: "/bin/true"})
		}, "a mount on /dev/.policyd/launch"},
		"below the folder": {func(a *api.ContainerAdjustment) { a.AddMount(&api.Mount{Destination: "/dev/.policyd/more"}) }, "a mount on"},
		"over /dev":        {func(a *api.ContainerAdjustment) { a.AddMount(&api.Mount{Destination: "/dev/"}) }, "a mount on /dev"},
	} {
		o.change = tc.change
		c := h.container("web", "true", "x")
		_, err := h.create(pod(key, "box"), c)
		if tc.err == "" && err != nil || tc.err != "" && (err == nil || !strings.Contains(err.Error(), tc.err)) {
			t.Errorf("%s: %v, want %q", name, err, tc.err)
		}
		if o.change = func(*api.ContainerAdjustment) {}; tc.err == "" || tc.err == "both tried to set" {
			continue
		}
		if _, err := containers.Read(h.settings.Records, "", c.GetId()); err == nil {
			t.Errorf("%s: there is a record of a container that was refused", name)
		}
	}
}

// A runtime that would ignore changed arguments gets no container confined: they would run as they are.
func TestOldRuntimes(t *testing.T) {
	for _, tc := range []struct {
		nri, runtime, version string
		ok                    bool
	}{
		{"v0.10.0", "containerd", "v2.2.0", true},
		{"0.12.5", "", "", true},
		{"v0.11.1-rc.1", "other", "1", true},
		{"v1.0.0", "", "", true},
		{"v0.8.0", "containerd", "v2.1.0", false},
		{"v0.9.0", "containerd", "v2.2.0", false}, // its own word counts
		{"", "containerd", "2.2.1+unknown", true},
		{"", "containerd", "2.2.1~ds1-1", true},
		{"0.0.0-unknown", "containerd", "v2.10.0", true},
		{"(devel)", "containerd", "v3.0.0-beta.1", true},
		{"", "containerd", "1.7.24", false},
		{"", "containerd", "2.1.9", false},
		{"", "containerd", "2", false},
		{"", "containerd", "", false},
		{"", "CRI-O", "1.34.2", true},
		{"", "cri-o", "1.33.9", false},
		{"", "cri-o", "0.0.0", false},
		{"", "other", "9.9.9", false},
		{"unknown", "nri", "x.10", false},
	} {
		p := &plugin{}
		f := func() string { return tc.nri }
		p.version.Store(&f)
		p.runtime.Store(&[2]string{tc.runtime, tc.version})
		if err := p.takesArguments(); (err == nil) != tc.ok || err != nil && !strings.Contains(err.Error(), "use policyd-runc") {
			t.Errorf("%+v: %v", tc, err)
		}
	}
	if (&plugin{}).takesArguments() == nil {
		t.Error("before a runtime has said what it is")
	}
}

func TestSettings(t *testing.T) {
	dir := t.TempDir()
	launcher := filepath.Join(dir, "policyd-launch")
	if err := os.WriteFile(launcher, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{
		"":                                     "",
		"index: \"05\"\nselect: bindings\n":    "",
		"runtimeHandlers: [\"\", confined]\n":  "",
		"unannotated: refuse\nprofile: web\n":  "",
		"index: \"5\"\n":                       "two digits",
		"index: ab\n":                          "two digits",
		"select: both\n":                       "neither annotations nor bindings",
		"select: bindings\nprofile: web\n":     "mean nothing",
		"unannotated: maybe\n":                 "neither run nor refuse",
		"nriSocket: nri.sock\n":                "no absolute path",
		"runtimeRoot: runc\n":                  "no absolute path",
		"exceptNamespaces: [\"\"]\n":           "without a name",
		"socke: /x\n":                          "socke",
		"launcher: " + dir + "\n":              "cannot be executed",
		"launcher: " + dir + "/none\n":         "no such file",
		"launcher: /etc/passwd\n":              "cannot be executed",
		"launcher: /bin/sh\n":                  "/bin/sh is linked dynamically",
		"select: annotations\nselect: again\n": "select",
	} {
		mode := os.FileMode(0o755)
		if err := os.Chmod(launcher, mode); err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(dir, "nri.yaml")
		if !strings.Contains(text, "launcher:") {
			text += "launcher: " + launcher + "\n"
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := loadSettings(file)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), "configuration: ") && !strings.HasPrefix(err.Error(), "launcher: ")) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
	if _, err := loadSettings(dir + "/absent.yaml"); err == nil {
		t.Error("a configuration that is named and not there")
	}
	open := filepath.Join(dir, "open.yaml")
	if err := os.WriteFile(open, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(open, 0o666); err != nil {
		t.Fatal(err)
	}
	if _, err := loadSettings(open); err == nil || !strings.Contains(err.Error(), "may be able to write") {
		t.Errorf("a configuration that others may write: %v", err)
	}
}

// The limits stand where whoever relies on the plugin looks: in the help, and in the log of every start.
func TestLimitsAreTold(t *testing.T) {
	var out, errOut bytes.Buffer
	if code := run(t.Context(), []string{"--help"}, &out, &errOut); code != exitOK || errOut.Len() > 0 {
		t.Fatalf("exit %d, %s", code, errOut.String())
	}
	dir := t.TempDir()
	launcher, config := filepath.Join(dir, "launch"), filepath.Join(dir, "nri.yaml")
	for path, text := range map[string]string{launcher: "", config: "launcher: " + launcher + "\nnriSocket: " + dir + "/nri.sock\nsocket: " + dir + "/policyd.sock\nstate: " + dir + "/state\nrecords: " + dir + "/records\n"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(launcher, 0o755); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if code := run(ctx, []string{"--config", config}, &bytes.Buffer{}, &errOut); code != exitOK {
		t.Errorf("exit %d: %s", code, errOut.String())
	}
	for _, l := range limits {
		if !strings.Contains(out.String(), l) {
			t.Errorf("the help does not tell: %s", l)
		}
		if !strings.Contains(errOut.String(), l) {
			t.Errorf("not told at the start: %s", l)
		}
	}
	for _, tc := range []struct {
		args []string
		code int
	}{
		{[]string{"--version"}, exitOK},
		{[]string{"--config", config, "--check"}, exitOK},
		{[]string{"--config", dir + "/absent", "--check"}, exitUsage},
		{[]string{"--nothing"}, exitUsage},
		{[]string{"more"}, exitUsage},
	} {
		if code := run(t.Context(), tc.args, &bytes.Buffer{}, &bytes.Buffer{}); code != tc.code {
			t.Errorf("%q: exit %d, want %d", tc.args, code, tc.code)
		}
	}
}

// Files of profiles go when neither an answer nor a container needs them, and not in the first minute.
func TestProfileFiles(t *testing.T) {
	m := newMemory(&settings{State: t.TempDir(), Records: t.TempDir()}, nil)
	old := time.Now().Add(-time.Hour)
	var digests []string
	for _, text := range []string{"held", "used", "left", "young"} {
		digest := profile.Digest([]byte(text))
		path, err := m.keepProfile(digest, []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		digests = append(digests, digest)
		if text != "young" {
			if err := os.Chtimes(path, old, old); err != nil {
				t.Fatal(err)
			}
		}
	}
	m.put(&answer{question: question{ref: "a"}, digest: digests[0]})
	if err := containers.Write(m.settings.Records, &containers.Record{ID: "c", Version: "b@1", Digest: digests[1], Engine: engine, Created: time.Now()}); err != nil {
		t.Fatal(err)
	}
	if err := m.clear(); err != nil {
		t.Fatal(err)
	}
	for i, want := range []bool{true, true, false, true} {
		if _, err := os.Stat(m.profileFile(digests[i])); (err == nil) != want {
			t.Errorf("file %d: %v", i, err)
		}
	}
	// A damaged file is made anew.
	path := m.profileFile(digests[0])
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("hel"), 0o444); err != nil {
		t.Fatal(err)
	}
	if _, err := m.keepProfile(digests[0], []byte("held")); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(path); err != nil || string(b) != "held" {
		t.Errorf("%q, %v", b, err)
	}
}

// Questions of containers are held for the next time, the oldest go first, and values do not run into one another.
func TestQuestions(t *testing.T) {
	m := newMemory(&settings{}, nil)
	for i := range extraMost + 10 {
		m.want(question{ref: "a", parameters: map[string]string{"p": strings.Repeat("x", i)}})
	}
	if n := len(m.extras()); n != extraMost {
		t.Errorf("%d are held", n)
	}
	if n := len(m.takeFresh()); n != extraMost {
		t.Errorf("%d are to be asked", n)
	}
	seen := map[string]question{}
	for _, q := range []question{
		{ref: "a"},
		{decides: unmatched},
		{decides: unmatched, parameters: map[string]string{"b": ""}},
		{decides: "a@1", ref: "a"},
		{decides: "a@1", ref: "a", parameters: map[string]string{"b": ""}},
		{ref: "a", parameters: map[string]string{"b": ""}},
		{ref: "a", parameters: map[string]string{"b": "c"}},
		{ref: "a", parameters: map[string]string{"b": "", "c": ""}},
		{ref: "a", parameters: map[string]string{"b": "\x00c\x000:"}},
	} {
		if before, twice := seen[q.key()]; twice {
			t.Errorf("%v and %v have one key", before, q)
		}
		seen[q.key()] = q
	}
}
