package metrics

import (
	"encoding/json"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"policyd.dev/policyd/internal/testkernel"
)

const (
	rulesPath     = "../../deploy/prometheus/policyd.rules.yml"
	dashboardPath = "../../deploy/grafana/policyd.json"
)

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// Alerts and the dashboard ask for metrics that there are, and for labels they have.
func TestDeployedFilesNameMetrics(t *testing.T) {
	shown := map[string]bool{}
	for _, path := range []string{rulesPath, dashboardPath} {
		text := read(t, path)
		for _, name := range regexp.MustCompile(`\bpolicyd_[a-z_]+`).FindAllString(text, -1) {
			d, ok := lookUp(name)
			if !ok {
				t.Errorf("%s: no metric %s", path, name)
			}
			shown[d.Name] = true
		}
		selector := regexp.MustCompile(`\b(policyd_[a-z_]+)\{([^}]*)\}`)
		for _, m := range selector.FindAllStringSubmatch(strings.ReplaceAll(text, `\"`, `"`), -1) {
			d, _ := lookUp(m[1])
			for _, l := range regexp.MustCompile(`([a-z_]+)(?:=~|!=|=)"`).FindAllStringSubmatch(m[2], -1) {
				if known := append(d.labelNames(), "job", "instance", "le"); !slices.Contains(known, l[1]) {
					t.Errorf("%s: %s has no label %s", path, m[1], l[1])
				}
			}
		}
	}
	for _, d := range Table() {
		if !shown[d.Name] {
			t.Logf("%s is in no alert and on no panel", d.Name)
		}
	}
}

// lookUp finds the metric that a series belongs to.
func lookUp(series string) (Definition, bool) {
	for _, d := range table {
		if d.Name == series || d.Kind == Histogram && slices.Contains([]string{d.Name + "_bucket", d.Name + "_sum", d.Name + "_count"}, series) {
			return d, true
		}
	}
	return Definition{}, false
}

// Each alert says what to do about it, in a section of the runbook that is there, and has a test.
func TestAlertsHaveRunbook(t *testing.T) {
	runbook, tests := read(t, "../../docs/runbook.md"), read(t, "../../deploy/prometheus/policyd.tests.yml")
	rules := read(t, rulesPath)
	alerts := regexp.MustCompile(`- alert: (\w+)`).FindAllStringSubmatch(rules, -1)
	if len(alerts) < 10 {
		t.Errorf("%d alerts", len(alerts))
	}
	for _, a := range alerts {
		if !strings.Contains(rules, "runbook_url: https://policyd.dev/docs/runbook.md#"+strings.ToLower(a[1])+"\n") {
			t.Errorf("%s has no link to its section", a[1])
		}
		if !strings.Contains(runbook, "\n### "+a[1]+"\n") {
			t.Errorf("docs/runbook.md has no section %s", a[1])
		}
		if !strings.Contains(tests, "alertname: "+a[1]+"\n") || !strings.Contains(tests, "alertname: "+a[1]+", exp_alerts: []") {
			t.Errorf("%s has no test that it fires and none that it does not", a[1])
		}
	}
}

func TestPromtool(t *testing.T) {
	promtool := testkernel.RequireTool(t, "promtool", "apt-get install prometheus")
	for _, args := range [][]string{{"check", "rules", "policyd.rules.yml"}, {"test", "rules", "policyd.tests.yml"}} {
		cmd := exec.Command(promtool, args...)
		cmd.Dir = "../../deploy/prometheus"
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
}

// The dashboard has no two panels at one place or with one id, and each has a query and a title.
func TestDashboard(t *testing.T) {
	var d struct {
		UID, Title string
		Panels     []struct {
			ID      int
			Type    string
			Title   string
			GridPos struct{ X, Y, W, H int }
			Targets []struct{ RefID, Expr string }
		}
	}
	if err := json.Unmarshal([]byte(read(t, dashboardPath)), &d); err != nil {
		t.Fatal(err)
	}
	ids, taken := map[int]bool{}, map[[2]int]string{}
	for _, p := range d.Panels {
		if ids[p.ID] || p.Title == "" {
			t.Errorf("panel %d %q", p.ID, p.Title)
		}
		ids[p.ID] = true
		if (len(p.Targets) == 0) != (p.Type == "row") {
			t.Errorf("%s: %d queries", p.Title, len(p.Targets))
		}
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				if other := taken[[2]int{x, y}]; other != "" || x >= 24 {
					t.Fatalf("%s lies over %s", p.Title, other)
				}
				taken[[2]int{x, y}] = p.Title
			}
		}
	}
	if d.UID != "policyd" || len(ids) < 20 {
		t.Errorf("%s: %d panels", d.UID, len(ids))
	}
}
