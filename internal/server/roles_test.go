package server

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/internal/config"
	"policyd.dev/policyd/internal/errs"
	"policyd.dev/policyd/internal/peer"
	"policyd.dev/policyd/store"
)

func TestGrants(t *testing.T) {
	grants := []config.Grant{
		{Role: config.RoleViewer, Everyone: true},
		{Role: config.RoleUser, Users: []uint32{1000}},
		{Role: config.RoleOperator, Groups: []uint32{50}, Policies: []string{"web-*", "team/*"}},
		{Role: config.RoleAdmin, SmackLabels: []string{"Admin"}, Policies: []string{"db"}},
		{Role: config.RoleOperator, Certificates: []string{"ci"}},
	}
	a := newAuthority(0, grants)
	local := func(uid, gid uint32, label string, groups ...uint32) *peer.Identity {
		return &peer.Identity{Local: true, UID: uid, GID: gid, SmackLabel: label, Groups: groups}
	}
	for _, tc := range []struct {
		name         string
		id           *peer.Identity
		most, global config.Role
		on           map[string]config.Role
	}{
		{"self", local(0, 0, ""), config.RoleAdmin, config.RoleAdmin, map[string]config.Role{"x": config.RoleAdmin}},
		{"everyone", local(7, 7, ""), config.RoleViewer, config.RoleViewer, map[string]config.Role{"web-1": config.RoleViewer}},
		{"user", local(1000, 7, ""), config.RoleUser, config.RoleUser, nil},
		{"group", local(7, 50, ""), config.RoleOperator, config.RoleViewer, map[string]config.Role{"web-1": config.RoleOperator, "web": config.RoleViewer, "team/x": config.RoleOperator, "team": config.RoleViewer}},
		{"supplementary group", local(7, 7, "", 49, 50), config.RoleOperator, config.RoleViewer, nil},
		{"label", local(7, 7, "Admin"), config.RoleAdmin, config.RoleViewer, map[string]config.Role{"db": config.RoleAdmin, "db2": config.RoleViewer}},
		{"certificate", &peer.Identity{Certificate: "ci"}, config.RoleOperator, config.RoleOperator, nil},
		{"other certificate", &peer.Identity{Certificate: "cd"}, config.RoleNone, config.RoleNone, map[string]config.Role{"x": config.RoleNone}},
		{"nobody", &peer.Identity{}, config.RoleNone, config.RoleNone, nil},
	} {
		c := a.caller(tc.id)
		if c.most(false) != tc.most || c.most(true) != tc.global {
			t.Errorf("%s: %v, of everything %v; want %v, %v", tc.name, c.most(false), c.most(true), tc.most, tc.global)
		}
		for name, want := range tc.on {
			if got := c.roleFor(name); got != want {
				t.Errorf("%s on %s: %v, want %v", tc.name, name, got, want)
			}
		}
	}
	// A plain user's policyd serves him alone, root included.
	own := newAuthority(1000, nil)
	if r := own.caller(local(0, 0, "")).most(false); r != config.RoleNone {
		t.Errorf("root is %v of a plain user's policyd", r)
	}
	if r := own.caller(local(1000, 5, "")).most(true); r != config.RoleAdmin {
		t.Errorf("its user is %v", r)
	}
	// What runs in a sandbox looks on, whoever its user is.
	in := local(0, 0, "")
	in.Confined = "it runs in a sandbox"
	if c := a.caller(in); c.most(true) != config.RoleViewer || c.roleFor("x") != config.RoleViewer {
		t.Errorf("in a sandbox the user of policyd is %v", c.most(true))
	}
	in = local(7, 50, "")
	in.Confined = "it runs in a sandbox"
	if c := a.caller(in); c.most(false) != config.RoleViewer || c.roleFor("web-1") != config.RoleViewer {
		t.Errorf("in a sandbox an operator is %v", c.most(false))
	}
	if r := a.caller(local(7, 50, "")).roleFor("web-1"); r != config.RoleOperator {
		t.Errorf("afterwards an operator is %v", r)
	}
	// An identity that is not local is no uid, though the field is 0.
	if r := newAuthority(0, nil).caller(&peer.Identity{Certificate: "x"}).most(false); r != config.RoleNone {
		t.Errorf("a certificate is %v by default", r)
	}
}

func TestAccount(t *testing.T) {
	local := func(uid, gid uint32, groups ...uint32) *peer.Identity {
		return &peer.Identity{Local: true, UID: uid, GID: gid, Groups: groups}
	}
	user := func(id *peer.Identity) *Caller {
		return &Caller{Identity: id, grants: []config.Grant{{Role: config.RoleUser}}}
	}
	operator := func(id *peer.Identity) *Caller {
		return &Caller{Identity: id, grants: []config.Grant{{Role: config.RoleOperator, Policies: []string{"web"}}}}
	}
	for _, tc := range []struct {
		name        string
		c           *Caller
		user, group string
		self        int
		policy      string
		want        string // uid gid groups, or part of the error
	}{
		{"himself", user(local(1000, 100, 5, 6)), "", "", 0, "web", "1000 100 [5 6]"},
		{"himself by uid", user(local(1000, 100, 5)), "1000", "", 0, "web", "1000 100 [5]"},
		{"own group", user(local(1000, 100, 5, 6)), "", "6", 0, "web", "1000 6 [5 6 100]"},
		{"own group as is", user(local(1000, 100, 5)), "", "100", 0, "web", "1000 100 [5]"},
		{"foreign group", user(local(1000, 100, 5)), "", "0", 0, "web", "not allowed: uid:1000 is not in group"},
		{"root", user(local(1000, 100)), "root", "", 0, "web", "not allowed: uid:1000 may start sandboxes as himself only"},
		{"uid 0", user(local(1000, 100)), "0", "", 0, "web", "not allowed"},
		{"uid -1", user(local(1000, 100)), "4294967295", "", 0, "web", "not one"},
		{"operator", operator(local(1000, 100, 5)), "root", "", 0, "web", "0 0 ["},
		{"operator of another policy", operator(local(1000, 100)), "root", "", 0, "db", "not allowed"},
		{"operator, any group", operator(local(1000, 100)), "", "7", 0, "web", "1000 7 [100]"},
		{"no such user", operator(local(1000, 100)), "no-such-user", "", 0, "web", "does not exist"},
		{"no such group", operator(local(1000, 100)), "", "no-such-group", 0, "web", "does not exist"},
		{"network without user", operator(&peer.Identity{Certificate: "ci"}), "", "", 0, "web", "name the user"},
		{"network", operator(&peer.Identity{Certificate: "ci"}), "root", "", 0, "web", "0 0 ["},
		{"network, user's role", user(&peer.Identity{Certificate: "ci"}), "root", "", 0, "web", "not allowed"},
		{"policyd without root", operator(local(1000, uint32(os.Getegid()))), "root", "", 1000, "web", "policyd runs as uid 1000"},
		{"policyd without root, itself", operator(local(1000, uint32(os.Getegid()))), "", "", 1000, "web", "as policyd"},
		{"policyd without root, other group", operator(local(1000, uint32(os.Getegid())+1)), "", "", 1000, "web", "policyd runs as gid"},
	} {
		a, err := tc.c.account(&apiv1.SandboxSpec{User: tc.user, Group: tc.group}, tc.policy, tc.self)
		got := "as policyd"
		switch {
		case err != nil:
			got = err.Error()
			if !errors.Is(err, errs.ErrNotAllowed) && !errors.Is(err, errs.ErrInvalid) {
				t.Errorf("%s: %v is no sentinel a client understands", tc.name, err)
			}
		case a.cred != nil:
			got = sprint(a.cred.UID, a.cred.GID, a.cred.Groups)
		}
		if !strings.Contains(got, tc.want) {
			t.Errorf("%s: %s, want %s", tc.name, got, tc.want)
		}
	}
}

// What each role may do, with connections of other users to a root's policyd.
func TestRolesOverTheSocket(t *testing.T) {
	const viewer, user, operator, admin, limited, nobody = 60001, 60002, 60003, 60004, 60005, 60006
	e := start(t, func(c *Config) {
		c.Grants = []config.Grant{
			{Role: config.RoleViewer, Users: []uint32{viewer}},
			{Role: config.RoleUser, Groups: []uint32{60900}},
			{Role: config.RoleOperator, Users: []uint32{operator}},
			{Role: config.RoleAdmin, Users: []uint32{admin}},
			{Role: config.RoleAdmin, Users: []uint32{limited}, Policies: []string{"web-*"}},
		}
	})
	e.as(1, 1) // root, or skip
	e.apply(echoPolicy("web-a"), echoPolicy("db"))
	owned := e.startProgram("web-a", "/bin/sleep", "60")
	clients := map[string]*env{
		"root": e, "viewer": e.as(viewer, viewer), "user": e.as(user, user, 60900), "operator": e.as(operator, operator),
		"admin": e.as(admin, admin), "limited": e.as(limited, limited), "nobody": e.as(nobody, nobody),
	}
	spec := func(ref, user string) *apiv1.StartRequest {
		return &apiv1.StartRequest{Spec: &apiv1.SandboxSpec{Ref: ref, Argv: []string{"/bin/true"}, User: user}}
	}
	for _, tc := range []struct {
		what    string
		allowed string
		call    func(e *env, ctx context.Context) error
	}{
		{"status", "root viewer user operator admin limited", func(e *env, ctx context.Context) error {
			_, err := e.admin.Status(ctx, &apiv1.StatusRequest{})
			return err
		}},
		{"get web-a", "root viewer user operator admin limited", func(e *env, ctx context.Context) error {
			_, err := e.policy.GetVersion(ctx, &apiv1.GetVersionRequest{Kind: store.KindLandlockPolicy, Ref: "web-a"})
			return err
		}},
		{"get db", "root viewer user operator admin", func(e *env, ctx context.Context) error {
			_, err := e.policy.GetVersion(ctx, &apiv1.GetVersionRequest{Kind: store.KindLandlockPolicy, Ref: "db"})
			return err
		}},
		{"history db", "root viewer user operator admin", func(e *env, ctx context.Context) error {
			_, err := e.policy.ListVersions(ctx, &apiv1.ListVersionsRequest{Kind: store.KindLandlockPolicy, Name: "db"})
			return err
		}},
		{"get std/base", "root viewer user operator admin limited", func(e *env, ctx context.Context) error {
			_, err := e.policy.GetVersion(ctx, &apiv1.GetVersionRequest{Kind: store.KindFragment, Ref: "std/base"})
			return err
		}},
		// Twice: the second is answered from memory, and asks for the role all the same.
		{"profile db", "root viewer user operator admin", func(e *env, ctx context.Context) error {
			_, err := e.prof.GetProfile(ctx, &apiv1.GetProfileRequest{Ref: "db"})
			return err
		}},
		{"profile db again", "root viewer user operator admin", func(e *env, ctx context.Context) error {
			_, err := e.prof.GetProfile(ctx, &apiv1.GetProfileRequest{Ref: "db"})
			return err
		}},
		{"validate db", "root viewer user operator admin", func(e *env, ctx context.Context) error {
			_, err := e.policy.Validate(ctx, &apiv1.ValidateRequest{Files: files(echoPolicy("db"))})
			return err
		}},
		{"start db", "root user operator admin", func(e *env, ctx context.Context) error {
			_, err := e.box.Start(ctx, spec("db", ""))
			return err
		}},
		{"start web-a", "root user operator admin limited", func(e *env, ctx context.Context) error {
			_, err := e.box.Start(ctx, spec("web-a", ""))
			return err
		}},
		{"start web-a as root", "root operator admin limited", func(e *env, ctx context.Context) error {
			_, err := e.box.Start(ctx, spec("web-a", "root"))
			return err
		}},
		{"run db", "root user operator admin", func(e *env, ctx context.Context) error { return e.runAttached(ctx, spec("db", "")) }},
		{"see root's sandbox", "root operator admin limited", func(e *env, ctx context.Context) error {
			_, err := e.box.GetSandbox(ctx, &apiv1.GetSandboxRequest{Id: owned.GetId()})
			return err
		}},
		{"logs of root's sandbox", "root operator admin limited", func(e *env, ctx context.Context) error {
			s, err := e.box.Logs(ctx, &apiv1.LogsRequest{Id: owned.GetId()})
			if err == nil {
				_, err = s.Recv()
			}
			return ignoreEOF(err)
		}},
		{"signal root's sandbox", "root operator admin limited", func(e *env, ctx context.Context) error {
			_, err := e.box.Signal(ctx, &apiv1.SignalRequest{Id: owned.GetId(), Signal: 18})
			return err
		}},
		// Only who started it may; that it has no streams to give is the next question.
		{"attach to root's sandbox", "root", func(e *env, ctx context.Context) error {
			s, err := e.box.Attach(ctx)
			if err == nil {
				err = s.Send(&apiv1.AttachRequest{Request: &apiv1.AttachRequest_Attach{Attach: &apiv1.AttachStart{Id: owned.GetId()}}})
			}
			if err == nil {
				_, err = s.Recv()
			}
			if codeOf(err) == codes.InvalidArgument {
				return nil
			}
			return err
		}},
		{"tag web-a", "root operator admin limited", func(e *env, ctx context.Context) error {
			_, err := e.policy.SetTag(ctx, &apiv1.SetTagRequest{Kind: store.KindLandlockPolicy, Ref: "web-a@1", Tag: "t"})
			return err
		}},
		{"tag db", "root operator admin", func(e *env, ctx context.Context) error {
			_, err := e.policy.SetTag(ctx, &apiv1.SetTagRequest{Kind: store.KindLandlockPolicy, Ref: "db@1", Tag: "t"})
			return err
		}},
		{"roll back db", "root operator admin", func(e *env, ctx context.Context) error {
			_, err := e.policy.Rollback(ctx, &apiv1.RollbackRequest{Kind: store.KindLandlockPolicy, Name: "db", To: 1})
			return err
		}},
		{"apply web-a", "root admin limited", func(e *env, ctx context.Context) error {
			_, err := e.policy.Apply(ctx, &apiv1.ApplyRequest{Files: files(echoPolicy("web-a"))})
			return err
		}},
		{"apply web-a and db", "root admin", func(e *env, ctx context.Context) error {
			_, err := e.policy.Apply(ctx, &apiv1.ApplyRequest{Files: files(echoPolicy("web-a"), echoPolicy("db"))})
			return err
		}},
		{"events", "root operator admin", func(e *env, ctx context.Context) error {
			s, err := e.admin.Events(ctx, &apiv1.EventsRequest{Tail: 1})
			if err == nil {
				_, err = s.Recv()
			}
			return ignoreEOF(err)
		}},
		{"backup", "root admin", func(e *env, ctx context.Context) error {
			s, err := e.admin.Backup(ctx, &apiv1.BackupRequest{})
			if err == nil {
				_, err = s.Recv()
			}
			return ignoreEOF(err)
		}},
		{"check", "root admin", func(e *env, ctx context.Context) error {
			_, err := e.admin.CheckStore(ctx, &apiv1.CheckStoreRequest{})
			return err
		}},
		{"delete db", "admin", func(e *env, ctx context.Context) error {
			if e.box == clients["root"].box {
				return context.Canceled // it is deleted once only
			}
			_, err := e.policy.Delete(ctx, &apiv1.DeleteRequest{Kind: store.KindLandlockPolicy, Name: "absent"})
			if codeOf(err) == codes.NotFound {
				return nil
			}
			return err
		}},
	} {
		for name, client := range clients {
			err := tc.call(client, client.ctx())
			want := slices.Contains(strings.Fields(tc.allowed), name)
			switch {
			case want && err != nil:
				t.Errorf("%s: %s was refused: %v", tc.what, name, err)
			case !want && name != "root" && codeOf(err) != codes.PermissionDenied:
				t.Errorf("%s: %s got %v, want PermissionDenied", tc.what, name, err)
			}
		}
	}

	// A user's sandbox is his: uid, gid and groups are those of his process, and nobody but an operator tends it.
	u := clients["user"]
	sb, exit := u.run("web-a", "/usr/bin/id")
	if out, _ := u.logs(sb.GetId()); exit.GetCode() != 0 || !strings.Contains(out, "uid=60002") || !strings.Contains(out, "gid=60002") || !strings.Contains(out, "60900") {
		t.Errorf("id says %q, exit %v", out, exit)
	}
	list, err := u.box.ListSandboxes(u.ctx(), &apiv1.ListSandboxesRequest{All: true})
	if err != nil || len(list.GetSandboxes()) == 0 {
		t.Fatal(list, err)
	}
	for _, sb := range list.GetSandboxes() {
		if sb.GetOwner() != "uid:60002" {
			t.Errorf("the user sees %s of %s", sb.GetId(), sb.GetOwner())
		}
	}
	_, err = clients["user"].box.Signal(u.ctx(), &apiv1.SignalRequest{Id: owned.GetId()[:6], Signal: 18})
	if st := wantStatus(t, err, codes.PermissionDenied, "NOT_ALLOWED"); strings.Contains(st.String(), owned.GetId()) || strings.Contains(st.String(), owned.GetPolicy()) || strings.Contains(st.String(), owned.GetOwner()) {
		t.Errorf("a user is told of another's sandbox: %v", st)
	}
	if _, err := clients["operator"].box.Remove(u.ctx(), &apiv1.RemoveRequest{Id: sb.GetId()}); err != nil {
		t.Errorf("operator may not remove: %v", err)
	}
	if l, err := clients["limited"].policy.List(e.ctx(), &apiv1.ListRequest{Kind: store.KindLandlockPolicy}); err != nil || len(l.GetVersions()) != 1 {
		t.Errorf("the limited one sees %v, %v", l, err)
	}
}

// An unauthorized document in a request changes nothing of the others.
func TestUnauthorizedApplyChangesNothing(t *testing.T) {
	e := start(t, func(c *Config) {
		c.Grants = []config.Grant{{Role: config.RoleAdmin, Users: []uint32{60005}, Policies: []string{"web-*"}}}
	})
	limited := e.as(60005, 60005)
	_, err := limited.policy.Apply(e.ctx(), &apiv1.ApplyRequest{Files: files(echoPolicy("web-a"), echoPolicy("db"))})
	wantStatus(t, err, codes.PermissionDenied, "NOT_ALLOWED")
	if l, err := e.policy.List(e.ctx(), &apiv1.ListRequest{Kind: store.KindLandlockPolicy}); err != nil || len(l.GetVersions()) != 0 {
		t.Errorf("stored: %v, %v", l, err)
	}
	// What he cannot see he cannot include.
	e.apply([]byte("apiVersion: policyd/v1\nkind: Fragment\nmetadata: {name: secret/x}\nspec: {abi: 4, paths: [{allow: [read], at: [/opt]}]}\n"))
	_, err = limited.policy.Apply(e.ctx(), &apiv1.ApplyRequest{Files: files(echoPolicy("web-a", "      include: [secret/x]\n"))})
	if c := codeOf(err); c != codes.PermissionDenied && c != codes.InvalidArgument {
		t.Errorf("a fragment out of sight was included: %v", err)
	}
}

// Roles change with a reload, for connections that are open too.
func TestReload(t *testing.T) {
	e := start(t, func(c *Config) { c.Grants = []config.Grant{} })
	other := e.as(60001, 60001)
	_, err := other.admin.Status(e.ctx(), &apiv1.StatusRequest{})
	wantStatus(t, err, codes.PermissionDenied, "NOT_ALLOWED")
	e.Reload([]config.Grant{{Role: config.RoleViewer, Everyone: true}}, testLimits())
	if _, err := other.admin.Status(e.ctx(), &apiv1.StatusRequest{}); err != nil {
		t.Errorf("after reload: %v", err)
	}
}

func ignoreEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// A connection without an identity has no roles.
func TestNoIdentity(t *testing.T) {
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	creds, err := peer.Credentials(nil, peer.NewConnections(1, slog.Default()))
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := creds.ServerHandshake(a); err == nil {
		t.Error("a pipe has an identity")
	}
	e := start(t, nil)
	c, _ := e.begin(context.Background(), apiv1.AdminService_Status_FullMethodName)
	if err := e.allowed(c); !errors.Is(err, errs.ErrNotAllowed) {
		t.Errorf("a call without a peer: %v", err)
	}
}
