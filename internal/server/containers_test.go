package server

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/enforce/spawn"
	"policyd.dev/policyd/internal/config"
	"policyd.dev/policyd/internal/containers"
)

// leave puts the record of a container whose first process is the test.
func leave(t *testing.T, dir, id, version string, change func(*containers.Record)) {
	t.Helper()
	r := &containers.Record{
		ID: id, Pid: os.Getpid(), Version: version, Digest: "sha256:" + strings.Repeat("ab", 32), Ref: "web", Created: time.Now(),
	}
	if change != nil {
		change(r)
	}
	if err := containers.Write(dir, r); err != nil {
		t.Fatal(err)
	}
}

func TestListContainers(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "records")
	e := start(t, func(c *Config) { c.Records = dir })
	kinds := apiv1.NewContainerServiceClient(e.dial(nil))
	list := func(req *apiv1.ListContainersRequest) *apiv1.ListContainersResponse {
		t.Helper()
		r, err := kinds.ListContainers(e.ctx(), req)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	if r := list(&apiv1.ListContainersRequest{}); len(r.GetContainers())+len(r.GetUnreadable()) > 0 {
		t.Errorf("without a folder: %v", r)
	}
	e.apply(echoPolicy("web"), parametrized("param"), bindingText("nginx", "{image: 'nginx:*'}", "param", "set: {state: /usr/share}"))
	image := func(name string) func(*containers.Record) {
		return func(r *containers.Record) { r.Ref, r.Binding, r.Workload.Image = "", "nginx", name }
	}
	leave(t, dir, "a-current", "web@1", func(r *containers.Record) {
		r.SmackLabel, r.Missing, r.LastKnown, r.Engine, r.Parameters = "Web", []string{"fs x"}, true, "podman", map[string]string{"state": "/s"}
	})
	leave(t, dir, "b-tagged", "web@1", func(r *containers.Record) { r.Ref = "web@1" })
	leave(t, dir, "c-bound", "param@1", image("nginx:1"))
	leave(t, dir, "d-unbound", "param@1", image("other"))
	leave(t, dir, "e-none", "gone@3", func(r *containers.Record) { r.Ref = "gone" })
	leave(t, dir, "f-ended", "web@1", func(r *containers.Record) { r.Pid = 1<<22 + 1 })
	leave(t, dir, "g-annotated", "param@1", func(r *containers.Record) {
		image("nginx:1")(r)
		r.Workload.Annotations = map[string]string{"policyd.dev/param.state": "/usr/lib"}
	})
	if err := os.WriteFile(filepath.Join(dir, "x.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	got := list(&apiv1.ListContainersRequest{})
	summary := func(r *apiv1.ListContainersResponse) string {
		var out []string
		for _, k := range r.GetContainers() {
			text := k.GetId()
			if k.GetOutdated() {
				text += " outdated " + k.GetNow().GetPolicy()
			}
			out = append(out, text)
		}
		return strings.Join(out, ", ")
	}
	if want := "a-current, b-tagged, c-bound, d-unbound outdated , e-none outdated , g-annotated outdated "; summary(got) != want {
		t.Errorf("%s, want %s", summary(got), want)
	}
	if len(got.GetUnreadable()) != 1 || !strings.Contains(got.GetUnreadable()[0], "x.json") {
		t.Errorf("unreadable: %v", got.GetUnreadable())
	}
	for id, want := range map[string]string{"d-unbound": "no Binding matches", "e-none": "not found", "g-annotated": "is set by Binding nginx"} {
		for _, k := range got.GetContainers() {
			if k.GetId() == id && !strings.Contains(k.GetNow().GetError(), want) {
				t.Errorf("%s: %v", id, k.GetNow())
			}
		}
	}
	if k := got.GetContainers()[0]; k.GetState() != apiv1.ContainerState_CONTAINER_STATE_RUNNING || k.GetPid() != int32(os.Getpid()) || k.GetStartTicks() == 0 ||
		k.GetPolicy() != "web" || k.GetVersion() != 1 || k.GetSmackLabel() != "Web" || !k.GetLastKnown() || k.GetEngine() != "podman" || k.GetParameters()["state"] != "/s" || len(k.GetMissing()) != 1 {
		t.Errorf("%v", k)
	}
	// A newer version outdates whom it reaches.
	e.apply(echoPolicy("web", "      scope: [signal]\n"))
	if got := summary(list(&apiv1.ListContainersRequest{Outdated: true, Policy: "web"})); got != "a-current outdated web" {
		t.Errorf("outdated: %s", got)
	}
	if got := summary(list(&apiv1.ListContainersRequest{Id: "b"})); got != "b-tagged" {
		t.Errorf("by id: %s", got)
	}
}

// Containers are seen by who may see their policy; what they would get of another is not told.
func TestContainersOfOthers(t *testing.T) {
	dir := openDir(t)
	e := start(t, func(c *Config) {
		c.Records = dir
		c.Grants = []config.Grant{{Role: config.RoleViewer, Users: []uint32{65534}, Policies: []string{"web"}}}
	})
	other := e.as(65534, 65534)
	e.apply(echoPolicy("web"), echoPolicy("secret"), bindingText("b", "{image: '*'}", "secret"))
	leave(t, dir, "web", "web@1", nil)
	leave(t, dir, "moved", "web@1", func(r *containers.Record) { r.Ref, r.Workload.Image = "", "x" })
	leave(t, dir, "secret", "secret@1", func(r *containers.Record) { r.Ref = "secret" })
	if err := os.WriteFile(filepath.Join(dir, "x.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	conn := other.dial(&spawn.Credential{UID: 65534, GID: 65534})
	r, err := apiv1.NewContainerServiceClient(conn).ListContainers(e.ctx(), &apiv1.ListContainersRequest{})
	if err != nil || len(r.GetContainers()) != 2 || r.GetContainers()[0].GetId() != "moved" || len(r.GetUnreadable()) > 0 || strings.Contains(r.String(), "secret") {
		t.Errorf("%v, %v", r, err)
	}
	if now := r.GetContainers()[0].GetNow(); !strings.Contains(now.GetError(), "may not see") {
		t.Errorf("now: %v", now)
	}
	conn = e.dial(&spawn.Credential{UID: 12345, GID: 12345})
	_, err = apiv1.NewContainerServiceClient(conn).ListContainers(e.ctx(), &apiv1.ListContainersRequest{})
	wantStatus(t, err, codes.PermissionDenied, "NOT_ALLOWED")
}

// Values of parameters by annotation: only what the Binding leaves open and the policy bounds.
func TestAnnotatedParameters(t *testing.T) {
	e := start(t, nil)
	open := strings.Replace(string(parametrized("open")), ", within: /usr}", "}", 1)
	param := strings.Replace(string(parametrized("param")), stateParameter, stateParameter+"  variables: {state: [/usr/include]}\n", 1)
	e.apply([]byte(param), []byte(open), echoPolicy("none"),
		bindingText("free", "{image: free}", "param"), bindingText("set", "{image: set}", "param", "set: {state: /usr/lib}"),
		bindingText("none", "{image: none}", "none"))
	// open has no default: only a Binding that sets it is stored.
	e.apply(bindingText("wide", "{image: wide}", "open", "set: {state: /srv}"))
	const key = "policyd.dev/param.state"
	for _, tc := range []struct {
		image       string
		annotations map[string]string
		container   string
		err         string
	}{
		{"free", map[string]string{key: "/usr/share"}, "", ""},
		{"free", map[string]string{key: "/usr/share", key + "/container.app": "/usr/lib"}, "app", ""},
		{"free", map[string]string{key + ".container.app": "/usr/lib"}, "app", ""},
		{"free", map[string]string{key + "/container.other": "/usr/lib"}, "app", ""},
		{"free", map[string]string{key + "/container.app": "/usr/lib"}, "", "nothing tells the name"},
		{"free", nil, "", ""},
		{"free", map[string]string{key: "/etc"}, "", "within"},
		{"free", map[string]string{key: "/usr/../etc"}, "", "has a .."},
		{"free", map[string]string{key: "usr"}, "", "state"},
		{"free", map[string]string{key: ""}, "", "is empty"},
		{"free", map[string]string{key: "/usr/a\n/usr/b"}, "", "control characters"},
		{"free", map[string]string{key: "/" + strings.Repeat("x", 5000)}, "", "is no path"},
		{"free", map[string]string{"policyd.dev/param.": "/usr"}, "", "names no parameter"},
		{"free", map[string]string{key: "/usr/share", "policyd.dev/param.stat": "/usr"}, "", `no parameter "stat"`},
		{"set", map[string]string{key: "/usr/share"}, "", "is set by Binding set"},
		{"set", nil, "", ""},
		{"none", map[string]string{key: "/usr/share"}, "", `no parameter "state"`},
		{"wide", map[string]string{key: "/usr/share"}, "", "is set by Binding wide"},
	} {
		w := &apiv1.Workload{Image: tc.image, Annotations: tc.annotations, Container: tc.container}
		_, perr := e.prof.GetProfile(e.ctx(), &apiv1.GetProfileRequest{Workload: w})
		_, rerr := e.prof.Resolve(e.ctx(), &apiv1.ResolveRequest{Workload: w})
		if tc.err == "" {
			if perr != nil || rerr != nil {
				t.Errorf("%s %q: %v, resolve %v", tc.image, tc.annotations, perr, rerr)
			}
			continue
		}
		if perr == nil || !strings.Contains(perr.Error(), tc.err) {
			t.Errorf("%s %q: %v, want %q", tc.image, tc.annotations, perr, tc.err)
		}
		if len(tc.annotations) == 0 {
			continue
		}
		if !strings.Contains(perr.Error(), "policyd.dev/param.") {
			t.Errorf("%s %q: the error names no annotation: %v", tc.image, tc.annotations, perr)
		}
		if rerr == nil || !strings.Contains(rerr.Error(), tc.err) {
			t.Errorf("%s %q: resolve %v, want %q", tc.image, tc.annotations, rerr, tc.err)
		}
	}
	// Two values are two answers, and a remembered one is not another's.
	digest := func(value string) string {
		r, err := e.prof.GetProfile(e.ctx(), &apiv1.GetProfileRequest{Workload: &apiv1.Workload{Image: "free", Annotations: map[string]string{key: value}}})
		if err != nil {
			t.Fatal(err)
		}
		return r.GetProfileDigest()
	}
	if a, b := digest("/usr/share"), digest("/usr/lib"); a == b || a != digest("/usr/share") {
		t.Error("values do not tell answers apart")
	}
	r, err := e.prof.Resolve(e.ctx(), &apiv1.ResolveRequest{Workload: &apiv1.Workload{Image: "free", Annotations: map[string]string{key: "/usr/lib"}}})
	if err != nil || r.GetParameters()["state"] != "/usr/lib" {
		t.Errorf("resolve: %v, %v", r, err)
	}
}

// A parameter with a default and without within is the policy's own affair.
func TestAnnotationsDoNotWiden(t *testing.T) {
	e := start(t, func(c *Config) { c.Unmatched = "open" })
	text := strings.Replace(string(parametrized("open")), ", within: /usr}]\n", "}]\n  variables: {state: [/usr/share]}\n", 1)
	e.apply([]byte(text))
	w := &apiv1.Workload{Image: "x", Annotations: map[string]string{"policyd.dev/param.state": "/"}}
	_, err := e.prof.GetProfile(e.ctx(), &apiv1.GetProfileRequest{Workload: w})
	if st := wantStatus(t, err, codes.InvalidArgument, "INVALID"); !strings.Contains(st.Message(), "has no within") || !strings.Contains(st.Message(), "bindings.unmatched") {
		t.Error(st)
	}
	if _, err := e.prof.Resolve(e.ctx(), &apiv1.ResolveRequest{Workload: w}); err == nil || !strings.Contains(err.Error(), "has no within") {
		t.Error(err)
	}
	w.Annotations = nil
	if _, err := e.prof.GetProfile(e.ctx(), &apiv1.GetProfileRequest{Workload: w}); err != nil {
		t.Error(err)
	}
}

// The label of a policy comes with its profile: with the reason where it cannot be given, left out where the policy
// says degrade and the kernel has no Smack.
func TestProfileWithSmackLabel(t *testing.T) {
	e := start(t, nil)
	text := func(name, more string) []byte {
		return []byte(strings.Replace(string(echoPolicy(name)), "spec:\n", "spec:\n"+more+"  process: {smackLabel: Web}\n", 1))
	}
	e.apply(text("hard", ""), text("soft", "  enforcement: degrade\n"))
	get := func(ref, known string, abi uint32) *apiv1.GetProfileResponse {
		t.Helper()
		r, err := e.prof.GetProfile(e.ctx(), &apiv1.GetProfileRequest{Ref: ref, KnownDigest: known, Abi: abi})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	hard, soft := get("hard", "", 0), get("soft", "", 0)
	again := get("hard", hard.GetProfileDigest(), 0)
	if hard.GetSmackLabel() != "Web" || again.GetSmackLabel() != "Web" || !again.GetNotModified() || again.GetSmackError() != hard.GetSmackError() {
		t.Errorf("%v\n%v", hard, again)
	}
	if other := get("soft", "", 7); other.GetSmackLabel() != "Web" || other.GetSmackError() != "" {
		t.Errorf("for another kernel: %v", other)
	}
	if !e.host.Absent() {
		return // the tests of containers do the rest there
	}
	if !strings.Contains(hard.GetSmackError(), "smack is not") {
		t.Errorf("hard: %q", hard.GetSmackError())
	}
	missing := soft.GetMissing()
	if soft.GetSmackLabel() != "" || soft.GetSmackError() != "" || len(missing) == 0 || missing[len(missing)-1].GetKind() != "smack" || missing[len(missing)-1].GetRight() != "Web" {
		t.Errorf("soft: %q, %q, %v", soft.GetSmackLabel(), soft.GetSmackError(), missing)
	}
}

func TestNearMisses(t *testing.T) {
	e := start(t, nil)
	e.apply(echoPolicy("web"),
		bindingText("image-and-namespace", "{image: 'nginx:*', namespace: edge}", "web"),
		bindingText("image-alone", "{image: 'redis:*'}", "web"),
		bindingText("annotated", "{annotation: {tier: front}}", "web"),
		bindingText("two-things", "{label: {a: x, b: y}, unit: z.service}", "web"),
		bindingText("user", "{image: 'nginx:*', uid: 0-10}", "web"))
	w := &apiv1.Workload{Image: "nginx:1", Namespace: "core", Annotations: map[string]string{"tier": "back"}}
	_, err := e.prof.Resolve(e.ctx(), &apiv1.ResolveRequest{Workload: w})
	st := wantStatus(t, err, codes.NotFound, "NO_BINDING")
	for _, want := range []string{`annotated@1: annotation: annotation "tier" is "back"`, `image-and-namespace@1: namespace: the namespace is "core"`, "user@1: uid: the user is not known"} {
		if !strings.Contains(st.Message(), want) {
			t.Errorf("no %q in %s", want, st.Message())
		}
	}
	for _, not := range []string{"image-alone", "two-things"} {
		if strings.Contains(st.Message(), not) {
			t.Errorf("%q in %s", not, st.Message())
		}
	}
	w.Annotations["tier"] = "front"
	r, err := e.prof.Resolve(e.ctx(), &apiv1.ResolveRequest{Workload: w})
	if err != nil || len(r.GetNear()) != 2 || r.GetNear()[0].GetRule() != "namespace" {
		t.Errorf("%v, %v", r, err)
	}
}

// What is left of containers that are gone is removed at the start.
func TestRecordsArePruned(t *testing.T) {
	dir := t.TempDir()
	leave(t, dir, "gone", "web@1", func(r *containers.Record) { r.Pid = 1<<22 + 1 })
	leave(t, dir, "alive", "web@1", nil)
	names, err := filepath.Glob(dir + "/*")
	if err != nil || len(names) != 2 {
		t.Fatal(names, err)
	}
	then := time.Now().Add(-time.Hour)
	for _, n := range names {
		if err := os.Chtimes(n, then, then); err != nil {
			t.Fatal(err)
		}
	}
	start(t, func(c *Config) { c.Records = dir })
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		if names, _ = filepath.Glob(dir + "/*"); len(names) == 1 {
			break
		}
	}
	if all, bad := containers.Records(dir); len(all) != 1 || all[0].ID != "alive" || len(bad) > 0 {
		t.Errorf("%v, %v", all, bad)
	}
}

// What else a policy gives its processes comes with its profile too, for whoever starts them.
func TestProfileWithProcess(t *testing.T) {
	e := start(t, nil)
	e.apply(echoPolicy("plain"), []byte(strings.Replace(string(echoPolicy("limited")), "spec:\n", "spec:\n  process: {umask: \"0077\", limits: {nofile: \"33\"}, environment: {A: b}, smackLabel: Web}\n", 1)))
	known := ""
	for range 2 {
		r, err := e.prof.GetProfile(e.ctx(), &apiv1.GetProfileRequest{Ref: "limited", KnownDigest: known})
		if err != nil {
			t.Fatal(err)
		}
		if p := r.GetProcess(); p.GetUmask() != "0077" || p.GetLimits()["nofile"] != "33" || p.GetEnvironment()["A"] != "b" || p.GetSmackLabel() != "" || r.GetNotModified() != (known != "") {
			t.Errorf("%v", r)
		}
		known = r.GetProfileDigest()
	}
	if r, err := e.prof.GetProfile(e.ctx(), &apiv1.GetProfileRequest{Ref: "plain"}); err != nil || r.GetProcess() != nil {
		t.Errorf("%v, %v", r, err)
	}
}
