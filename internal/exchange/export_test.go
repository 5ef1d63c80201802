package exchange

import (
	"slices"
	"strings"
	"testing"

	"policyd.dev/policyd/enforce/profile"
	"policyd.dev/policyd/internal/policy"
)

func exported(t *testing.T, text string, set map[string]string) (*Export, *profile.Profile, error) {
	t.Helper()
	docs, err := policy.Parse("p.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	p := docs[0].Resource.GetLandlockPolicy()
	c, err := policy.Compile(p, policy.CompileOptions{Parameters: set})
	if err != nil {
		t.Fatal(err)
	}
	e, err := ExportConfig(p, c.Profile, set)
	return e, c.Profile, err
}

const head = "apiVersion: policyd/v1\nkind: LandlockPolicy\nmetadata: {name: p}\nspec:\n"

// Every setting that the format has no word for is told.
func TestExportLosses(t *testing.T) {
	e, _, err := exported(t, head+`  abi: 11
  parameters: [{name: state, within: [/srv]}]
  process: {umask: "0027", limits: {nofile: 10}, environment: {A: b}, smackLabel: X}
  layers:
    - name: one
      include: [std/tls]
      paths:
        - {allow: [read, resolve_unix], at: ["${state}"], quiet: true}
      ports:
        - {allow: [udp, bind_tcp], port: 1-3}
      quiet: {fs: [read]}
      log: {newExecOn: true}
    - name: two
      handles: {fs: [execute]}
      paths: [{allow: [execute], at: /usr, missing: skip}]
`, map[string]string{"state": "/srv/x"})
	if err != nil {
		t.Fatal(err)
	}
	all := strings.Join(e.Losses, "\n")
	for _, want := range []string{
		"layer one: resolve_unix: the format has no such right", "layer one: bind_udp|connect_send_udp", "layer one: quiet",
		"layer one: flags on what is logged", "2 layers", "enforcement: required", `missing: fail, of 1 paths ("/srv/x")`,
		`within, of 1 paths`, "process: environment, limits, smackLabel, umask",
	} {
		if !strings.Contains(all, want) {
			t.Errorf("%q is not told:\n%s", want, all)
		}
	}
	if len(e.Losses) != 9 {
		t.Errorf("%d losses:\n%s", len(e.Losses), all)
	}
	if !slices.ContainsFunc(e.Remarks, func(s string) bool { return strings.Contains(s, "parameter state") }) {
		t.Errorf("remarks %q", e.Remarks)
	}
	// Fragments and values given are in it; what is left decides as before.
	p := compiled(t, read(t, "landlockconfig", Options{}, File{"x.toml", e.Configs[0].TOML("x")}))
	wantPath(t, p, "/srv/x/f", profile.FSReadFile, true)
	wantPath(t, p, "/srv/y", profile.FSReadFile, false)
	wantPath(t, p, "/etc/ssl/certs/ca-certificates.crt", profile.FSReadFile, true)
	wantPort(t, p, 2, profile.NetBindTCP, true)
	wantPort(t, p, 4, profile.NetBindTCP, false)
	if got := e.Configs[1].FS; got != profile.FSExecute {
		t.Errorf("second layer handles %#x", got)
	}
}

func TestExportWithoutLoss(t *testing.T) {
	e, _, err := exported(t, head+`  abi: 6
  enforcement: degrade
  variables: {_odd: [/a, /b], v: ["x$y"]}
  layers:
    - handles: {fs: [read, execute], net: [tcp]}
      paths: [{allow: [read], at: ["${_odd}/${v}", "/c//d/", "/e$$f", '/q"\x3c<&>\u003c'], missing: skip}]
      scope: [all]
`, nil)
	if err != nil || len(e.Losses) != 0 {
		t.Fatalf("%v, losses %q", err, e.Losses)
	}
	for _, f := range []File{{"x.json", e.Configs[0].JSON()}, {"x.toml", e.Configs[0].TOML("")}} {
		p := compiled(t, read(t, "landlockconfig", Options{}, f))
		for _, path := range []string{"/a/x$y", "/b/x$y/z", "/c/d", "/e$f", `/q"\x3c<&>\u003c`} {
			wantPath(t, p, path, profile.FSReadFile|profile.FSReadDir, true)
			wantPath(t, p, path, profile.FSExecute, false)
		}
		if p.Layers[0].Scope != 3 || p.Layers[0].Net != 3 {
			t.Errorf("%+v", p.Layers[0])
		}
	}
}

// A layer of which nothing is left would be a file that allows everything.
func TestExportOfNothing(t *testing.T) {
	_, _, err := exported(t, head+"  abi: 10\n  layers: [{handles: {fs: [resolve_unix], net: [udp]}}]\n", nil)
	if err == nil || !strings.Contains(err.Error(), "would allow everything") {
		t.Errorf("%v", err)
	}
}
