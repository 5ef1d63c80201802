package policy

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/enforce/profile"
	"policyd.dev/policyd/internal/errs"
)

func mustCompile(t testing.TB, text string, o CompileOptions) *Compiled {
	t.Helper()
	d := mustParse(t, text)
	o.Document = d
	c, err := Compile(d.Resource.GetLandlockPolicy(), o)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Profile.Validate(); err != nil {
		t.Fatal(err)
	}
	return c
}

// rows gives the profile's rows as text: what each layer grants where.
func rows(p *profile.Profile) string {
	var b strings.Builder
	mask := func(kind profile.Kind, masks []profile.Access) {
		for i, m := range masks {
			if i > 0 {
				b.WriteString(" /")
			}
			b.WriteString(" " + kind.Format(m))
			if m&profile.QuietRule != 0 {
				b.WriteString("+quiet")
			}
		}
	}
	for _, r := range p.Paths {
		b.WriteString(r.Path)
		mask(profile.FS, r.Access)
		if r.Missing == profile.Skip {
			b.WriteString(" skip")
		}
		b.WriteByte('\n')
	}
	for _, r := range p.Ports {
		fmt.Fprintf(&b, "%d-%d", r.First, r.Last)
		mask(profile.Net, r.Access)
		b.WriteByte('\n')
	}
	return b.String()
}

func TestCompileExample(t *testing.T) {
	c := mustCompile(t, `apiVersion: policyd/v1
kind: LandlockPolicy
metadata: {name: web, labels: {team: edge}, description: nginx at the edge}
spec:
  abi: 7
  enforcement: degrade
  variables: {state: [/var/lib/web, /srv/web/]}
  parameters: [state]
  flatten: {always: true, accept: [refer, shared_inodes]}
  layers:
    - name: host
      paths:
        - {allow: [read, execute], at: [/usr, /etc//nginx/]}
        - {allow: [read, write], at: ["${state}", /dev/null]}
        - {allow: [read], at: [/etc/ssl/private], missing: skip}
        - {allow: [write], at: [/usr], missing: skip}
      ports:
        - {allow: [bind_tcp], port: [80, 443, 8000-8010]}
        - {allow: [connect_tcp], port: [8005]}
      scope: [signal, abstract_unix_socket]
      log: {newExecOn: true}
    - handles: {net: [connect_tcp]}
      ports: [{allow: [tcp], port: [443]}]
  process: {smackLabel: Web}
`, CompileOptions{})
	want := `/dev/null write_file|read_file|read_dir|truncate / none
/etc/nginx execute|read_file|read_dir / none
/etc/ssl/private read_file|read_dir / none skip
/srv/web write_file|read_file|read_dir|truncate / none
/usr execute|write_file|read_file|read_dir|truncate / none
/var/lib/web write_file|read_file|read_dir|truncate / none
80-80 bind_tcp / none
443-443 bind_tcp / connect_tcp
8000-8004 bind_tcp / none
8005-8005 bind_tcp|connect_tcp / none
8006-8010 bind_tcp / none
`
	p := c.Profile
	if got := rows(p); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if p.Name != "web" || p.ABI != 7 || !p.Degrade || !p.Flatten || !p.AcceptReferFlatten || !p.AcceptSharedInode || c.Process.GetSmackLabel() != "Web" {
		t.Errorf("%+v, %v", p, c.Process)
	}
	host, second := p.Layers[0], p.Layers[1]
	if host.Name != "host" || host.FS != profile.Handled(profile.FS, 7) || host.Net != profile.Handled(profile.Net, 7) || host.Scope != 3 || host.Log != profile.LogNewExecOn {
		t.Errorf("%+v", host)
	}
	if second.Name != "layer-2" || second.FS != 0 || second.Net != profile.NetConnectTCP || second.Scope != 0 {
		t.Errorf("%+v", second)
	}
	var got []string
	for _, o := range c.Origins {
		got = append(got, fmt.Sprintf("%v %d/%d %s:%d:%d %s %#x", o.GetTable(), o.GetRow(), o.GetLayer(), o.GetFile(), o.GetLine(), o.GetColumn(), o.GetField(), o.GetAccess()))
	}
	wantOrigins := []string{
		"TABLE_PATHS 0/0 web.yaml:14:11 spec.layers[0].paths[1] 0x400e",
		"TABLE_PATHS 1/0 web.yaml:13:11 spec.layers[0].paths[0] 0xd",
		"TABLE_PATHS 2/0 web.yaml:15:11 spec.layers[0].paths[2] 0xc",
		"TABLE_PATHS 3/0 web.yaml:14:11 spec.layers[0].paths[1] 0x400e",
		"TABLE_PATHS 4/0 web.yaml:13:11 spec.layers[0].paths[0] 0xd",
		"TABLE_PATHS 4/0 web.yaml:16:11 spec.layers[0].paths[3] 0x4002",
		"TABLE_PATHS 5/0 web.yaml:14:11 spec.layers[0].paths[1] 0x400e",
		"TABLE_PORTS 0/0 web.yaml:18:11 spec.layers[0].ports[0] 0x1",
		"TABLE_PORTS 1/0 web.yaml:18:11 spec.layers[0].ports[0] 0x1",
		"TABLE_PORTS 1/1 web.yaml:23:15 spec.layers[1].ports[0] 0x2",
		"TABLE_PORTS 2/0 web.yaml:18:11 spec.layers[0].ports[0] 0x1",
		"TABLE_PORTS 3/0 web.yaml:18:11 spec.layers[0].ports[0] 0x1",
		"TABLE_PORTS 3/0 web.yaml:19:11 spec.layers[0].ports[1] 0x2",
		"TABLE_PORTS 4/0 web.yaml:18:11 spec.layers[0].ports[0] 0x1",
	}
	if !slices.Equal(got, wantOrigins) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(wantOrigins, "\n"))
	}
}

// TestCompileLayerPlaces: a layer stands where it begins in its file, with rules of its own or without.
func TestCompileLayerPlaces(t *testing.T) {
	text := `# a file of two documents
apiVersion: policyd/v1
kind: Fragment
metadata: {name: own/base}
spec: {abi: 1, paths: [{allow: [read], at: [/etc]}]}
---
apiVersion: policyd/v1
kind: LandlockPolicy
metadata: {name: web}
spec:
  abi: 7
  layers:
    - name: host
      include: [std/base]
    -
      # why
      scope: [signal]
    - {name: app, paths: [{allow: [read], at: [/]}]}
`
	docs, err := Parse("web.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	places := func(o CompileOptions) (got []string) {
		c, err := Compile(docs[1].Resource.GetLandlockPolicy(), o)
		if err != nil {
			t.Fatal(err)
		}
		if len(c.LayerPlaces) != len(c.Profile.Layers) {
			t.Errorf("%d places of %d layers", len(c.LayerPlaces), len(c.Profile.Layers))
		}
		for _, p := range c.LayerPlaces {
			got = append(got, fmt.Sprintf("%s:%d:%d %s", p.GetFile(), p.GetLine(), p.GetColumn(), p.GetField()))
		}
		return got
	}
	want := []string{"web.yaml:13:7 spec.layers[0]", "web.yaml:17:7 spec.layers[1]", "web.yaml:18:7 spec.layers[2]"}
	if got := places(CompileOptions{Document: docs[1]}); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	want = []string{":0:0 spec.layers[0]", ":0:0 spec.layers[1]", ":0:0 spec.layers[2]"}
	if got := places(CompileOptions{}); !slices.Equal(got, want) {
		t.Errorf("without a text: got %q, want %q", got, want)
	}
}

func TestCompileVariables(t *testing.T) {
	text := func(at string) string {
		return policyText(7, "variables: {a: [/x, /y], b: ['1', '2'], c: [p/q]}", "layers: [{paths: [{allow: [read_file], at: ['"+at+"']}]}]")
	}
	for at, want := range map[string]string{
		"${a}/${b}":     "/x/1 /x/2 /y/1 /y/2",
		"${a}/${a}":     "/x/x /y/y",
		"/h/${c}/$${b}": "/h/p/q/${b}",
		"/${b}${b}-$$":  "/11-$ /22-$",
		"/./${b}//z/":   "/1/z /2/z",
		"/":             "/",
		"//":            "/",
	} {
		var got []string
		for _, r := range mustCompile(t, text(at), CompileOptions{}).Profile.Paths {
			got = append(got, r.Path)
		}
		if s := strings.Join(got, " "); s != want {
			t.Errorf("%s: got %s, want %s", at, s, want)
		}
	}
}

func TestCompileParameters(t *testing.T) {
	d := mustParse(t, policyText(7, "variables: {data: [/srv/a, /srv/b]}", "parameters: [{name: data, within: [/srv, /var/lib/]}, home]",
		`layers: [{paths: [{allow: [read_file], at: ["${data}", "${home}/x"]}]}]`))
	for _, c := range []struct {
		name  string
		given map[string]string
		want  string // rows, or what the error says
	}{
		{"default", map[string]string{"home": "/home/u"}, "/home/u/x /srv/a /srv/b"},
		{"given", map[string]string{"home": "/h", "data": "/var/lib/web/"}, "/h/x /var/lib/web"},
		{"the folder itself", map[string]string{"home": "/h", "data": "/srv"}, "/h/x /srv"},
		{"missing", nil, "parameter home needs a value (--set home=PATH)"},
		{"unknown", map[string]string{"home": "/h", "dat": "/srv"}, `no parameter "dat"; did you mean "data"?`},
		{"outside", map[string]string{"home": "/h", "data": "/etc"}, `"/etc" is not within /srv, /var/lib/`},
		{"name with the same beginning", map[string]string{"home": "/h", "data": "/srvx"}, "is not within"},
		{"climbing out", map[string]string{"home": "/h", "data": "/srv/../etc"}, "has a .."},
		{"relative", map[string]string{"home": "h"}, "not absolute"},
		{"empty", map[string]string{"home": ""}, "empty"},
		{"NUL", map[string]string{"home": "/h\x00/etc"}, "NUL"},
		{"a variable in it is text", map[string]string{"home": "/${data}"}, "/${data}/x /srv/a /srv/b"},
	} {
		t.Run(c.name, func(t *testing.T) {
			compiled, err := Compile(d.Resource.GetLandlockPolicy(), CompileOptions{Parameters: c.given, Document: d})
			if err != nil {
				var e *Errors
				if !errors.As(err, &e) || e.Findings()[0].GetCode() != codeBadParameter || !strings.Contains(err.Error(), c.want) {
					t.Errorf("got %v, want %s", err, c.want)
				}
				return
			}
			var got []string
			for _, r := range compiled.Profile.Paths {
				got = append(got, r.Path)
			}
			if s := strings.Join(got, " "); s != c.want {
				t.Errorf("got %s, want %s", s, c.want)
			}
		})
	}
}

// The folder a value given at start lies in holds its paths on the host too, wherever symbolic links would lead.
func TestCompileParametersWithin(t *testing.T) {
	d := mustParse(t, policyText(7, "variables: {data: [/srv/a, /srv/b], sub: [x, y]}", "parameters: [{name: data, within: [/srv, /srv/web, /var/lib/]}, {name: any, within: [/]}, home]",
		`layers: [{paths: [{allow: [read_file], at: ["${data}", "${home}", "${any}", "${data}/${sub}", "/chroot/${data}", "/mnt/${sub}/${data}", "/srv/web/own"]}]}, {paths: [{allow: [read_file], at: ["${data}"]}]}]`))
	for _, c := range []struct {
		data string
		want map[string]int
	}{
		{"", map[string]int{
			"/srv/a": 0, "/srv/b": 0, "/srv/a/x": 0, "/srv/a/y": 0, "/srv/b/x": 0, "/srv/b/y": 0, "/chroot/srv/a": 0, "/chroot/srv/b": 0,
			"/mnt/x/srv/a": 0, "/mnt/x/srv/b": 0, "/mnt/y/srv/a": 0, "/mnt/y/srv/b": 0, "/srv/web/own": 0,
		}},
		{"/srv/web/shop", map[string]int{
			"/srv/web/shop": 8, "/srv/web/shop/x": 8, "/srv/web/shop/y": 8, "/chroot/srv/web/shop": 15,
			"/mnt/x/srv/web/shop": 14, "/mnt/y/srv/web/shop": 14, "/srv/web/own": 0,
		}},
		{"/var/lib", map[string]int{
			"/var/lib": 8, "/var/lib/x": 8, "/var/lib/y": 8, "/chroot/var/lib": 15, "/mnt/x/var/lib": 14, "/mnt/y/var/lib": 14, "/srv/web/own": 0,
		}},
	} {
		given := map[string]string{"home": "/h", "any": "/o"}
		if c.data != "" {
			given["data"] = c.data
		}
		compiled, err := Compile(d.Resource.GetLandlockPolicy(), CompileOptions{Parameters: given, Document: d})
		if err != nil {
			t.Fatal(err)
		}
		c.want["/h"], c.want["/o"] = 0, 0
		got := make(map[string]int)
		for _, r := range compiled.Profile.Paths {
			got[r.Path] = r.Within
		}
		if !maps.Equal(got, c.want) {
			t.Errorf("data %q: %v, want %v", c.data, got, c.want)
		}
	}
}

func TestCompileQuietAndMasks(t *testing.T) {
	c := mustCompile(t, layerText(11,
		"handles: {fs: [0x1ffff], net: [all]}",
		"quiet: {fs: [read], net: [connect_tcp], scope: [all]}",
		"scope: [signal]",
		"paths:",
		"  - {allow: [all], at: [/a]}",
		"  - {allow: [], at: [/q], quiet: true}",
		"  - {allow: [0x5], at: [/m], quiet: true}",
		"ports: [{allow: [connect], port: [1-2], quiet: true}]"), CompileOptions{})
	l := c.Profile.Layers[0]
	if l.QuietFS != profile.FSReadFile|profile.FSReadDir || l.QuietNet != profile.NetConnectTCP || l.QuietScope != profile.ScopeSignal {
		t.Errorf("%+v", l)
	}
	want := "/a " + profile.FS.Format(profile.Handled(profile.FS, 11)) + "\n/m execute|read_file+quiet\n/q none+quiet\n1-2 connect_tcp|connect_send_udp+quiet\n"
	if got := rows(c.Profile); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// TestCompileNeverWidens holds the abi rule: what a text handles depends on its abi alone.
func TestCompileNeverWidens(t *testing.T) {
	for abi := 1; abi <= profile.MaxABI; abi++ {
		c := mustCompile(t, layerText(abi, "include: [std/base, std/dns]", "paths: [{allow: [all], at: [/a]}]"), CompileOptions{})
		l := c.Profile.Layers[0]
		if l.FS != profile.Handled(profile.FS, abi) || l.Net != profile.Handled(profile.Net, abi) || l.Scope != 0 {
			t.Errorf("abi %d: %+v", abi, l)
		}
		if needs := c.Profile.Required(); slices.ContainsFunc(needs, func(n profile.Need) bool { return n.ABI > abi }) {
			t.Errorf("abi %d: %v", abi, needs)
		}
		if i := slices.IndexFunc(c.Profile.Paths, func(r profile.PathRow) bool { return r.Path == "/a" }); c.Profile.Paths[i].Access[0] != l.FS {
			t.Errorf("abi %d: all is %#x", abi, c.Profile.Paths[i].Access[0])
		}
	}
}

// TestCompileIsPure compiles twice and without a document.
func TestCompileIsPure(t *testing.T) {
	d := mustParse(t, layerText(7, "include: [std/shell, std/python, std/exec]", "paths: [{allow: [all], at: [/a]}]"))
	before := proto.Clone(d.Resource)
	a, err := Compile(d.Resource.GetLandlockPolicy(), CompileOptions{Document: d})
	if err != nil {
		t.Fatal(err)
	}
	b, err := Compile(d.Resource.GetLandlockPolicy(), CompileOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(a.Profile.Encode(), b.Profile.Encode()) || !proto.Equal(before, d.Resource) || len(a.Origins) != len(b.Origins) {
		t.Error("two compilations of one document differ")
	}
	for i := 1; i < len(a.Origins); i++ {
		x, y := a.Origins[i-1], a.Origins[i]
		if x.GetTable() > y.GetTable() || x.GetTable() == y.GetTable() && (x.GetRow() > y.GetRow() || x.GetRow() == y.GetRow() && x.GetLayer() > y.GetLayer()) {
			t.Fatalf("origins %v and %v are out of order", x, y)
		}
	}
}

// TestCompileUnchecked gives Compile what no Parse has seen.
func TestCompileUnchecked(t *testing.T) {
	for name, p := range map[string]*apiv1.LandlockPolicy{
		"nil": nil, "empty": {},
		"bad path": {Metadata: &apiv1.Metadata{Name: "a"}, Spec: &apiv1.LandlockSpec{Abi: 1, Layers: []*apiv1.Layer{{Paths: []*apiv1.PathRule{{Allow: []string{"read"}, At: []string{"../x"}}}}}}},
		"bad abi":  {Metadata: &apiv1.Metadata{Name: "a"}, Spec: &apiv1.LandlockSpec{Abi: 99, Layers: []*apiv1.Layer{{}}}},
	} {
		if _, err := Compile(p, CompileOptions{}); !errors.Is(err, errs.ErrInvalid) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}
