package server

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/enforce/spawn"
	"policyd.dev/policyd/internal/config"
	"policyd.dev/policyd/internal/errs"
	"policyd.dev/policyd/internal/peer"
	"policyd.dev/policyd/internal/smackhost"
	"policyd.dev/policyd/internal/testkernel"
	"policyd.dev/policyd/smack/smackfs"
	"policyd.dev/policyd/store"
	"policyd.dev/policyd/store/storetest"
)

func smackPolicy(name, rules string) []byte {
	return fmt.Appendf(nil, "apiVersion: policyd/v1\nkind: SmackPolicy\nmetadata: {name: %s}\nspec: {layers: [{rules: \"%s\"}]}\n", name, rules)
}

// smackEnv is a policyd on a model of smackfs.
func smackEnv(t *testing.T, grants ...config.Grant) (*env, *smackfs.Model) {
	t.Helper()
	st, model := storetest.Open(t), smackfs.NewModel(smackfs.ModelKernel{})
	host := smackhost.New(smackhost.Config{Store: st, Find: func() (smackfs.FS, error) { return model, nil }})
	return startOn(t, st, func(c *Config) { c.Smack, c.Grants, c.LabelPool = host, grants, 2 }), model
}

func smackOf(e *env, t *testing.T, as ...uint32) apiv1.SmackServiceClient {
	t.Helper()
	if len(as) == 0 {
		return apiv1.NewSmackServiceClient(e.dial(nil))
	}
	return apiv1.NewSmackServiceClient(e.dial(&spawn.Credential{UID: as[0], GID: as[0]}))
}

func TestSmackService(t *testing.T) {
	e, _ := smackEnv(t)
	e.apply(smackPolicy("a", "App Data rw\\nApp Log a"), smackPolicy("b", "App Data r"))
	c := smackOf(e, t)
	dry, err := c.Load(e.ctx(), &apiv1.LoadRequest{Ref: "a", DryRun: true})
	if err != nil || dry.GetGranted() != 2 || dry.GetWrites() != 0 {
		t.Fatalf("dry run: %v %v", dry, err)
	}
	req := &apiv1.LoadRequest{Ref: "a", RequestId: "r1", Message: "why"}
	res, err := c.Load(e.ctx(), req)
	if err != nil || res.GetGranted() != 2 || len(res.GetChanges()) != 2 {
		t.Fatalf("load: %v %v", res, err)
	}
	again, err := c.Load(e.ctx(), req)
	if err != nil || again.GetGranted() != 2 || again.GetWrites() != res.GetWrites() {
		t.Errorf("the same request: %v %v", again, err)
	}
	_, err = c.Load(e.ctx(), &apiv1.LoadRequest{Ref: "b", RequestId: "r1"})
	wantStatus(t, err, codes.InvalidArgument, "REQUEST_ID_REUSED")
	_, err = c.Load(e.ctx(), &apiv1.LoadRequest{Ref: "none"})
	wantStatus(t, err, codes.NotFound, "NOT_FOUND")
	_, err = c.Load(e.ctx(), &apiv1.LoadRequest{Ref: "a", Order: 9})
	wantStatus(t, err, codes.InvalidArgument, "INVALID")
	_, err = e.policy.Delete(e.ctx(), &apiv1.DeleteRequest{Kind: store.KindSmackPolicy, Name: "a", Expect: &apiv1.Expectation{Number: 1}})
	wantStatus(t, err, codes.FailedPrecondition, "REFERENCED")

	got, err := c.GetSmack(e.ctx(), &apiv1.GetSmackRequest{})
	if err != nil || got.GetPolicy() != "a" || !got.GetAssigned() || got.GetOwn() != 2 || got.GetDriftTotal() != 0 {
		t.Errorf("state: %v %v", got, err)
	}
	if got, err = c.GetSmack(e.ctx(), &apiv1.GetSmackRequest{Ref: "b"}); err != nil || got.GetDriftTotal() != 2 {
		t.Errorf("beside another policy: %v %v", got, err)
	}
	check, err := c.CheckAccess(e.ctx(), &apiv1.CheckAccessRequest{Subject: "App", Object: "Log", Access: "w", Kernel: true})
	if err != nil || check.GetAllowed() || check.GetReason() != "rule_lacks" || check.GetKernelAnswer() != "0" || len(check.GetRules()) != 1 {
		t.Errorf("check: %v %v", check, err)
	}
	_, err = c.CheckAccess(e.ctx(), &apiv1.CheckAccessRequest{Subject: "a/b", Object: "Log", Access: "w"})
	wantStatus(t, err, codes.InvalidArgument, "INVALID")
	st, err := e.admin.Status(e.ctx(), &apiv1.StatusRequest{})
	if s := st.GetSmack(); err != nil || !s.GetAvailable() || s.GetPolicy() != "a" || s.GetLabels() == 0 || s.GetLabelBudget() != smackhost.DefaultBudget {
		t.Errorf("status: %v %v", st, err)
	}
	rev, err := c.Revoke(e.ctx(), &apiv1.RevokeRequest{Subject: "App"})
	if err != nil || rev.GetRevoked() != 2 {
		t.Errorf("revoke: %v %v", rev, err)
	}
	if un, err := c.Unload(e.ctx(), &apiv1.UnloadRequest{RequestId: "r2"}); err != nil || un.GetRevoked() != 0 {
		t.Errorf("unload: %v %v", un, err)
	}
	if _, err := c.Unload(e.ctx(), &apiv1.UnloadRequest{RequestId: "r2"}); err != nil {
		t.Errorf("the same unload: %v", err)
	}
	_, err = c.Unload(e.ctx(), &apiv1.UnloadRequest{})
	wantStatus(t, err, codes.NotFound, "NOT_FOUND")
}

// TestSmackRoles: what is in force belongs to those who may touch its policy.
func TestSmackRoles(t *testing.T) {
	testkernel.RequireRoot(t)
	e, _ := smackEnv(t,
		config.Grant{Role: config.RoleViewer, Users: []uint32{1001}},
		config.Grant{Role: config.RoleAdmin, Users: []uint32{1002}, Policies: []string{"mine*"}},
		config.Grant{Role: config.RoleUser, Users: []uint32{1003}},
	)
	e.apply(smackPolicy("mine", "App Data rw"), smackPolicy("theirs", "App Data r"))
	viewer, owner, user := smackOf(e, t, 1001), smackOf(e, t, 1002), smackOf(e, t, 1003)
	deny := func(what string, err error) {
		t.Helper()
		if codeOf(err) != codes.PermissionDenied {
			t.Errorf("%s: %v", what, err)
		}
	}
	fine := func(what string, err error) {
		t.Helper()
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	_, err := viewer.GetSmack(e.ctx(), &apiv1.GetSmackRequest{})
	fine("a viewer looks", err)
	_, err = viewer.Load(e.ctx(), &apiv1.LoadRequest{Ref: "mine", DryRun: true})
	deny("a viewer tries a load", err)
	_, err = owner.Load(e.ctx(), &apiv1.LoadRequest{Ref: "theirs"})
	deny("a load of another's policy", err)
	_, err = owner.Revoke(e.ctx(), &apiv1.RevokeRequest{Subject: "App"})
	deny("a revoke without a policy, by an admin of some", err)
	_, err = owner.Load(e.ctx(), &apiv1.LoadRequest{Ref: "mine"})
	fine("a load of his own policy", err)
	_, err = owner.Revoke(e.ctx(), &apiv1.RevokeRequest{Subject: "App"})
	fine("a revoke under his own policy", err)
	_, err = user.Unload(e.ctx(), &apiv1.UnloadRequest{})
	deny("a user unloads", err)
	_, err = user.GetSmack(e.ctx(), &apiv1.GetSmackRequest{})
	fine("a user, who is a viewer too", err)
	_, err = smackOf(e, t).Load(e.ctx(), &apiv1.LoadRequest{Ref: "theirs"})
	fine("root", err)
	_, err = owner.Load(e.ctx(), &apiv1.LoadRequest{Ref: "mine"})
	deny("taking the place of another's policy", err)
	_, err = owner.GetSmack(e.ctx(), &apiv1.GetSmackRequest{})
	deny("a look at another's policy", err)
	_, err = owner.CheckAccess(e.ctx(), &apiv1.CheckAccessRequest{Subject: "A", Object: "B", Access: "r"})
	deny("a question about another's policy", err)
}

// TestSmackNotInForce: health says so, and nothing labelled starts.
func TestSmackNotInForce(t *testing.T) {
	var model atomic.Pointer[smackfs.Model] // policyd looks again and again
	model.Store(smackfs.NewModel(smackfs.ModelKernel{}))
	st := storetest.Open(t)
	host := smackhost.New(smackhost.Config{Store: st, Find: func() (smackfs.FS, error) { return model.Load(), nil }})
	e := startOn(t, st, func(c *Config) { c.Smack = host })
	e.apply(smackPolicy("a", "App Data rw"), echoPolicy("web"))
	eventually(t, "ready", e.Ready)
	c := smackOf(e, t)
	if _, err := c.Load(e.ctx(), &apiv1.LoadRequest{Ref: "a"}); err != nil {
		t.Fatal(err)
	}
	model.Store(smackfs.NewModel(smackfs.ModelKernel{}))
	f, err := model.Load().Open("onlycap", unix.O_WRONLY)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Write([]byte("System")); err != nil {
		t.Fatal(err)
	}
	if err := host.Boot(t.Context()); !errors.Is(err, errs.ErrSmackOnlycap) {
		t.Fatal(err)
	}
	e.tellHealth()
	if e.Ready() {
		t.Error("ready, and the assigned policy is not in force")
	}
	_, err = e.box.Start(e.ctx(), &apiv1.StartRequest{Spec: &apiv1.SandboxSpec{Ref: "web", Argv: []string{"/bin/true"}, SmackLabel: "App"}})
	if st := wantStatus(t, err, codes.FailedPrecondition, "SMACK_ONLYCAP"); !strings.Contains(st.Message(), "a@1") {
		t.Errorf("a labelled start: %v", st)
	}
	_, err = c.Load(e.ctx(), &apiv1.LoadRequest{Ref: "a"})
	wantStatus(t, err, codes.FailedPrecondition, "SMACK_ONLYCAP")
	model.Store(smackfs.NewModel(smackfs.ModelKernel{}))
	eventually(t, "ready again", e.Ready)
	health, err := e.health.Check(e.ctx(), &healthv1.HealthCheckRequest{Service: apiv1.SmackService_ServiceDesc.ServiceName})
	if err != nil || health.GetStatus() != healthv1.HealthCheckResponse_SERVING {
		t.Errorf("health: %v %v", health, err)
	}
}

// TestWhoMayLabel is the decision on the label of a start.
func TestWhoMayLabel(t *testing.T) {
	e, _ := smackEnv(t)
	a := newAuthority(0, []config.Grant{
		{Role: config.RoleUser, Users: []uint32{1}},
		{Role: config.RoleUser, Users: []uint32{2}, Policies: []string{"web"}, SandboxLabels: []string{"Job-*", "Exact"}},
		{Role: config.RoleOperator, Users: []uint32{3}},
		{Role: config.RoleViewer, Users: []uint32{4}, SandboxLabels: []string{"*"}},
	})
	for _, tc := range []struct {
		uid         uint32
		policy      string
		label, pool string
		own         string
		want        string // label, or the first of the pool; "!" not allowed, "?" invalid
	}{
		{1, "web", "", "", "", ""},
		{1, "web", "", "", "Own", "Own"},
		{1, "web", "Own", "", "Own", "Own"},
		{1, "web", "Exact", "", "", "!"},
		{1, "web", "", "Job", "", "!"},
		{2, "web", "Exact", "", "", "Exact"},
		{2, "web", "Job-7", "", "", "Job-7"},
		{2, "web", "", "Job", "", "Job-1"},
		{2, "web", "", "Exact", "", "!"},
		{2, "web", "Exact", "", "Own", "!"},
		{2, "web", "", "Job", "Own", "!"},
		{2, "db", "Exact", "", "", "!"},
		{2, "web", "Exact2", "", "", "!"},
		{3, "web", "Any", "", "Own", "Any"},
		{3, "web", "", "Any", "Own", "Any-1"},
		{4, "web", "Any", "", "", "!"},
		{3, "web", "*", "", "", "?"},
		{3, "web", "@", "", "", "?"},
		{3, "web", "a/b", "", "", "?"},
		{3, "web", "-x", "", "", "?"},
		{3, "web", strings.Repeat("l", 256), "", "", "?"},
		{3, "web", "", strings.Repeat("l", 254), "", "?"},
		{3, "web", "", "a b", "", "?"},
		{3, "web", "A", "B", "", "?"},
	} {
		c := a.caller(&peer.Identity{Local: true, UID: tc.uid})
		label, pool, _, err := e.smackLabel(c, tc.policy, &apiv1.SandboxSpec{SmackLabel: tc.label, SmackPool: tc.pool}, tc.own)
		got := label
		if len(pool) > 0 {
			got = pool[0]
		}
		switch {
		case errors.Is(err, errs.ErrNotAllowed):
			got = "!"
		case errors.Is(err, errs.ErrInvalid):
			got = "?"
		case err != nil:
			t.Errorf("%+v: %v", tc, err)
		}
		if got != tc.want {
			t.Errorf("%+v: %q, %v", tc, got, err)
		}
	}
}

// TestRelabelSelf: who gives the label of a start, gives the labels that it may take afterwards; of a pool's label
// nothing is made, and who may give some labels alone gives no other in this way.
func TestRelabelSelf(t *testing.T) {
	grants := []config.Grant{
		{Role: config.RoleUser, Users: []uint32{1}},
		{Role: config.RoleUser, Users: []uint32{2}, SandboxLabels: []string{"Job*"}},
		{Role: config.RoleOperator, Users: []uint32{3}},
	}
	e, _ := smackEnv(t)
	a := newAuthority(0, grants)
	with := []byte("apiVersion: policyd/v1\nkind: SmackPolicy\nmetadata: {name: a}\nspec: {layers: [{rules: A B r}], settings: {relabelSelf: [Job-2, Next]}}\n")
	e.apply(with, smackPolicy("b", "A B r"))
	ask := func(uid uint32, spec *apiv1.SandboxSpec, own string) string {
		t.Helper()
		_, _, relabel, err := e.smackLabel(a.caller(&peer.Identity{Local: true, UID: uid}), "web", spec, own)
		if err != nil {
			t.Errorf("user %d, %v, own label %q: %v", uid, spec, own, err)
		}
		return strings.Join(relabel, " ")
	}
	job := &apiv1.SandboxSpec{SmackLabel: "Job"}
	if got := ask(3, job, ""); got != "" {
		t.Errorf("before a load: %q", got)
	}
	c := smackOf(e, t)
	for _, load := range []struct {
		ref  string
		once bool
	}{{"a", false}, {"b", false}, {"a", true}} {
		if _, err := c.Load(e.ctx(), &apiv1.LoadRequest{Ref: load.ref, Once: load.once}); err != nil {
			t.Fatal(err)
		}
		for _, tc := range []struct {
			uid  uint32
			spec *apiv1.SandboxSpec
			own  string
			want string
		}{
			{1, &apiv1.SandboxSpec{}, "", ""},
			{1, &apiv1.SandboxSpec{}, "Own", "Job-2 Next"},
			{2, job, "", "Job-2"},
			{2, job, "Job", "Job-2 Next"},
			{2, &apiv1.SandboxSpec{SmackPool: "Job"}, "", ""},
			{3, job, "", "Job-2 Next"},
			{3, &apiv1.SandboxSpec{SmackPool: "Job"}, "", ""},
		} {
			want := tc.want
			if load.ref == "b" {
				want = ""
			}
			if got := ask(tc.uid, tc.spec, tc.own); got != want {
				t.Errorf("%s, user %d, %v, own label %q: %q, want %q", load.ref, tc.uid, tc.spec, tc.own, got, want)
			}
		}
	}
	if _, err := c.Unload(e.ctx(), &apiv1.UnloadRequest{}); err != nil {
		t.Fatal(err)
	}
	if got := ask(3, job, ""); got != "" {
		t.Errorf("after an unload: %q", got)
	}
}
