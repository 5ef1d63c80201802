package main

import (
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/internal/metrics"
)

// scraped gives what a real policyd answers a scrape.
func scraped(t *testing.T, c *http.Client, url string) string {
	t.Helper()
	resp, err := c.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s %v\n%s", resp.Status, err, b)
	}
	return string(b)
}

// has holds that the text has a series with this value.
func has(t *testing.T, text string, lines ...string) {
	t.Helper()
	for _, l := range lines {
		if !strings.Contains("\n"+text, "\n"+l+"\n") {
			t.Errorf("no line %q in\n%s", l, text)
		}
	}
}

const secretName = "chosen-by-a-user"

// A daemon that has worked shows every metric of the table, and nothing that its users named.
func TestMetrics(t *testing.T) {
	dir := folder(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String() // free a moment from now
	l.Close()
	config := filepath.Join(dir, "policyd.yaml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(config, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("metrics: {listen: \"" + address + "\"}\n")
	p := launch(t, dir, "--config", config)
	url := "http://" + address + "/metrics"

	conn := p.dial()
	policies, boxes, profiles := apiv1.NewPolicyServiceClient(conn), apiv1.NewSandboxServiceClient(conn), apiv1.NewProfileServiceClient(conn)
	_, err = policies.Apply(ctx(t), &apiv1.ApplyRequest{Files: []*apiv1.SourceFile{{Name: "web.yaml", Content: []byte(`apiVersion: policyd/v1
kind: LandlockPolicy
metadata: {name: ` + secretName + `}
spec:
  abi: 3
  layers:
    - paths: [{allow: [read, execute], at: [/]}]
`)}}})
	if err != nil {
		t.Fatal(err)
	}
	for _, ref := range []string{secretName, secretName, "no-such-policy"} {
		_, err := profiles.GetProfile(ctx(t), &apiv1.GetProfileRequest{Ref: ref})
		if (err != nil) != (ref != secretName) {
			t.Errorf("%s: %v", ref, err)
		}
	}
	start := func(argv ...string) error {
		_, err := boxes.Start(ctx(t), &apiv1.StartRequest{Spec: &apiv1.SandboxSpec{Ref: secretName, Argv: argv}})
		return err
	}
	if err := start("sleep", "60"); err != nil {
		t.Fatal(err)
	}
	if err := start("/no/such/program"); err == nil {
		t.Error("a program that does not exist was started")
	}
	text := scraped(t, http.DefaultClient, url)
	has(t, text,
		`policyd_rpcs_total{code="OK",method="PolicyService/Apply"} 1`,
		`policyd_rpcs_total{code="OK",method="ProfileService/GetProfile"} 2`,
		`policyd_profile_requests_total{answer="profile"} 2`,
		`policyd_profile_requests_total{answer="refused"} 1`,
		`policyd_sandbox_starts_total{how="detached"} 1`,
		`policyd_sandbox_start_failures_total{reason="PROGRAM_NOT_FOUND"} 1`,
		`policyd_sandboxes 1`, `policyd_ready 1`,
		`policyd_store_documents{kind="LandlockPolicy"} 1`, `policyd_store_documents{kind="Binding"} 0`, `policyd_store_versions 1`,
		`policyd_config_last_reload_successful 1`,
	)
	for _, d := range metrics.Table() {
		if d.Kind == metrics.Gauge && strings.HasPrefix(d.Name, "policyd_fleet_") {
			continue // of a host that follows a fleet: test/fleet
		}
		if !strings.Contains(text, "# TYPE "+d.Name+" "+string(d.Kind)+"\n") {
			t.Errorf("the scrape lacks %s", d.Name)
		}
	}
	for _, m := range regexp.MustCompile(`(?m)^# TYPE (policyd_\S+)`).FindAllStringSubmatch(text, -1) {
		known := false
		for _, d := range metrics.Table() {
			known = known || d.Name == m[1]
		}
		if !known {
			t.Errorf("%s is not in the table", m[1])
		}
	}
	if strings.Contains(text, secretName) || strings.Contains(text, "no-such-policy") || strings.Contains(text, "/no/such") {
		t.Errorf("a scrape tells what users named:\n%s", text)
	}
	if n := strings.Count(text, "\n"); n > 700 {
		t.Errorf("a scrape has %d lines", n)
	}

	// A reload that fails shows, and one that succeeds takes it back.
	write("metrics: {listen: \"" + address + "\"}\nlog: {level: loud}\n")
	p.signal(syscall.SIGHUP)
	p.told("READY=1")
	has(t, scraped(t, http.DefaultClient, url), `policyd_config_last_reload_successful 0`, `policyd_config_reloads_total{result="error"} 1`)
	write("")
	p.signal(syscall.SIGHUP)
	p.told("READY=1")
	has(t, scraped(t, http.DefaultClient, url), `policyd_config_last_reload_successful 1`, `policyd_config_reloads_total{result="ok"} 1`)
	p.logs(`"key":"metrics.listen"`)

	list, err := boxes.ListSandboxes(ctx(t), &apiv1.ListSandboxesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for _, sb := range list.GetSandboxes() {
		if _, err := boxes.Signal(ctx(t), &apiv1.SignalRequest{Id: sb.GetId(), All: true}); err != nil {
			t.Error(err)
		}
	}
	p.signal(syscall.SIGTERM)
	if code := p.ended(); code != exitOK {
		t.Errorf("exit code %d\n%s", code, p.out)
	}
}

func TestMetricsOnASocket(t *testing.T) {
	dir := folder(t)
	config, socket := filepath.Join(dir, "policyd.yaml"), filepath.Join(dir, "run", "metrics.sock")
	if err := os.WriteFile(config, []byte("socket: {mode: \"0600\"}\nmetrics: {listen: \"unix://"+socket+"\"}\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	launch(t, dir, "--config", config)
	info, err := os.Stat(socket)
	if err != nil || info.Mode() != os.ModeSocket|0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	c := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}}}
	defer c.CloseIdleConnections()
	has(t, scraped(t, c, "http://policyd/metrics"), "policyd_ready 1")
}

// An address in use is an error of the start: somebody counts on being told of trouble.
func TestMetricsListenerInUse(t *testing.T) {
	dir := folder(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	config := filepath.Join(dir, "policyd.yaml")
	if err := os.WriteFile(config, []byte("metrics: {listen: \""+l.Addr().String()+"\"}\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	p := command(t, dir, "--config", config)
	p.listen()
	if code := p.ended(); code != exitFailure || !strings.Contains(p.out.String(), "metrics.listen: ") {
		t.Errorf("exit code %d\n%s", code, p.out)
	}
}
