package server

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/internal/errs"
	"policyd.dev/policyd/internal/metrics"
	"policyd.dev/policyd/internal/smackhost"
	"policyd.dev/policyd/smack/smackfs"
	"policyd.dev/policyd/store/storetest"
)

// scrapes holds that a scrape of m has these lines.
func scrapes(t *testing.T, m *metrics.Metrics, lines ...string) {
	t.Helper()
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	for _, l := range lines {
		if !strings.Contains("\n"+w.Body.String(), "\n"+l+"\n") {
			t.Errorf("no line %q in\n%s", l, w.Body)
		}
	}
}

// What metrics say of Smack and of the store is what is there, also after somebody else has written to smackfs.
func TestMetricsOfSmackAndStore(t *testing.T) {
	st, model, m := storetest.Open(t), smackfs.NewModel(smackfs.ModelKernel{}), metrics.New()
	host := smackhost.New(smackhost.Config{Store: st, Find: func() (smackfs.FS, error) { return model, nil }})
	e := startOn(t, st, func(c *Config) { c.Smack, c.Metrics = host, m })
	scrapes(t, m, "policyd_smack_available 1", "policyd_smack_loaded 0", "policyd_smack_drift 0", `policyd_store_documents{kind="SmackPolicy"} 0`)
	e.apply(smackPolicy("a", "App Data rw\\nApp Log a"))
	if _, err := smackOf(e, t).Load(e.ctx(), &apiv1.LoadRequest{Ref: "a"}); err != nil {
		t.Fatal(err)
	}
	scrapes(t, m, "policyd_smack_loaded 1", "policyd_smack_drift 0", "policyd_smack_assigned_not_in_force 0",
		`policyd_smack_rules{owner="policyd"} 2`, `policyd_smack_rules{owner="others"} 0`, `policyd_store_documents{kind="SmackPolicy"} 1`,
		`policyd_state_readable{part="smack"} 1`, `policyd_state_readable{part="store"} 1`,
		`policyd_rpcs_total{code="OK",method="SmackService/Load"} 1`)
	f, err := model.Open("load2", os.O_WRONLY)
	if err != nil {
		t.Fatal(err)
	}
	for _, rule := range []string{"App Data r", "Other Thing x"} {
		if _, err := f.Write([]byte(rule)); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	scrapes(t, m, "policyd_smack_drift 1", `policyd_smack_rules{owner="others"} 1`)
}

// A policy that needs more than the kernel has counts as a start that failed, by its reason, and a closed store is told.
func TestMetricsOfTrouble(t *testing.T) {
	m := metrics.New()
	e := start(t, func(c *Config) { c.Metrics = m })
	e.apply(echoPolicy("web", ""))
	_, err := e.box.Start(e.ctx(), &apiv1.StartRequest{Spec: &apiv1.SandboxSpec{Ref: "web@7", Argv: []string{"/bin/true"}}})
	if err == nil {
		t.Error("a version that does not exist was started")
	}
	scrapes(t, m, `policyd_sandbox_start_failures_total{reason="NOT_FOUND"} 1`, `policyd_sandbox_starts_total{how="detached"} 0`)
	var u usage
	first, err := u.of(e.store)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := u.of(e.store); err != nil || again != first {
		t.Errorf("nothing was written, and it was counted again: %v", err)
	}
	e.apply(echoPolicy("web2", ""))
	if next, err := u.of(e.store); err != nil || next == first || next.Commits <= first.Commits || next.Documents["LandlockPolicy"] != 2 {
		t.Errorf("after a change: %+v, %v", next, err)
	}
	closed := storetest.Open(t)
	if err := closed.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := (&usage{}).of(closed); !errors.Is(err, errs.ErrShutdown) {
		t.Errorf("a closed store: %v", err)
	}
}
