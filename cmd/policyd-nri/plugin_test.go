package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/api"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/enforce/landlock"
	"policyd.dev/policyd/internal/containers"
	"policyd.dev/policyd/internal/testkernel"
)

const key = "policyd.dev/profile"

// param is a policy with a parameter.
var param = box("param", "  parameters: [{name: state, within: [/data]}, open]\n  variables: {state: [/data], open: [/srv]}", `{allow: [read], at: ["${state}", "${open}"], missing: skip}`)

// run makes a container of what the runtime answered, by runc.
func (h *host) run(runc string, busybox []byte, p *api.PodSandbox, c *api.Container) (out, errOut string, err error) {
	h.t.Helper()
	a, err := h.create(p, c)
	if err != nil {
		return "", "", err
	}
	dir := h.bundle(c, a, busybox)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, runc, "--root", h.dir+"/runc", "run", "--bundle", dir, c.GetId())
	var o, e bytes.Buffer
	cmd.Stdout, cmd.Stderr = &o, &e
	err = cmd.Run()
	return o.String(), e.String(), err
}

// Containers of the real runc, with what the plugin answered to a real runtime's side of NRI.
func TestContainersAreConfined(t *testing.T) {
	testkernel.RequireRoot(t)
	if sup := landlock.Probe(); sup.State != landlock.Available {
		testkernel.Skip(t, "Landlock", sup.Err.Error())
	}
	runc := testkernel.RequireTool(t, "runc", "apt-get install runc")
	busybox, err := os.ReadFile(testkernel.RequireTool(t, "busybox", "apt-get install busybox-static"))
	if err != nil {
		t.Fatal(err)
	}
	d := newDaemon(t)
	d.start()
	d.apply(box("box") + box("open", "{allow: [read], at: [/secret]}"))
	h := newHost(t, d.socket(), "")
	h.startPlugin()
	h.logged("policyd is followed", 1)
	for _, tc := range []struct {
		name        string
		pod         *api.PodSandbox
		want, wrong string
	}{
		{"pod", pod(key, "box"), "open\n", "cat: can't open '/secret': Permission denied\n"},
		{"container over pod", pod(key, "box", key+"/container.web", "open"), "open\ntold\n", ""},
		{"none", pod(), "open\ntold\n", ""},
	} {
		out, errOut, err := h.run(runc, busybox, tc.pod, h.container("web", "cat", "/data/open", "/secret"))
		if out != tc.want || errOut != tc.wrong || (err != nil) != (tc.wrong != "") {
			t.Errorf("%s: %v, %q, %q, want %q, %q", tc.name, err, out, errOut, tc.want, tc.wrong)
		}
	}

	// The container keeps what it was created under; the next one gets what is newest.
	d.apply(box("box", "{allow: [read], at: [/secret]}"))
	h.under(pod(key, "box"), "box@2")
	if out, errOut, err := h.run(runc, busybox, pod(key, "box"), h.container("web", "cat", "/secret")); err != nil || out != "told\n" {
		t.Errorf("under the next version: %v, %q, %q", err, out, errOut)
	}
}

// Which containers are confined under what, as the runtime sees it.
func TestAnnotations(t *testing.T) {
	d := newDaemon(t)
	d.start()
	d.apply(box("box") + box("other") + param + strings.Replace(box("limited"), "spec:\n", "spec:\n  process: {umask: \"0077\"}\n", 1))
	ctx := t.Context()
	if _, err := d.Policies.SetTag(ctx, &apiv1.SetTagRequest{Kind: "LandlockPolicy", Ref: "box@1", Tag: "stable"}); err != nil {
		t.Fatal(err)
	}
	h := newHost(t, d.socket(), "exceptNamespaces: [kube-system]\nruntimeHandlers: [\"\", confined]\n")
	if h.settings.RuntimeHandlers[0] != "" {
		t.Fatal("the default handler has no name")
	}
	h.startPlugin()
	h.logged("policyd is followed", 1)
	system := pod(key, "absent")
	system.Namespace = "kube-system"
	wrapped := pod(key, "absent")
	wrapped.RuntimeHandler = "policyd"
	confined := pod(key, "box")
	confined.RuntimeHandler = "confined"
	sandbox := h.container("", "/pause")
	sandbox.Annotations["io.kubernetes.cri.container-type"] = "sandbox"
	noDev := h.container("web", "true")
	noDev.Mounts = noDev.Mounts[:1]
	taken := h.container("web", "true")
	taken.Mounts = append(taken.Mounts, &api.Mount{Destination: "/dev/.policyd/launch", Type: "bind", Source: "/bin/true"})
	own := h.container("web", "true")
	own.Annotations[key] = "other"
	for _, tc := range []struct {
		name string
		pod  *api.PodSandbox
		c    *api.Container
		want string // version, "" for none
		err  string
	}{
		{"none", pod(), nil, "", ""},
		{"pod", pod(key, "box"), nil, "box@1", ""},
		{"tag", pod(key, "box@stable"), nil, "box@1", ""},
		{"another container's", pod(key+"/container.sidecar", "other"), nil, "", ""},
		{"this container's", pod(key+"/container.web", "other"), nil, "other@1", ""},
		{"this container's over the pod's", pod(key, "box", key+"/container.web", "other"), nil, "other@1", ""},
		{"the container's own annotation over the pod's", pod(key, "box"), own, "other@1", ""},
		{"unknown", pod(key, "absent"), nil, "", `profile "absent"`},
		{"limits that no container gets", pod(key, "limited"), nil, "", "process.umask"},
		{"empty", pod(key, ""), nil, "", "is empty"},
		{"mistyped", pod("policyd.dev/profil", "box"), nil, "", "there is no annotation"},
		{"said to be edited", pod(key, "box", "policyd.dev/applied", "sha256:00"), nil, "", "policyd.dev/applied"},
		{"said to be a sandbox", pod(key, "box", "io.kubernetes.cri.container-type", "sandbox", "io.kubernetes.cri-o.ContainerType", "sandbox"), nil, "box@1", ""},
		{"sandbox", pod(key, "absent"), sandbox, "", ""},
		{"a namespace left alone", system, nil, "", ""},
		{"a handler left alone", wrapped, nil, "", ""},
		{"a handler of the list", confined, nil, "box@1", ""},
		{"no /dev of its own", pod(key, "box"), noDev, "", "/dev"},
		{"policyd's place is taken", pod(key, "box"), taken, "", "policyd's place"},
		{"no program", pod(key, "box"), h.container("web"), "", "no program"},
	} {
		if tc.c == nil {
			tc.c = h.container("web", "/bin/web", "-x")
		}
		program := strings.Join(tc.c.GetArgs(), " ") // the runtime's side changes the request
		a, err := h.create(tc.pod, tc.c)
		if tc.err != "" {
			if err == nil || !strings.Contains(err.Error(), tc.err) || !strings.Contains(err.Error(), "node-7") {
				t.Errorf("%s: %v, want %q", tc.name, err, tc.err)
			}
			continue
		}
		if got := a.GetAnnotations()["policyd.dev/version"]; err != nil || got != tc.want {
			t.Errorf("%s: %q, %v, want %q", tc.name, got, err, tc.want)
		}
		if a == nil {
			continue
		}
		digest := a.GetAnnotations()["policyd.dev/applied"]
		args := strings.Join(a.GetArgs(), " ")
		if !strings.HasPrefix(args, "/dev/.policyd/launch exec --file /dev/.policyd/profile --digest "+digest) || !strings.HasSuffix(args, " -- "+program) {
			t.Errorf("%s: arguments %q", tc.name, args)
		}
		var dests []string
		for _, m := range a.GetMounts() {
			dests = append(dests, m.GetDestination())
		}
		if got := strings.Join(dests, " "); got != "/dev/.policyd /dev/.policyd/launch /dev/.policyd/profile" {
			t.Errorf("%s: mounts %s", tc.name, got)
		}
		r, err := containers.Read(h.settings.Records, "", tc.c.GetId())
		if err != nil || r.Version != tc.want || r.Digest != digest || r.Engine != "nri" || r.Workload.Image != "nginx:1" || r.Workload.Name != "web" || r.Workload.Pod != "web-0" || r.Workload.Labels["app"] != "web" {
			t.Errorf("%s: record %+v, %v", tc.name, r, err)
		}
		if err := h.runtime.RemoveContainer(ctx, &api.RemoveContainerRequest{Pod: tc.pod, Container: tc.c}); err != nil {
			t.Errorf("%s: %v", tc.name, err)
		}
		if _, err := containers.Read(h.settings.Records, "", tc.c.GetId()); !errors.Is(err, containers.ErrNone) {
			t.Errorf("%s: record after its end: %v", tc.name, err)
		}
	}

	// What is refused says where and what to do; what is not preloaded is there the next time, or before, from the pod's
	// annotations.
	_, err := h.create(pod(key, "absent"), h.container("web", "true"))
	for _, part := range []string{`node-7`, `container "web" of pod edge/web-0`, `profile "absent"`, "policyctl get policy"} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("error %v lacks %s", err, part)
		}
	}
	h.under(pod(key, "box@1"), "box@1")
	announced := pod(key, "param", "policyd.dev/param.state", "/data/new")
	if err := h.runtime.RunPodSandbox(ctx, &api.RunPodSandboxRequest{Pod: announced}); err != nil {
		t.Fatal(err)
	}
	h.under(announced, "param@1")
	plain, err := h.create(pod(key, "param"), h.container("web", "true"))
	if err != nil {
		t.Fatal(err)
	}
	with, err := h.create(announced, h.container("web", "true"))
	if err != nil || with.GetAnnotations()["policyd.dev/applied"] == plain.GetAnnotations()["policyd.dev/applied"] {
		t.Errorf("a value of a parameter makes no difference: %v", err)
	}
}

// What is taken away does not stay in memory.
func TestTakenAway(t *testing.T) {
	d := newDaemon(t)
	d.start()
	d.apply(box("box"))
	tag := &apiv1.SetTagRequest{Kind: "LandlockPolicy", Ref: "box@1", Tag: "stable"}
	if _, err := d.Policies.SetTag(t.Context(), tag); err != nil {
		t.Fatal(err)
	}
	h := newHost(t, d.socket(), "")
	h.startPlugin()
	h.under(pod(key, "box@stable"), "box@1")
	gone := func(ref string) {
		t.Helper()
		wait(t, func() error {
			if _, err := h.create(pod(key, ref), h.container("web", "true")); err == nil {
				return errors.New(ref + " is still there")
			}
			return nil
		})
	}
	tag.Ref, tag.Remove = "box", true
	if _, err := d.Policies.SetTag(t.Context(), tag); err != nil {
		t.Fatal(err)
	}
	gone("box@stable")
	h.under(pod(key, "box"), "box@1")
	h.under(pod(key, "box@1"), "box@1")
	if _, err := d.Policies.Delete(t.Context(), &apiv1.DeleteRequest{Kind: "LandlockPolicy", Name: "box"}); err != nil {
		t.Fatal(err)
	}
	gone("box")
	gone("box@1")
}

func TestBindings(t *testing.T) {
	d := newDaemon(t)
	d.start()
	d.apply(box("box") + box("other") + "apiVersion: policyd/v1\nkind: Binding\nmetadata: {name: edge}\nspec:\n  match: {label: {app: web}, image: [\"nginx:*\"]}\n  policy: box\n")
	h := newHost(t, d.socket(), "select: bindings\n")
	h.startPlugin()
	h.logged("policyd is followed", 1)
	c := h.container("web", "true")
	a, err := h.create(pod(key, "other"), c)
	if err != nil || a.GetAnnotations()["policyd.dev/version"] != "box@1" {
		t.Fatalf("%v, %v", a, err)
	}
	if r, err := containers.Read(h.settings.Records, "", c.GetId()); err != nil || r.Binding != "edge" || r.Ref != "" {
		t.Errorf("record %+v, %v", r, err)
	}
	stranger := pod()
	stranger.Labels = nil
	if _, err := h.create(stranger, h.container("web", "true")); err == nil || !strings.Contains(err.Error(), "no Binding matches") {
		t.Errorf("matched by none: %v", err)
	}
	// A change of the Bindings, and of what they lead to.
	d.apply("apiVersion: policyd/v1\nkind: Binding\nmetadata: {name: finer}\nspec:\n  match: {annotation: {tier: \"*\"}}\n  policy: other\n")
	h.under(pod("tier", "a"), "other@1")
	d.apply(box("box", "{allow: [read], at: [/secret]}"))
	h.under(pod(), "box@2")
	if _, err := d.Policies.Delete(t.Context(), &apiv1.DeleteRequest{Kind: "Binding", Name: "edge"}); err != nil {
		t.Fatal(err)
	}
	wait(t, func() error {
		if _, err := h.create(pod(), h.container("web", "true")); err == nil {
			return errors.New("a Binding that was deleted decides")
		}
		return nil
	})
	// With an answer for the rest, which may leave something to the container.
	d.apply(param)
	d.stop()
	d.configure("bindings: {unmatched: param}\n")
	d.start()
	h.under(stranger, "param@1")
	plain, err := h.create(stranger, h.container("web", "true"))
	if err != nil {
		t.Fatal(err)
	}
	stranger.Annotations["policyd.dev/param.state"] = "/data/new"
	h.under(stranger, "param@1")
	with, err := h.create(stranger, h.container("web", "true"))
	if err != nil || with.GetAnnotations()["policyd.dev/applied"] == plain.GetAnnotations()["policyd.dev/applied"] {
		t.Errorf("a value of a parameter makes no difference: %v", err)
	}
	// Where Bindings decide, the container chooses within what policy and Binding leave to it, and nothing else.
	d.apply("apiVersion: policyd/v1\nkind: Binding\nmetadata: {name: fixed}\nspec:\n  match: {annotation: {tier: fixed}}\n  policy: param\n  set: {state: /data/fixed}\n")
	h.under(pod("tier", "fixed"), "param@1")
	for name, tc := range map[string]struct {
		pod *api.PodSandbox
		err string
	}{
		"open":                 {pod("policyd.dev/param.open", "/"), "has no within"},
		"outside":              {pod("policyd.dev/param.state", "/etc"), "state"},
		"set by the Binding":   {pod("tier", "fixed", "policyd.dev/param.state", "/data/new"), "is set by Binding fixed"},
		"open, with a Binding": {pod("tier", "fixed", "policyd.dev/param.open", "/"), "has no within"},
	} {
		tc.pod.Labels = nil
		wait(t, func() error {
			_, err := h.create(tc.pod, h.container("web", "true"))
			if err == nil {
				t.Fatalf("%s: not refused", name)
			}
			if !strings.Contains(err.Error(), tc.err) {
				return fmt.Errorf("%s: %w, want %q", name, err, tc.err)
			}
			return nil
		})
	}
}

func TestManyContainersAtOnce(t *testing.T) {
	d := newDaemon(t)
	d.start()
	var text strings.Builder
	for i := range 8 {
		text.WriteString(box(fmt.Sprintf("box-%d", i)))
	}
	d.apply(text.String())
	h := newHost(t, d.socket(), "")
	h.startPlugin()
	h.logged("policyd is followed", 1)
	var wg sync.WaitGroup
	for i := range 256 {
		wg.Go(func() {
			name := fmt.Sprintf("box-%d", i%8)
			a, err := h.create(pod(key, name), h.container("web", "true"))
			if got := a.GetAnnotations()["policyd.dev/version"]; err != nil || got != name+"@1" {
				t.Errorf("%s: %q, %v", name, got, err)
			}
		})
	}
	wg.Wait()
	if list, bad := containers.List(h.settings.Records); len(list) != 256 || len(bad) > 0 {
		t.Errorf("%d records, %v", len(list), bad)
	}
}
