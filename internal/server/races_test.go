package server

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/internal/testkernel"
	"policyd.dev/policyd/store"
	"policyd.dev/policyd/store/storetest"
)

// A policy that is deleted and stored again while it is started: each start either runs the version it found or says clearly that
// there is none.
func TestDeletedWhileStarting(t *testing.T) {
	e := start(t, nil)
	e.apply(echoPolicy("web"))
	stop, done := make(chan struct{}), make(chan error, 1)
	go func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				done <- nil
				return
			default:
			}
			_, err := e.policy.Delete(e.ctx(), &apiv1.DeleteRequest{Kind: store.KindLandlockPolicy, Name: "web"})
			if c := codeOf(err); err != nil && c != codes.FailedPrecondition && c != codes.NotFound {
				done <- fmt.Errorf("delete: %w", err)
				return
			}
			text := echoPolicy("web", fmt.Sprintf("        - {allow: [read], at: [/srv/%d], missing: skip}\n", i))
			if _, err := e.policy.Apply(e.ctx(), &apiv1.ApplyRequest{Files: files(text)}); err != nil {
				done <- fmt.Errorf("apply: %w", err)
				return
			}
		}
	}()
	var ran, refused int
	for range 60 {
		r, err := e.box.Start(e.ctx(), &apiv1.StartRequest{Spec: &apiv1.SandboxSpec{Ref: "web", Argv: []string{"/bin/true"}}})
		if err != nil {
			wantStatus(t, err, codes.NotFound, "DELETED")
			refused++
			continue
		}
		ran++
		sb := r.GetSandbox()
		v, err := e.store.Get(store.KindLandlockPolicy, fmt.Sprintf("web@%d", sb.GetVersion()))
		if err != nil || v.GetInfo().GetDigest() != sb.GetVersionDigest() {
			t.Errorf("started version %d of digest %s, which the store does not have: %v", sb.GetVersion(), sb.GetVersionDigest(), err)
		}
	}
	close(stop)
	if err := <-done; err != nil {
		t.Error(err)
	}
	t.Logf("%d ran, %d refused", ran, refused)
	if ran == 0 {
		t.Error("nothing was started")
	}
}

// With no space left an apply is refused with the reason, changes nothing, and is possible again later.
func TestStoreFull(t *testing.T) {
	testkernel.RequireRoot(t)
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=1m"); err != nil {
		testkernel.Skip(t, "a tmpfs to fill", "run as root outside of a container without CAP_SYS_ADMIN")
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	e := startOn(t, storetest.OpenAt(t, filepath.Join(dir, "policyd.db"), store.Options{}), nil)
	e.apply(echoPolicy("web"))
	filler, err := os.Create(filepath.Join(dir, "filler"))
	if err != nil {
		t.Fatal(err)
	}
	for err == nil {
		_, err = filler.Write(make([]byte, 4096))
	}
	if err := filler.Close(); err != nil {
		t.Fatal(err)
	}
	var refused error
	number := uint64(1)
	for i := 0; refused == nil && i < 2000; i++ {
		text := echoPolicy("web", fmt.Sprintf("        - {allow: [read], at: [/srv/%d], missing: skip}\n", i))
		var resp *apiv1.ApplyResponse
		if resp, refused = e.policy.Apply(e.ctx(), &apiv1.ApplyRequest{Files: files(text)}); refused == nil {
			number = resp.GetResults()[0].GetVersion().GetNumber()
		}
	}
	wantStatus(t, refused, codes.ResourceExhausted, "STORE_FULL")
	if v, err := e.policy.GetVersion(e.ctx(), &apiv1.GetVersionRequest{Kind: store.KindLandlockPolicy, Ref: "web"}); err != nil || v.GetVersion().GetInfo().GetNumber() != number {
		t.Errorf("newest is %v, %v; version %d was acknowledged last", v.GetVersion().GetInfo(), err, number)
	}
	if err := os.Remove(filler.Name()); err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	if r := e.apply(echoPolicy("web", "      scope: [signal]\n")).GetResults()[0]; r.GetVersion().GetNumber() != number+1 {
		t.Errorf("after space came back: %v", r)
	}
}
