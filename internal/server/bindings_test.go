package server

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc/codes"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/enforce/profile"
	"policyd.dev/policyd/internal/config"
	"policyd.dev/policyd/store"
)

func bindingText(name, match, policy string, more ...string) []byte {
	text := "apiVersion: policyd/v1\nkind: Binding\nmetadata: {name: " + name + "}\nspec:\n  match: " + match + "\n  policy: " + policy + "\n"
	for _, m := range more {
		text += "  " + m + "\n"
	}
	return []byte(text)
}

const stateParameter = "  parameters: [{name: state, within: /usr}]\n"

// parametrized is a policy with a parameter.
func parametrized(name string) []byte {
	text := strings.Replace(string(echoPolicy(name)), "  layers:\n", stateParameter+"  layers:\n", 1)
	return []byte(text + "        - {allow: [read], at: [\"${state}\"]}\n")
}

func TestGetProfileOfWorkload(t *testing.T) {
	e := start(t, nil)
	get := func(req *apiv1.GetProfileRequest) (*apiv1.GetProfileResponse, error) {
		return e.prof.GetProfile(e.ctx(), req)
	}
	nginx := &apiv1.Workload{Image: "reg/nginx:1", Namespace: "edge"}
	_, err := get(&apiv1.GetProfileRequest{Workload: nginx})
	if st := wantStatus(t, err, codes.NotFound, "NO_BINDING"); !strings.Contains(st.Message(), "bindings.unmatched") {
		t.Errorf("it does not say why: %v", st)
	}

	// Stored in one request, in any order.
	e.apply(bindingText("edge", "{namespace: edge}", "web"), bindingText("nginx", "{image: 'reg/nginx:*'}", "param", "set: {state: /usr/share}"), echoPolicy("web"), parametrized("param"))
	whole, err := get(&apiv1.GetProfileRequest{Workload: nginx})
	if err != nil {
		t.Fatal(err)
	}
	p, err := profile.Decode(whole.GetProfile())
	if err != nil || p.Name != "param" || whole.GetBinding() != "nginx" || whole.GetVersion().GetName() != "param" || profile.Digest(whole.GetProfile()) != whole.GetProfileDigest() {
		t.Fatalf("%v, %v: binding %q", p, err, whole.GetBinding())
	}
	byRef, err := get(&apiv1.GetProfileRequest{Ref: "param", Parameters: map[string]string{"state": "/usr/share"}})
	if err != nil || byRef.GetProfileDigest() != whole.GetProfileDigest() || byRef.GetBinding() != "" {
		t.Errorf("by reference: %v, %v", byRef, err)
	}
	known, err := get(&apiv1.GetProfileRequest{Workload: nginx, KnownDigest: whole.GetProfileDigest()})
	if err != nil || !known.GetNotModified() || known.GetProfile() != nil || known.GetBinding() != "nginx" {
		t.Errorf("known digest: %v, %v", known, err)
	}
	if r, err := get(&apiv1.GetProfileRequest{Workload: &apiv1.Workload{Image: "reg/redis", Namespace: "edge"}, KnownDigest: whole.GetProfileDigest()}); err != nil || r.GetBinding() != "edge" || r.GetNotModified() {
		t.Errorf("another workload: %v, %v", r, err)
	}
	// The kernel that is asked for lacks rights: each is named, and so is the Binding.
	_, err = get(&apiv1.GetProfileRequest{Workload: nginx, Abi: 1})
	if st := wantStatus(t, err, codes.FailedPrecondition, "UNSUPPORTED_BY_KERNEL"); !strings.Contains(st.Message(), "binding nginx@1 names param: ") {
		t.Errorf("%v", st)
	}
	e.apply([]byte(strings.Replace(string(echoPolicy("web")), "  abi: 6\n", "  abi: 6\n  enforcement: degrade\n", 1)))
	if r, err := get(&apiv1.GetProfileRequest{Workload: &apiv1.Workload{Namespace: "edge"}, Abi: 1}); err != nil || len(r.GetMissing()) == 0 || len(r.GetProfile()) == 0 || r.GetVersion().GetNumber() != 2 {
		t.Errorf("degraded: %v, %v", r, err)
	}

	for field, req := range map[string]*apiv1.GetProfileRequest{
		"workload: ref":     {Ref: "web", Workload: nginx},
		"parameters":        {Parameters: map[string]string{"a": "/b"}, Workload: nginx},
		"workload: nothing": {Workload: &apiv1.Workload{}},
		"abi":               {Workload: nginx, Abi: 99},
		"workload: 1025":    {Workload: &apiv1.Workload{Labels: manyLabels(maxFacts + 1)}},
		"workload: 600000":  {Workload: &apiv1.Workload{Image: strings.Repeat("x", 600000)}},
	} {
		_, err := get(req)
		if st := wantStatus(t, err, codes.InvalidArgument, "INVALID"); !strings.Contains(st.Message(), field) {
			t.Errorf("%s: %v", field, st)
		}
	}
}

func manyLabels(n int) map[string]string {
	out := map[string]string{}
	for i := range n {
		out[fmt.Sprint(i)] = "x"
	}
	return out
}

// Every change of a Binding, and of its policy, holds for the next question.
func TestBindingChanges(t *testing.T) {
	e := start(t, nil)
	w := &apiv1.Workload{Unit: "a.service"}
	want := func(binding, policy string, version uint64) {
		t.Helper()
		r, err := e.prof.GetProfile(e.ctx(), &apiv1.GetProfileRequest{Workload: w})
		if err != nil || r.GetBinding() != binding || r.GetVersion().GetName() != policy || r.GetVersion().GetNumber() != version {
			t.Errorf("got %v of %v, %v; want %s, %s@%d", r.GetVersion(), r.GetBinding(), err, binding, policy, version)
		}
	}
	e.apply(echoPolicy("web"), echoPolicy("mail"), bindingText("b", "{unit: '*'}", "web"))
	want("b", "web", 1)
	e.apply(echoPolicy("web", "      scope: [signal]\n"))
	want("b", "web", 2)
	e.apply(bindingText("b", "{unit: '*'}", "mail"))
	want("b", "mail", 1)
	e.apply(bindingText("a", "{unit: a.service}", "web@1"))
	want("a", "web", 1)
	if _, err := e.policy.SetTag(e.ctx(), &apiv1.SetTagRequest{Kind: store.KindLandlockPolicy, Ref: "web@1", Tag: "stable"}); err != nil {
		t.Fatal(err)
	}
	e.apply(bindingText("a", "{unit: a.service}", "web@stable"))
	want("a", "web", 1)
	if _, err := e.policy.SetTag(e.ctx(), &apiv1.SetTagRequest{Kind: store.KindLandlockPolicy, Ref: "web@2", Tag: "stable"}); err != nil {
		t.Fatal(err)
	}
	want("a", "web", 2)
	_, err := e.policy.SetTag(e.ctx(), &apiv1.SetTagRequest{Kind: store.KindLandlockPolicy, Ref: "web", Tag: "stable", Remove: true})
	wantStatus(t, err, codes.FailedPrecondition, "REFERENCED")
	_, err = e.policy.Delete(e.ctx(), &apiv1.DeleteRequest{Kind: store.KindLandlockPolicy, Name: "web"})
	wantStatus(t, err, codes.FailedPrecondition, "REFERENCED")
	if _, err := e.policy.Delete(e.ctx(), &apiv1.DeleteRequest{Kind: store.KindBinding, Name: "a"}); err != nil {
		t.Fatal(err)
	}
	want("b", "mail", 1)
	if _, err := e.policy.Rollback(e.ctx(), &apiv1.RollbackRequest{Kind: store.KindBinding, Name: "b", To: 1}); err != nil {
		t.Fatal(err)
	}
	want("b", "web", 2)
	if _, err := e.policy.Delete(e.ctx(), &apiv1.DeleteRequest{Kind: store.KindBinding, Name: "b"}); err != nil {
		t.Fatal(err)
	}
	_, err = e.prof.GetProfile(e.ctx(), &apiv1.GetProfileRequest{Workload: w})
	wantStatus(t, err, codes.NotFound, "NO_BINDING")

	// What the configuration names for the rest.
	e.SetUnmatched("mail")
	want("", "mail", 1)
	if _, err := e.policy.Delete(e.ctx(), &apiv1.DeleteRequest{Kind: store.KindLandlockPolicy, Name: "mail"}); err != nil {
		t.Fatal(err)
	}
	_, err = e.prof.GetProfile(e.ctx(), &apiv1.GetProfileRequest{Workload: w})
	if st := wantStatus(t, err, codes.NotFound, "DELETED"); !strings.Contains(st.Message(), "bindings.unmatched") {
		t.Errorf("%v", st)
	}
	e.SetUnmatched("")
	_, err = e.prof.GetProfile(e.ctx(), &apiv1.GetProfileRequest{Workload: w})
	wantStatus(t, err, codes.NotFound, "NO_BINDING")
}

func TestBindingsOfStoreAreRead(t *testing.T) {
	e := start(t, func(c *Config) { c.Unmatched = "web" })
	e.apply(echoPolicy("web"), echoPolicy("mail"), bindingText("b", "{uid: 5}", "mail"))
	e.bindings.Store(nil) // as after a start
	five := uint32(5)
	if r, err := e.prof.GetProfile(e.ctx(), &apiv1.GetProfileRequest{Workload: &apiv1.Workload{Uid: &five}}); err != nil || r.GetBinding() != "b" {
		t.Errorf("%v, %v", r, err)
	}
	if r, err := e.prof.GetProfile(e.ctx(), &apiv1.GetProfileRequest{Workload: &apiv1.Workload{Unit: "x"}}); err != nil || r.GetVersion().GetName() != "web" {
		t.Errorf("%v, %v", r, err)
	}
}

func TestApplyRefusesBindings(t *testing.T) {
	e := start(t, nil)
	e.apply(parametrized("param"))
	for _, c := range []struct {
		text []byte
		says string
	}{
		{bindingText("b", "{unit: a}", "absent"), `file0.yaml:6:11: error: policy "absent": `},
		{bindingText("b", "{unit: a}", "param@2", "set: {state: /usr}"), "file0.yaml:6:11: error: "},
		{bindingText("b", "{unit: a}", "param"), "file0.yaml:5:3: error: parameter state needs a value"},
		{bindingText("b", "{unit: a}", "param", "set: {state: /etc}"), "file0.yaml:7:8: error: "},
		{bindingText("b", "{unit: a}", "param", "set: {state: /usr, other: /x}"), "file0.yaml:7:8: error: "},
		{bindingText("b", "{}", "param"), "file0.yaml:5:10: error: match selects on nothing"},
	} {
		_, err := e.policy.Apply(e.ctx(), &apiv1.ApplyRequest{Files: files(c.text)})
		if st := wantStatus(t, err, codes.InvalidArgument, "INVALID"); !strings.Contains(st.Message(), c.says) {
			t.Errorf("%s\n%v\nwant %s", c.text, st.Message(), c.says)
		}
	}
	_, err := e.policy.Apply(e.ctx(), &apiv1.ApplyRequest{Files: files(parametrized("new"), bindingText("b", "{unit: a}", "new", "set: {state: /etc}"))})
	if st := wantStatus(t, err, codes.InvalidArgument, "INVALID"); !strings.Contains(st.Message(), "file1.yaml:7:8: ") {
		t.Errorf("%v", st)
	}
	e.apply(bindingText("b", "{unit: a}", "param@1", "set: {state: /usr}"))
}

// A version of a policy that a Binding does not fit is stored with a remark, and nothing is started under a guess.
func TestPolicyBreaksBinding(t *testing.T) {
	e := start(t, nil)
	e.apply(parametrized("web"), bindingText("b", "{unit: a}", "web", "set: {state: /usr}"), bindingText("old", "{unit: b}", "web@1", "set: {state: /usr}"))
	r := e.apply(echoPolicy("web"))
	if f := r.GetFindings(); len(f) != 1 || f[0].GetCode() != "breaks-binding" || !strings.Contains(f[0].GetMessage(), `Binding b does not fit`) {
		t.Errorf("%v", f)
	}
	_, err := e.prof.GetProfile(e.ctx(), &apiv1.GetProfileRequest{Workload: &apiv1.Workload{Unit: "a"}})
	if st := wantStatus(t, err, codes.InvalidArgument, "INVALID"); !strings.Contains(st.Message(), "binding b@1 names web: ") {
		t.Errorf("%v", st)
	}
	if _, err := e.prof.GetProfile(e.ctx(), &apiv1.GetProfileRequest{Workload: &apiv1.Workload{Unit: "b"}}); err != nil {
		t.Error(err)
	}
	if r := e.apply(bindingText("b", "{unit: a}", "web"), echoPolicy("web", "      scope: [signal]\n")); len(r.GetFindings()) != 0 {
		t.Errorf("both in one request: %v", r.GetFindings())
	}
	if _, err := e.prof.GetProfile(e.ctx(), &apiv1.GetProfileRequest{Workload: &apiv1.Workload{Unit: "a"}}); err != nil {
		t.Error(err)
	}
}

func TestResolve(t *testing.T) {
	e := start(t, nil)
	_, err := e.prof.Resolve(e.ctx(), &apiv1.ResolveRequest{})
	wantStatus(t, err, codes.InvalidArgument, "INVALID")
	w := &apiv1.Workload{Image: "reg/nginx:1", Namespace: "edge", Labels: map[string]string{"app": "web"}}
	_, err = e.prof.Resolve(e.ctx(), &apiv1.ResolveRequest{Workload: w})
	wantStatus(t, err, codes.NotFound, "NO_BINDING")
	e.SetUnmatched("web")
	_, err = e.prof.Resolve(e.ctx(), &apiv1.ResolveRequest{Workload: w})
	wantStatus(t, err, codes.NotFound, "NOT_FOUND")
	e.apply(echoPolicy("web"), parametrized("param"))
	r, err := e.prof.Resolve(e.ctx(), &apiv1.ResolveRequest{Workload: w})
	if err != nil || r.GetPolicy() != "web" || len(r.GetMatches()) != 0 || r.GetVersion().GetNumber() != 1 {
		t.Errorf("unmatched: %v, %v", r, err)
	}
	e.apply(bindingText("z", "{namespace: edge}", "web"), bindingText("y", "{label: {app: '*'}}", "web"),
		bindingText("x", "{image: 'reg/*'}", "web"), bindingText("a", "{image: 'reg/nginx:*'}", "param@1", "set: {state: /usr}"), bindingText("no", "{unit: x}", "web"))
	if r, err = e.prof.Resolve(e.ctx(), &apiv1.ResolveRequest{Workload: w}); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, m := range r.GetMatches() {
		got = append(got, fmt.Sprintf("%s@%d %s %s", m.GetName(), m.GetVersion(), m.GetPolicy(), m.GetRule()))
	}
	if want := "[a@1 param@1  x@1 web image y@1 web image z@1 web image]"; fmt.Sprint(got) != want || r.GetPolicy() != "param@1" || r.GetParameters()["state"] != "/usr" || r.GetVersion().GetName() != "param" {
		t.Errorf("got %v of %v, want %s", got, r, want)
	}
	if why := r.GetMatches()[1].GetReason(); why != "a selects on the image with longer patterns" {
		t.Error(why)
	}
}

func TestRolesOfBindings(t *testing.T) {
	e := start(t, func(c *Config) {
		c.Grants = []config.Grant{{Role: config.RoleAdmin, Users: []uint32{60005}, Policies: []string{"web*"}}}
	})
	limited := e.as(60005, 60005)
	e.apply(echoPolicy("web"), echoPolicy("db"), bindingText("web-b", "{unit: a}", "web"), bindingText("other", "{unit: '*'}", "db"))
	unit := &apiv1.Workload{Unit: "a"}
	_, err := limited.policy.Apply(e.ctx(), &apiv1.ApplyRequest{Files: files(bindingText("web-b", "{unit: '*'}", "web"))})
	if st := wantStatus(t, err, codes.PermissionDenied, "NOT_ALLOWED"); !strings.Contains(st.Message(), "for all policies") {
		t.Errorf("%v", st)
	}
	_, err = limited.policy.Delete(e.ctx(), &apiv1.DeleteRequest{Kind: store.KindBinding, Name: "web-b"})
	wantStatus(t, err, codes.PermissionDenied, "NOT_ALLOWED")
	_, err = limited.policy.Rollback(e.ctx(), &apiv1.RollbackRequest{Kind: store.KindBinding, Name: "web-b", To: 1})
	wantStatus(t, err, codes.PermissionDenied, "NOT_ALLOWED")
	if _, err := limited.policy.GetVersion(e.ctx(), &apiv1.GetVersionRequest{Kind: store.KindBinding, Ref: "web-b"}); err != nil {
		t.Errorf("a viewer of web*: %v", err)
	}
	r, err := limited.prof.Resolve(e.ctx(), &apiv1.ResolveRequest{Workload: unit})
	if err != nil || len(r.GetMatches()) != 1 || r.GetHidden() != 1 {
		t.Errorf("%v, %v", r, err)
	}
	for range 2 { // the second time from memory
		if _, err := limited.prof.GetProfile(e.ctx(), &apiv1.GetProfileRequest{Workload: unit}); err != nil {
			t.Error(err)
		}
		_, err = limited.prof.GetProfile(e.ctx(), &apiv1.GetProfileRequest{Workload: &apiv1.Workload{Unit: "b"}})
		wantStatus(t, err, codes.PermissionDenied, "NOT_ALLOWED")
		if _, err := e.prof.GetProfile(e.ctx(), &apiv1.GetProfileRequest{Workload: &apiv1.Workload{Unit: "b"}}); err != nil {
			t.Error(err)
		}
	}
	_, err = limited.prof.Resolve(e.ctx(), &apiv1.ResolveRequest{Workload: &apiv1.Workload{Unit: "b"}})
	wantStatus(t, err, codes.PermissionDenied, "NOT_ALLOWED")
}

// While Bindings change nobody is answered by a state that was over before he asked.
func TestBindingsChangeUnderQuestions(t *testing.T) {
	e := start(t, nil)
	e.apply(echoPolicy("web"), bindingText("b", "{unit: a}", "web"))
	var acknowledged atomic.Uint64
	acknowledged.Store(1)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := 2; i <= 20; i++ {
			text := bindingText(fmt.Sprintf("a%02d", 50-i), "{unit: a}", "web") // its name comes first
			if _, err := e.policy.Apply(e.ctx(), &apiv1.ApplyRequest{Files: files(text)}); err != nil {
				t.Error(err)
				return
			}
			acknowledged.Store(uint64(i))
		}
	}()
	for _, err := range together(4, func(int) error {
		for {
			at := acknowledged.Load()
			r, err := e.prof.GetProfile(e.ctx(), &apiv1.GetProfileRequest{Workload: &apiv1.Workload{Unit: "a"}})
			if err != nil {
				return err
			}
			if want := fmt.Sprintf("a%02d", 50-at); at > 1 && r.GetBinding() > want {
				return fmt.Errorf("answered by %s after %s was acknowledged", r.GetBinding(), want)
			}
			select {
			case <-done:
				return nil
			default:
			}
		}
	}) {
		if err != nil {
			t.Error(err)
		}
	}
}
