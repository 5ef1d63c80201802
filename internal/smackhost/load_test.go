package smackhost

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"golang.org/x/sys/unix"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/internal/errs"
	"policyd.dev/policyd/smack"
	"policyd.dev/policyd/smack/smackfs"
	"policyd.dev/policyd/smack/smacktest"
	"policyd.dev/policyd/store"
)

const settingsA = "{ambient: Net, onlycap: [_, System], ipv6host: [{address: 'fe80::/16', label: Link}], cipso: [{label: Secret, level: 7, categories: [1, 2]}]}"

func TestLoad(t *testing.T) {
	h := newHost(t)
	h.write("load2", "Foreign Data rx\n")
	if err := h.Boot(t.Context()); err != nil {
		t.Fatal(err)
	}
	if s := h.state(); s.GetPolicy() != "" || s.GetForeign() != 1 || s.GetOwn() != 0 || s.GetState() != apiv1.GetSmackResponse_STATE_AVAILABLE {
		t.Errorf("before: %v", s)
	}
	a := h.apply("a", "App Data rwx\nApp Log a\n", settingsA)
	before := h.kernel()
	dry := h.load(a, LoadOptions{DryRun: true})
	h.same("dry run", before)
	if dry.GetGranted() != 2 || dry.GetWrites() != 0 || dry.GetForeign() != 1 || len(dry.GetSettings()) != 4 {
		t.Errorf("dry run: %v", dry)
	}
	res := h.load(a, LoadOptions{})
	if res.GetGranted() != 2 || res.GetRevoked() != 0 || res.GetForeign() != 1 || res.GetNewLabels() != 2 || res.GetWrites() == 0 || len(res.GetSettings()) != 4 {
		t.Errorf("load: %v", res)
	}
	again := h.load(a, LoadOptions{})
	if again.GetWrites() != 0 || len(again.GetChanges()) != 0 || len(again.GetSettings()) != 0 || again.GetUnchanged() != 2 {
		t.Errorf("the same again: %v", again)
	}
	s := h.state()
	if s.GetPolicy() != "a" || s.GetVersion() != 1 || !s.GetAssigned() || s.GetOwn() != 2 || s.GetForeign() != 1 || s.GetDriftTotal() != 0 || len(s.GetSettingsDrift()) != 0 || len(s.GetForeignRules()) != 1 {
		t.Errorf("in force: %v", s)
	}

	// Another version by difference, once; what is assigned stays.
	a2 := h.apply("a", "App Data r\nApp New w\n", settingsA)
	res = h.load(a2, LoadOptions{Once: true, Order: smackfs.RevokesFirst})
	if res.GetGranted() != 1 || res.GetRevoked() != 2 {
		t.Errorf("second version: %v", res)
	}
	if s := h.state(); s.GetVersion() != 2 || s.GetAssigned() || s.GetAssignedVersion() != 1 {
		t.Errorf("loaded once: %v", s)
	}
	h.restart()
	if err := h.Boot(t.Context()); err != nil {
		t.Fatal(err)
	}
	if s := h.state(); s.GetVersion() != 1 || !s.GetAssigned() || s.GetDriftTotal() != 0 {
		t.Errorf("after a restart: %v", s)
	}

	n, warnings, err := h.Unload(t.Context(), store.Actor{Name: "test"})
	if err != nil || n != 2 || len(warnings) == 0 {
		t.Fatalf("unload: %d %q %v", n, warnings, err)
	}
	k := h.kernel()
	if k["Foreign Data"] != "rx" || k["App Data"] != "" || k["ipv6host:fe80::/16"] != "" {
		t.Errorf("after unload: %v", k)
	}
	if _, _, err := h.Unload(t.Context(), store.Actor{}); !errors.Is(err, errs.ErrNotFound) {
		t.Errorf("unload of nothing: %v", err)
	}
	if h.events(store.EventSmackLoad) != 4 || h.events(store.EventSmackUnload) != 1 {
		t.Errorf("%d loads and %d unloads are logged", h.events(store.EventSmackLoad), h.events(store.EventSmackUnload))
	}
}

// TestForeign: a rule of somebody else is in the way, is adopted on demand, also at later starts, and others stay.
func TestForeign(t *testing.T) {
	h := newHost(t)
	h.write("load2", "App Data r\nApp Same rw\nOther Thing x\n")
	before := h.kernel()
	v := h.apply("a", "App Data rwx\nApp Same rw")
	if _, err := h.Load(t.Context(), v, LoadOptions{}); !errors.Is(err, errs.ErrSmackForeign) {
		t.Fatalf("foreign: %v", err)
	}
	h.same("refused", before)
	if s := h.state(); s.GetInterrupted() != "" || s.GetPolicy() != "" {
		t.Errorf("refused: %v", s)
	}
	h.load(v, LoadOptions{Adopt: true})
	if s := h.state(); s.GetOwn() != 2 || s.GetForeign() != 1 {
		t.Errorf("adopted: %v", s)
	}
	// The kernel starts anew, and somebody else is first again.
	h.reboot()
	h.write("load2", "App Data r\nApp Same rw\nOther Thing x\n")
	h.restart()
	if err := h.Boot(t.Context()); err != nil {
		t.Fatal(err)
	}
	if k := h.kernel(); k["App Data"] != "rwx" || k["Other Thing"] != "x" {
		t.Errorf("after a reboot: %v", k)
	}
}

// reboot is a kernel that has nothing, and a store whose boot is another one.
func (h *host) reboot() {
	h.t.Helper()
	h.fs = smackfs.NewModel(smackfs.ModelKernel{Bringup: true})
	st, err := h.st.SmackState()
	if err != nil {
		h.t.Fatal(err)
	}
	const old = "11111111-2222-3333-4444-555555555555"
	st.Intent = []byte(strings.ReplaceAll(string(st.GetIntent()), st.GetBootId(), old))
	st.BootId = old
	if err := h.st.SetSmackState(h.t.Context(), st); err != nil {
		h.t.Fatal(err)
	}
}

func TestDrift(t *testing.T) {
	h := newHost(t)
	h.load(h.apply("a", "App Data rwx\nApp Log a\nApp Tmp rw", "{ambient: Net}"), LoadOptions{})
	h.write("load2", "App Data r\nApp Log -\nNew Data w\n")
	h.write("ambient", "Evil")
	s := h.state()
	var got []string
	for _, d := range s.GetDrift() {
		got = append(got, d.GetSubject()+" "+d.GetObject()+" "+d.GetKernel()+" "+d.GetPolicy())
	}
	slices.Sort(got)
	if want := []string{"App Data r rwx", "App Log - a"}; !slices.Equal(got, want) || s.GetDriftTotal() != 2 || s.GetForeign() != 1 {
		t.Errorf("drift %q, %v", got, s)
	}
	if want := []string{"ambient: kernel Evil, policy Net"}; !slices.Equal(s.GetSettingsDrift(), want) {
		t.Errorf("settings: %q", s.GetSettingsDrift())
	}
	h.restart()
	if err := h.Boot(t.Context()); err != nil {
		t.Fatal(err)
	}
	if s := h.state(); s.GetDriftTotal() != 0 || len(s.GetSettingsDrift()) != 0 || s.GetForeign() != 1 {
		t.Errorf("after a start: %v", s)
	}
}

func TestRevoke(t *testing.T) {
	h := newHost(t)
	v := h.apply("a", "App Data rwx\nApp Log a\nWeb Data r")
	h.load(v, LoadOptions{})
	h.write("load2", "App Foreign rw\n")
	n, err := h.Revoke(t.Context(), "App", store.Actor{Name: "test"})
	if err != nil || n != 3 {
		t.Fatalf("revoke: %d %v", n, err)
	}
	if _, err := h.Revoke(t.Context(), "a/b", store.Actor{}); !errors.Is(err, errs.ErrInvalid) {
		t.Errorf("revoke of no label: %v", err)
	}
	for _, when := range []string{"at once", "after a start", "after a reboot"} {
		if s := h.state(); s.GetDriftTotal() != 0 || s.GetRules() != 1 || !slices.Equal(s.GetRevoked(), []string{"App"}) {
			t.Errorf("%s: %v", when, s)
		}
		q, _ := Question("App", "Data", "r")
		if c, err := h.Check(t.Context(), nil, q, true); err != nil || c.GetAllowed() || c.GetKernelAnswer() == "1" || !strings.Contains(c.GetDetail(), "revoked") {
			t.Errorf("%s: check: %v %v", when, c, err)
		}
		if when == "after a start" {
			h.reboot()
			h.write("load2", "App Data rwx\n") // somebody else's, at boot
		}
		h.restart()
		if err := h.Boot(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	defer func() {
		if _, _, err := h.Unload(t.Context(), store.Actor{Name: "test"}); err != nil {
			t.Error(err)
		}
		// Without any policy a subject stays revoked until an unload.
		if _, err := h.Revoke(t.Context(), "App", store.Actor{Name: "test"}); err != nil {
			t.Error(err)
		}
		if _, _, err := h.Unload(t.Context(), store.Actor{Name: "test"}); err != nil || len(h.state().GetRevoked()) != 0 {
			t.Errorf("unload of what is revoked: %v", err)
		}
	}()
	res := h.load(v, LoadOptions{})
	if s := h.state(); s.GetRules() != 3 || len(s.GetRevoked()) != 0 || len(res.GetWarnings()) != 0 {
		t.Errorf("loaded again: %v, %q", s, res.GetWarnings())
	}
}

func TestBootFails(t *testing.T) {
	h := newHost(t)
	h.load(h.apply("a", "App Data rwx"), LoadOptions{})
	for _, reason := range []error{errs.ErrSmackNotMounted, errs.ErrSmackDisabled, errs.ErrSmackNotBuilt} {
		h.without(reason)
		err := h.Boot(t.Context())
		if !errors.Is(err, reason) || h.Failed() == nil || !errors.Is(h.Labels(), errs.ErrSmackUnavailable) {
			t.Errorf("%v: %v, failed %v, labels %v", reason, err, h.Failed(), h.Labels())
		}
		if s := h.state(); s.GetFailed() == "" || s.GetAssignedPolicy() != "a" || s.GetDetail() == "" || s.GetState() < apiv1.GetSmackResponse_STATE_NOT_BUILT {
			t.Errorf("%v: %v", reason, s)
		}
	}
	// On a kernel without Smack the assignment can end.
	if _, _, err := h.Unload(t.Context(), store.Actor{Name: "test"}); err != nil || h.Failed() != nil {
		t.Errorf("unload: %v, failed %v", err, h.Failed())
	}
	if err := h.Boot(t.Context()); err != nil {
		t.Error(err)
	}

	// The kernel refuses: the label of policyd is not in an onlycap.
	h.fs = smackfs.NewModel(smackfs.ModelKernel{})
	h.restart()
	h.load(h.apply("a", "App Data rwx"), LoadOptions{})
	h.write("load2", "App Data r\n")
	h.write("onlycap", "System")
	h.restart()
	if err := h.Boot(t.Context()); !errors.Is(err, errs.ErrSmackOnlycap) || h.Labels() == nil {
		t.Fatalf("onlycap: %v", err)
	}
	if s := h.state(); s.GetState() != apiv1.GetSmackResponse_STATE_ONLYCAP || s.GetFailed() == "" {
		t.Errorf("onlycap: %v", s)
	}
}

// TestKilled kills a load, a change of settings and an unload after each of their writes to kernel and store; the next
// start brings back what was before, loses nothing of others, and says so.
func TestKilled(t *testing.T) {
	var many, others strings.Builder
	for i := range 300 {
		fmt.Fprintf(&many, "App%d Data%d rwx\n", i%7, i)
		fmt.Fprintf(&others, "App%d Data%d ra\n", i%7, i+150)
	}
	h := newHost(t)
	a := h.apply("a", many.String(), "{ambient: Net}")
	b := h.apply("b", others.String()+"App1 Taken rw\n", strings.Replace(settingsA, "Net", "Wire", 1))
	actor := store.Actor{Name: "test"}
	for _, tc := range []struct {
		name  string
		first bool // a is in force before
		do    func() error
	}{
		{"first load", false, func() error { _, err := h.Load(t.Context(), a, LoadOptions{}); return err }},
		{"change", true, func() error { _, err := h.Load(t.Context(), b, LoadOptions{Adopt: true}); return err }},
		{"change, revokes first", true, func() error {
			_, err := h.Load(t.Context(), b, LoadOptions{Adopt: true, Order: smackfs.RevokesFirst})
			return err
		}},
		{"unload", true, func() error { _, _, err := h.Unload(t.Context(), actor); return err }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for n := 0; ; n++ {
				h.fs = smackfs.NewModel(smackfs.ModelKernel{Bringup: true})
				if err := h.st.SetSmackState(t.Context(), &apiv1.SmackState{}); err != nil {
					t.Fatal(err)
				}
				h.write("load2", "Foreign Data rx\nApp1 Taken r\n")
				h.restart()
				if tc.first {
					h.load(a, LoadOptions{})
				}
				before := h.kernel()
				record, err := h.st.SmackState()
				if err != nil {
					t.Fatal(err)
				}
				h.killedAfter(n)
				err = tc.do()
				if err == nil {
					if n < 4 {
						t.Fatalf("only %d writes", n)
					}
					return
				}
				if !errors.Is(err, errKilled) {
					t.Fatalf("killed after %d writes: %v", n, err)
				}
				h.restart()
				if err := h.Boot(t.Context()); err != nil {
					t.Fatalf("start after a kill after %d writes: %v", n, err)
				}
				got := h.kernel()
				maps.DeleteFunc(got, func(k, _ string) bool { return before[k] == "" && strings.HasPrefix(k, "cipso2:") })
				for k, v := range before {
					if got[k] != v {
						t.Fatalf("killed after %d writes: %s is %q, was %q", n, k, got[k], v)
					}
				}
				if len(got) != len(before) {
					t.Fatalf("killed after %d writes: %d entries, were %d", n, len(got), len(before))
				}
				now, err := h.st.SmackState()
				if err != nil {
					t.Fatal(err)
				}
				if !tc.first {
					record.BootId = now.GetBootId()
				}
				if !proto.Equal(now, record) {
					t.Fatalf("killed after %d writes: the record is %v", n, now)
				}
				if s := h.state(); (s.GetInterrupted() != "") != (n > 0) || s.GetDriftTotal() != 0 {
					t.Fatalf("killed after %d writes: %q, drift %v", n, s.GetInterrupted(), s.GetDrift())
				}
			}
		})
	}
	// And in the middle of the undoing itself.
	h.fs = smackfs.NewModel(smackfs.ModelKernel{})
	h.restart()
	for n := range 8 {
		h.killedAfter(3)
		if _, err := h.Load(t.Context(), a, LoadOptions{}); err == nil {
			t.Fatal("not killed")
		}
		h.killedAfter(n)
		_ = h.Boot(t.Context()) // killed or not
		h.restart()
		if err := h.Boot(t.Context()); err != nil {
			t.Fatal(err)
		}
		for k := range h.kernel() {
			if strings.HasPrefix(k, "App") {
				t.Fatalf("%s is left", k)
			}
		}
	}
}

// TestRefused: what the kernel refuses in the middle is undone at once, and is no interruption.
func TestRefused(t *testing.T) {
	h := newHost(t)
	h.load(h.apply("a", "App Data rwx", "{ambient: Net}"), LoadOptions{})
	before := h.kernel()
	b := h.apply("b", "App Data r\nApp New rw", "{ambient: Wire}")
	k := h.killedAfter(-1)
	if _, err := h.Load(t.Context(), b, LoadOptions{DryRun: true}); err != nil || k.count != 0 {
		t.Fatalf("dry run: %v, %d writes", err, k.count)
	}
	refusing := &refusingFS{FS: h.fs, file: "ambient"}
	h.Manager = New(Config{Store: h.st, Find: func() (smackfs.FS, error) { return refusing, nil }, Log: quiet()})
	if _, err := h.Load(t.Context(), b, LoadOptions{}); !errors.Is(err, errs.ErrSmackRefused) {
		t.Fatalf("refused: %v", err)
	}
	h.same("refused", before)
	if s := h.state(); s.GetInterrupted() != "" || s.GetPolicy() != "a" || s.GetDriftTotal() != 0 {
		t.Errorf("refused: %v", s)
	}
}

func TestCheck(t *testing.T) {
	h := newHost(t)
	q, err := Question("App", "Data", "rw")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.Check(t.Context(), nil, q, false); !errors.Is(err, errs.ErrNotFound) {
		t.Errorf("nothing in force: %v", err)
	}
	v := h.apply("a", "App Data r\nApp Log a")
	h.load(v, LoadOptions{})
	c, err := h.Check(t.Context(), nil, q, true)
	if err != nil {
		t.Fatal(err)
	}
	if c.GetAllowed() || c.GetReason() != smack.RuleLacks.String() || c.GetKernelAnswer() != "0" || len(c.GetDenials()) != 1 ||
		c.GetDenials()[0].GetMissing() != "w" || c.GetDenials()[0].GetFile() != "a.yaml" || c.GetDenials()[0].GetLine() != 8 || c.GetPolicy() != "a" {
		t.Errorf("denied: %v", c)
	}
	q.Access, q.Object = smack.Append, "Log"
	if c, err = h.Check(t.Context(), v, q, true); err != nil || !c.GetAllowed() || c.GetKernelAnswer() != "1" || len(c.GetRules()) != 1 || c.GetRules()[0].GetLine() != 9 {
		t.Errorf("allowed: %v %v", c, err)
	}
	q.Object = "Nobody"
	if c, err = h.Check(t.Context(), v, q, true); err != nil || c.GetAllowed() || c.GetKernelAnswer() != "unknown label" {
		t.Errorf("unknown: %v %v", c, err)
	}
	for _, bad := range [][3]string{{"a/b", "B", "r"}, {"A", "", "r"}, {"A", "B", "q"}, {"A", "B", "-"}, {"A", "B", ""}} {
		if _, err := Question(bad[0], bad[1], bad[2]); !errors.Is(err, errs.ErrInvalid) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

// TestLarge: 17,000 rules over 500 labels are loaded, changed and rolled back.
func TestLarge(t *testing.T) {
	h := newHost(t)
	first := h.apply("big", string(smacktest.Platform.Text()))
	res := h.load(first, LoadOptions{})
	if n := len(res.GetChanges()); n != MaxChanges || res.GetGranted() < 16000 {
		t.Errorf("%d changes of %d", n, res.GetGranted())
	}
	was := h.kernel()
	second := h.apply("big", string(smacktest.Shape{Rules: 17000, Labels: 500, Seed: 2}.Text()))
	h.load(second, LoadOptions{})
	if s := h.state(); s.GetDriftTotal() != 0 || s.GetForeign() != 0 || s.GetVersion() != 2 {
		t.Errorf("changed: drift %d, foreign %d", s.GetDriftTotal(), s.GetForeign())
	}
	h.load(first, LoadOptions{})
	h.same("rolled back", was)
	h.restart()
	if err := h.Boot(t.Context()); err != nil {
		t.Fatal(err)
	}
	h.same("after a start", was)
}

// countedFS counts how often the rules are opened to be read.
type countedFS struct {
	smackfs.FS
	reads int
}

func (f *countedFS) Unwrap() smackfs.FS { return f.FS }

func (f *countedFS) Open(name string, flag int) (smackfs.File, error) {
	if name == "load2" && flag == unix.O_RDONLY {
		f.reads++
	}
	return f.FS.Open(name, flag)
}

// A load after another need not read the kernel's rules, unless somebody, policyd itself included, wrote some otherwise.
func TestRemembered(t *testing.T) {
	h := newHost(t)
	fs := &countedFS{FS: h.process()}
	h.Manager = New(Config{Store: h.st, Find: func() (smackfs.FS, error) { return fs, nil }, Log: quiet()})
	versions := []*apiv1.Version{h.apply("p", "App Sys rx\nApp Log w"), h.apply("p", "App Sys r\nApp Log w")}
	step := func(what string, v *apiv1.Version, reads int, want map[string]string) {
		t.Helper()
		fs.reads = 0
		h.load(v, LoadOptions{})
		if fs.reads != reads {
			t.Errorf("%s: %d reads, want %d", what, fs.reads, reads)
		}
		h.same(what, want)
	}
	first, second := map[string]string{}, map[string]string{}
	fs.reads = 0
	h.load(versions[0], LoadOptions{})
	if fs.reads != 2 {
		t.Errorf("the first load makes %d reads", fs.reads)
	}
	maps.Copy(first, h.kernel())
	maps.Copy(second, first)
	second["App Sys"] = "r"
	step("another version", versions[1], 0, second)
	step("the same again", versions[1], 0, second)
	h.write("load2", "App Log rwx\n")
	step("after somebody else", versions[1], 2, second)
	step("back", versions[0], 0, first)
	if _, err := h.Revoke(t.Context(), "App", store.Actor{Name: "test"}); err != nil {
		t.Fatal(err)
	}
	step("after a subject was revoked", versions[0], 2, first)
}
