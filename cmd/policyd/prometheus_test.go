package main

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/internal/testkernel"
)

// prometheus is a real one that scrapes a policyd every second.
type prometheus struct {
	t   *testing.T
	url string
}

func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func startPrometheus(t *testing.T, target string) *prometheus {
	t.Helper()
	program := testkernel.RequireTool(t, "prometheus", "apt-get install prometheus")
	dir := t.TempDir()
	rules, err := filepath.Abs("../../deploy/prometheus/policyd.rules.yml")
	if err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(dir, "prometheus.yml")
	text := fmt.Sprintf("global: {scrape_interval: 1s, evaluation_interval: 1s}\nrule_files: [%q]\nscrape_configs:\n  - job_name: policyd\n    static_configs: [{targets: [%q]}]\n", rules, target)
	if err := os.WriteFile(config, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	address := freeAddress(t)
	cmd := exec.Command(program, "--config.file="+config, "--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+address)
	out := &buffer{}
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM) // it is waited for
		if err := cmd.Wait(); err != nil || t.Failed() {
			t.Logf("prometheus: %v\n%s", err, out)
		}
	})
	return &prometheus{t, "http://" + address}
}

// ask gives what the API answers, into data. It waits while Prometheus starts.
func (p *prometheus) ask(path string, query url.Values, data any) error {
	p.t.Helper()
	var resp *http.Response
	var err error
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		resp, err = http.Get(p.url + "/api/v1/" + path + "?" + query.Encode())
		if err == nil && resp.StatusCode != http.StatusServiceUnavailable || time.Now().After(deadline) {
			break
		}
		if err == nil {
			resp.Body.Close()
		}
	}
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	answer := struct {
		Status, Error string
		Data          any
	}{Data: data}
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
		return err
	}
	if answer.Status != "success" {
		return fmt.Errorf("%s: %s", answer.Status, answer.Error)
	}
	return nil
}

// query counts the series that an expression gives now.
func (p *prometheus) query(expr string) (int, error) {
	var data struct{ Result []json.RawMessage }
	err := p.ask("query", url.Values{"query": {expr}}, &data)
	return len(data.Result), err
}

// Every query of the dashboard and every alert means something to a real Prometheus that scrapes a real policyd.
func TestPrometheusUnderstands(t *testing.T) {
	dir := folder(t)
	address := freeAddress(t)
	config := filepath.Join(dir, "policyd.yaml")
	if err := os.WriteFile(config, []byte("metrics: {listen: \""+address+"\"}\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	p := launch(t, dir, "--config", config)
	prom := startPrometheus(t, address)
	conn := p.dial()
	if _, err := apiv1.NewPolicyServiceClient(conn).Apply(ctx(t), &apiv1.ApplyRequest{Files: []*apiv1.SourceFile{{Name: "p", Content: []byte(sleepPolicy)}}}); err != nil {
		t.Fatal(err)
	}
	profiles := apiv1.NewProfileServiceClient(conn)
	// Three scrapes with something new in each, so that rates have something to go by.
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(100 * time.Millisecond) {
		_, _ = profiles.GetProfile(ctx(t), &apiv1.GetProfileRequest{Ref: "nobody"}) // refused: that is counted
		if n, err := prom.query(`rate(policyd_rpcs_total{method="ProfileService/GetProfile"}[1m]) > 0`); err == nil && n > 0 {
			break
		} else if time.Now().After(deadline) {
			t.Fatalf("no rates: %d, %v", n, err)
		}
	}

	b, err := os.ReadFile("../../deploy/grafana/policyd.json")
	if err != nil {
		t.Fatal(err)
	}
	var dashboard struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(b, &dashboard); err != nil {
		t.Fatal(err)
	}
	// As Grafana fills in its variables with everything chosen.
	variables := strings.NewReplacer("$job", ".*", "$instance", ".*", "$__rate_interval", "1m")
	asked, empty := 0, 0
	for _, panel := range dashboard.Panels {
		for _, target := range panel.Targets {
			asked++
			n, err := prom.query(variables.Replace(target.Expr))
			if err != nil {
				t.Errorf("%s: %s: %v", panel.Title, target.Expr, err)
			}
			if n == 0 && !strings.Contains(target.Expr, "policyd_fleet_") { // this policyd follows none
				empty++
				t.Logf("%s: nothing to show yet: %s", panel.Title, target.Expr)
			}
		}
	}
	if asked < 25 || empty > 2 {
		t.Errorf("%d queries, %d of them empty", asked, empty)
	}

	var rules struct {
		Groups []struct {
			Rules []struct{ Name, Health, LastError string }
		}
	}
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(100 * time.Millisecond) {
		if err := prom.ask("rules", nil, &rules); err != nil {
			t.Fatal(err)
		}
		unknown := 0
		for _, g := range rules.Groups {
			for _, r := range g.Rules {
				switch r.Health {
				case "ok":
				case "unknown":
					unknown++ // not looked at yet
				default:
					t.Errorf("%s: %s %s", r.Name, r.Health, r.LastError)
				}
			}
		}
		if unknown == 0 || time.Now().After(deadline) {
			break
		}
	}
	if len(rules.Groups) != 1 || len(rules.Groups[0].Rules) < 10 {
		t.Errorf("rules: %+v", rules)
	}
}
