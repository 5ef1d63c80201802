package server

import (
	"fmt"
	"testing"

	"google.golang.org/grpc/codes"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/internal/errs"
	"policyd.dev/policyd/store"
)

// ofFleet makes what is stored now the documents of a fleet's bundle; open are the policies it leaves to this host.
func ofFleet(t *testing.T, e *env, open ...string) {
	t.Helper()
	act := store.Activation{
		State:  &apiv1.FleetState{Fleet: "prod", Channel: "stable", Seq: 7},
		Digest: "sha256:" + fmt.Sprintf("%064x", 7), Blob: []byte("bundle"),
		Overridable: func(_, name string) bool {
			for _, o := range open {
				if o == name {
					return true
				}
			}
			return false
		},
	}
	for _, kind := range store.Kinds() {
		infos, _, err := e.store.List(kind, store.Filter{})
		if err != nil {
			t.Fatal(err)
		}
		for _, info := range infos {
			v, err := e.store.Get(kind, info.GetName())
			if err != nil {
				t.Fatal(err)
			}
			act.Puts = append(act.Puts, store.Put{Kind: kind, Name: info.GetName(), Resource: v.GetResource(), Source: v.GetSource(), Digest: info.GetDigest(), Pins: info.GetPins()})
		}
	}
	if _, err := e.store.Activate(t.Context(), store.Actor{Name: "fleet:prod/stable"}, act); err != nil {
		t.Fatal(err)
	}
	e.StoreChanged()
}

// TestFromTheFleet: what comes from the channel is shown as such, and is not changed here, by whatever call.
func TestFromTheFleet(t *testing.T) {
	e, _ := smackEnv(t)
	e.apply(echoPolicy("web"), echoPolicy("open"), smackPolicy("platform", "App Data rw"), smackPolicy("other", "App Data r"))
	smack := smackOf(e, t)
	if _, err := smack.Load(e.ctx(), &apiv1.LoadRequest{Ref: "platform"}); err != nil {
		t.Fatal(err)
	}
	ofFleet(t, e, "open")
	e.apply(echoPolicy("mine"))

	list, err := e.policy.List(e.ctx(), &apiv1.ListRequest{Kind: store.KindLandlockPolicy})
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, v := range list.GetVersions() {
		got[v.GetName()] = v.GetOrigin()
	}
	if got["web"] != "stable@7" || got["open"] != "stable@7" || got["mine"] != "" {
		t.Errorf("origins: %v", got)
	}
	const more = "        - {allow: [read], at: [/srv], missing: skip}\n"
	for name, change := range map[string]func() error{
		"apply": func() error {
			_, err := e.policy.Apply(e.ctx(), &apiv1.ApplyRequest{Files: files(echoPolicy("web", more))})
			return err
		},
		"a dry run": func() error {
			_, err := e.policy.Apply(e.ctx(), &apiv1.ApplyRequest{Files: files(echoPolicy("web")), DryRun: true})
			return err
		},
		"rollback": func() error {
			_, err := e.policy.Rollback(e.ctx(), &apiv1.RollbackRequest{Kind: store.KindLandlockPolicy, Name: "web", To: 1})
			return err
		},
		"tag": func() error {
			_, err := e.policy.SetTag(e.ctx(), &apiv1.SetTagRequest{Kind: store.KindLandlockPolicy, Ref: "web@1", Tag: "x"})
			return err
		},
		"delete": func() error {
			_, err := e.policy.Delete(e.ctx(), &apiv1.DeleteRequest{Kind: store.KindLandlockPolicy, Name: "web", Expect: &apiv1.Expectation{Number: 1}})
			return err
		},
		"delete of an open one": func() error {
			_, err := e.policy.Delete(e.ctx(), &apiv1.DeleteRequest{Kind: store.KindLandlockPolicy, Name: "open", Expect: &apiv1.Expectation{Number: 1}})
			return err
		},
		"another smack policy": func() error {
			_, err := smack.Load(e.ctx(), &apiv1.LoadRequest{Ref: "other"})
			return err
		},
		"unload": func() error { _, err := smack.Unload(e.ctx(), &apiv1.UnloadRequest{}); return err },
	} {
		if err := change(); codeOf(err) != codes.FailedPrecondition {
			t.Errorf("%s: %v", name, err)
		} else {
			wantStatus(t, err, codes.FailedPrecondition, "FROM_CHANNEL")
		}
	}
	if _, err := smack.Load(e.ctx(), &apiv1.LoadRequest{Ref: "other", DryRun: true}); err != nil {
		t.Errorf("looking what another would change: %v", err)
	}
	e.apply(echoPolicy("open", more)) // the bundle leaves it to this host
	if v, err := e.policy.GetVersion(e.ctx(), &apiv1.GetVersionRequest{Kind: store.KindLandlockPolicy, Ref: "open"}); err != nil || v.GetVersion().GetInfo().GetOrigin() != "" {
		t.Errorf("this host's own: %v %v", v.GetVersion().GetInfo(), err)
	}
}

func TestFleetStatus(t *testing.T) {
	e := start(t, nil)
	if s, err := e.admin.Status(e.ctx(), &apiv1.StatusRequest{}); err != nil || s.GetFleet() != nil {
		t.Errorf("of no fleet: %v %v", s.GetFleet(), err)
	}
	e.SetFleet(func() *apiv1.FleetStatus { return &apiv1.FleetStatus{Fleet: "prod", State: "Loaded"} })
	if s, err := e.admin.Status(e.ctx(), &apiv1.StatusRequest{}); err != nil || s.GetFleet().GetState() != "Loaded" {
		t.Errorf("status: %v %v", s.GetFleet(), err)
	}
	if Reason(fmt.Errorf("x: %w", errs.ErrOlderSequence)) != "OLDER_SEQUENCE" || Reason(fmt.Errorf("x")) != "" {
		t.Error("reasons")
	}
}
