package server

import (
	"strings"
	"testing"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/enforce/landlock"
	"policyd.dev/policyd/internal/errs"
	"policyd.dev/policyd/store"
)

// A policy for newer kernels is stored, strictly too, and the answer says what this one lacks.
func TestApplyTellsWhatTheKernelLacks(t *testing.T) {
	scoped := "      scope: [signal]\n"
	degrading := []byte(strings.Replace(string(echoPolicy("degrading", scoped)), "  abi: 6\n", "  abi: 6\n  enforcement: degrade\n", 1))
	for _, tc := range []struct {
		name    string
		support landlock.Support
		policy  []byte
		says    []string // nil: no remark
	}{
		{"older", landlock.Support{ABI: 5, State: landlock.Available}, echoPolicy("web", scoped), []string{"Landlock ABI 5", "scope signal"}},
		{"none", landlock.Support{State: landlock.NotBuilt, Err: errs.ErrLandlockNotBuilt}, echoPolicy("web", scoped), []string{"cannot be started on this host: landlock is not built"}},
		{"degrading", landlock.Support{ABI: 5, State: landlock.Available}, degrading, nil},
		{"enough", landlock.Support{ABI: 6, State: landlock.Available}, echoPolicy("web", scoped), nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			e := start(t, func(c *Config) { c.Support = tc.support })
			applied, err := e.policy.Apply(e.ctx(), &apiv1.ApplyRequest{Files: files(tc.policy), Strict: true})
			if err != nil {
				t.Fatal(err)
			}
			checked, err := e.policy.Validate(e.ctx(), &apiv1.ValidateRequest{Files: files(tc.policy), Strict: true})
			if err != nil {
				t.Fatal(err)
			}
			for _, found := range [][]*apiv1.Finding{applied.GetFindings(), checked.GetFindings()} {
				if tc.says == nil {
					if len(found) != 0 {
						t.Errorf("remarks on a policy this kernel can start: %v", found)
					}
					continue
				}
				if len(found) != 1 || found[0].GetCode() != "kernel-lacks" || found[0].GetSeverity() != apiv1.Finding_SEVERITY_WARNING {
					t.Fatalf("findings %v", found)
				}
				for _, s := range tc.says {
					if !strings.Contains(found[0].GetMessage(), s) {
						t.Errorf("%q lacks %q", found[0].GetMessage(), s)
					}
				}
			}
			if _, err := e.store.Get(store.KindLandlockPolicy, applied.GetResults()[0].GetVersion().GetName()); err != nil {
				t.Errorf("not stored: %v", err)
			}
		})
	}
}
