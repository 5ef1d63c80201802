package server

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/store"
	"policyd.dev/policyd/store/storetest"
)

// Old versions go by themselves; the newest ones, as many as configured, and tagged ones stay.
func TestCollect(t *testing.T) {
	st := storetest.OpenAt(t, filepath.Join(t.TempDir(), "policyd.db"), store.Options{KeepVersions: 2})
	e := startOn(t, st, nil)
	for n := range 5 {
		e.apply(echoPolicy("web", fmt.Sprintf("        - {allow: [read], at: [/srv/%d], missing: skip}\n", n)))
	}
	if _, err := e.policy.SetTag(e.ctx(), &apiv1.SetTagRequest{Kind: store.KindLandlockPolicy, Ref: "web@1", Tag: "first"}); err != nil {
		t.Fatal(err)
	}
	get := func(ref string) error {
		_, err := e.policy.GetVersion(e.ctx(), &apiv1.GetVersionRequest{Kind: store.KindLandlockPolicy, Ref: ref})
		return err
	}
	e.ticking.Go(func() { e.collect(time.Millisecond) })
	for deadline := time.Now().Add(10 * time.Second); get("web@2") == nil && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond)
	}
	wantStatus(t, get("web@2"), codes.NotFound, "NOT_FOUND")
	for _, ref := range []string{"web@1", "web@first", "web@4", "web@5"} {
		if err := get(ref); err != nil {
			t.Errorf("%s: %v", ref, err)
		}
	}
}
