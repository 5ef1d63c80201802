package graph

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/xml"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"unicode"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/enforce/profile"
)

var update = flag.Bool("update", false, "write the golden files anew")

const (
	ro = profile.FSReadFile | profile.FSReadDir
	rw = ro | profile.FSWriteFile | profile.FSTruncate
)

// hostile are parts of paths that try to be more than text.
var hostile = []string{
	"</title><script>alert(1)</script>", `"q" 'a' &amp; & \N \" \`, "new\nline\ttab\x1b[31m", "\u202etxt.exe", "\u2066a\u2069\u200f\u061c",
	"\xff\xfe", "ü-日本", "]]>--><!--", "{{.Graph}}", "\u00a0\u2028\ufeff\ufffd", `"];n1->n2[label="`, "${x}`y`",
}

func example(t testing.TB) (*profile.Profile, []*apiv1.Origin) {
	t.Helper()
	b := profile.NewBuilder([]profile.Layer{
		{Name: "host", FS: rw | profile.FSExecute, Net: profile.NetBindTCP | profile.NetConnectTCP, Scope: profile.ScopeSignal},
		{Name: "narrow", FS: profile.FSWriteFile | profile.FSTruncate | profile.FSExecute, Net: profile.NetBindTCP},
	})
	add := func(layer int, path string, a profile.Access) { b.AddPath(layer, path, a, false, profile.Skip) }
	add(0, "/usr", ro|profile.FSExecute)
	add(1, "/usr/bin", profile.FSExecute)
	add(0, "/srv/web/data", rw)
	add(0, "/srv/web/log", rw)
	add(1, "/srv", profile.FSWriteFile|profile.FSTruncate)
	add(0, "/a/very/deep/folder", profile.FSReadFile)
	for _, h := range hostile {
		add(0, "/srv/hostile/"+h, profile.FSReadFile)
	}
	b.AddPorts(0, 80, 80, profile.NetBindTCP, false)
	b.AddPorts(0, 8000, 8010, profile.NetBindTCP, false)
	b.AddPorts(1, 8000, 8010, profile.NetBindTCP, false)
	p, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	p.Name = "web"
	var origins []*apiv1.Origin
	for i, row := range p.Paths {
		for l, a := range row.Access {
			if a != 0 {
				origins = append(origins, &apiv1.Origin{
					Table: apiv1.Origin_TABLE_PATHS, Row: uint32(i), Layer: uint32(l), Access: uint32(a),
					File: "<web>&.yaml", Line: uint32(10 + l), Field: "spec.layers[0].paths[0]",
				})
			}
		}
	}
	return p, origins
}

func mustGraph(t testing.TB, o Options) *Graph {
	t.Helper()
	p, origins := example(t)
	g, err := New(p, origins, o)
	if err != nil {
		t.Fatal(err)
	}
	if want := profile.Digest(p.Encode()); g.Digest != want {
		t.Errorf("digest %s, want %s", g.Digest, want)
	}
	g.Digest = "sha256:0" // a picture does not change with the encoding of profiles
	return g
}

func tree(w io.Writer, g *Graph) error { return g.Tree(w, TreeOptions{}) }

func TestGolden(t *testing.T) {
	for _, tc := range []struct {
		file string
		o    Options
		draw func(*Graph, io.Writer) error
	}{
		{"web.txt", Options{Name: "web@3"}, func(g *Graph, w io.Writer) error { return tree(w, g) }},
		{"web-ascii.txt", Options{Name: "web@3"}, func(g *Graph, w io.Writer) error { return g.Tree(w, TreeOptions{ASCII: true}) }},
		{"web-narrow.txt", Options{Name: "web@3", Layers: []string{"narrow"}}, func(g *Graph, w io.Writer) error { return tree(w, g) }},
		{"web-depth.txt", Options{Name: "web@3", Depth: 2}, func(g *Graph, w io.Writer) error { return tree(w, g) }},
		{"web.dot", Options{Name: "web@3"}, (*Graph).Dot},
		{"web.svg", Options{Name: "web@3"}, (*Graph).SVG},
		{"web.html", Options{Name: "web@3"}, (*Graph).HTML},
	} {
		t.Run(tc.file, func(t *testing.T) {
			var first, again bytes.Buffer
			if err := tc.draw(mustGraph(t, tc.o), &first); err != nil {
				t.Fatal(err)
			}
			if err := tc.draw(mustGraph(t, tc.o), &again); err != nil || !bytes.Equal(first.Bytes(), again.Bytes()) {
				t.Errorf("two drawings of one profile differ (%v)", err)
			}
			path := "testdata/" + tc.file
			if *update {
				if err := os.WriteFile(path, first.Bytes(), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(first.Bytes(), want) {
				t.Errorf("%s is not what is drawn now; look, then write it anew with -update:\n%s", path, first.Bytes())
			}
		})
	}
}

// Whatever a path holds, nothing of it works in a picture.
func TestHostile(t *testing.T) {
	g := mustGraph(t, Options{Name: hostile[0] + hostile[2]})
	var ascii bytes.Buffer
	if err := g.Tree(&ascii, TreeOptions{ASCII: true}); err != nil {
		t.Fatal(err)
	}
	if strings.ContainsFunc(ascii.String(), func(r rune) bool { return r > unicode.MaxASCII }) {
		t.Errorf("not ASCII:\n%s", ascii.String())
	}
	for form, draw := range map[string]func(io.Writer) error{
		"tree": func(w io.Writer) error { return tree(w, g) }, "dot": g.Dot, "svg": g.SVG, "html": g.HTML,
	} {
		var b bytes.Buffer
		if err := draw(&b); err != nil {
			t.Fatal(err)
		}
		for _, r := range b.String() {
			if r != '\n' && unicode.IsControl(r) || unicode.Is(unicode.Cf, r) || r == unicode.ReplacementChar || r == '\u2028' {
				t.Errorf("%s: %U stands in it", form, r)
			}
		}
		if form == "svg" || form == "html" {
			for _, bad := range []string{"<script>alert", "]]>", "<!--", "src=", "href=", "@import", "url("} {
				if strings.Contains(b.String(), bad) {
					t.Errorf("%s: has %q", form, bad)
				}
			}
		}
	}
}

func TestSVGIsXML(t *testing.T) {
	var b bytes.Buffer
	if err := mustGraph(t, Options{Name: hostile[1]}).SVG(&b); err != nil {
		t.Fatal(err)
	}
	dec := xml.NewDecoder(&b)
	texts := map[string]bool{}
	for {
		tok, err := dec.Token()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if s, ok := tok.(xml.StartElement); ok && s.Name.Local == "script" {
			t.Error("a script")
		}
		if c, ok := tok.(xml.CharData); ok {
			texts[string(c)] = true
		}
	}
	for _, want := range []string{hostile[0], `\u202etxt.exe`, `"q" 'a' &amp; & \\N \\" \\`} {
		if !texts[want] {
			t.Errorf("%q is not among the texts", want)
		}
	}
}

// The page's own policy lets its script run and no other.
func TestHTMLScript(t *testing.T) {
	var b bytes.Buffer
	if err := mustGraph(t, Options{Name: "web"}).HTML(&b); err != nil {
		t.Fatal(err)
	}
	scripts := regexp.MustCompile(`(?s)<script>(.*?)</script>`).FindAllStringSubmatch(b.String(), -1)
	if len(scripts) != 1 || strings.Count(b.String(), "<script") != 1 {
		t.Fatalf("%d scripts", len(scripts))
	}
	sum := sha256.Sum256([]byte(scripts[0][1]))
	if want := "script-src &#39;sha256-" + base64.StdEncoding.EncodeToString(sum[:]); !strings.Contains(strings.ReplaceAll(b.String(), "'", "&#39;"), strings.ReplaceAll(want, "+", "&#43;")) {
		t.Errorf("the policy does not have %s", want)
	}
}

// Graphviz takes what Dot writes, or at least its strings and brackets are whole.
func TestDot(t *testing.T) {
	var b bytes.Buffer
	if err := mustGraph(t, Options{Name: hostile[10]}).Dot(&b); err != nil {
		t.Fatal(err)
	}
	statement := regexp.MustCompile(`^  (graph|node|edge|n\d+) \[([a-z]+=("([^"\\]|\\.)*"|[a-zA-Z0-9.]+)(, )?)+\];$|^  n\d+ -> n\d+;$`)
	lines := strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n")
	for _, l := range lines[1 : len(lines)-1] {
		if !statement.MatchString(l) {
			t.Errorf("no statement: %s", l)
		}
	}
	if _, err := exec.LookPath("dot"); err != nil {
		t.Logf("Graphviz is not installed: only the statements were looked at")
		return
	}
	cmd := exec.Command("dot", "-Tcanon")
	cmd.Stdin = bytes.NewReader(b.Bytes())
	if out, err := cmd.CombinedOutput(); err != nil || bytes.Contains(out, []byte("Warning")) {
		t.Errorf("dot: %v\n%s", err, out)
	}
}

// What a picture says is allowed is what the profile decides.
func TestAllowedIsDecided(t *testing.T) {
	p, _ := example(t)
	for _, o := range []Options{{}, {Layers: []string{"narrow"}}, {Layers: []string{"host"}, Depth: 3}} {
		g, err := New(p, nil, o)
		if err != nil {
			t.Fatal(err)
		}
		nodes := 0
		var visit func(*Node)
		visit = func(n *Node) {
			nodes++
			if !strings.Contains(n.What, `\`) {
				var names []string
				for _, r := range profile.Rights() {
					if handled := rw | profile.FSExecute | profile.FSRefer; r.Kind == profile.FS && handled&r.Bit != 0 && p.DecidePath(n.What, r.Bit).Allowed {
						names = append(names, r.Name)
					}
				}
				want := strings.Join(names, ",")
				if want == "" {
					want = "none of what is handled"
				}
				if n.Allowed.Full != want {
					t.Errorf("%+v: %s: %s, decided %s", o, n.What, n.Allowed.Full, want)
				}
			}
			for _, c := range n.Nodes {
				visit(c)
			}
		}
		visit(g.Root)
		if nodes != g.Nodes || nodes < 3 {
			t.Errorf("%d nodes, counted %d", nodes, g.Nodes)
		}
	}
}

// A thousand rules are as many lines and no more than what parts them, and
// unfold only to the second level.
func TestThousandRules(t *testing.T) {
	b := profile.NewBuilder([]profile.Layer{{Name: "one", FS: rw}})
	for i := range 1000 {
		b.AddPath(0, fmt.Sprintf("/srv/app-%02d/shared/data/%d", i%20, i), ro, false, profile.Skip)
	}
	p, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	g, err := New(p, nil, Options{Name: "big"})
	if err != nil {
		t.Fatal(err)
	}
	if g.Nodes != 1+1+20+1000 {
		t.Errorf("%d nodes", g.Nodes)
	}
	var page, text bytes.Buffer
	if err := g.HTML(&page); err != nil {
		t.Fatal(err)
	}
	if open := strings.Count(page.String(), " open>"); open != 2 {
		t.Errorf("%d folders begin open", open)
	}
	short, err := New(p, nil, Options{Name: "big", Depth: 2})
	if err != nil {
		t.Fatal(err)
	}
	if err := tree(&text, short); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(text.String(), "(50 rules for paths further down)"); n != 20 || strings.Count(text.String(), "\n") > 60 {
		t.Errorf("%d folders with 50 rules further down in\n%s", n, text.String())
	}
}

// A profile without fs rights, and one whose layers handle no rights alike.
func TestWithoutFiles(t *testing.T) {
	b := profile.NewBuilder([]profile.Layer{{Name: "net", Net: profile.NetConnectTCP}, {Name: "s", Scope: profile.ScopeSignal}})
	p, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	g, err := New(p, nil, Options{Name: "net"})
	if err != nil {
		t.Fatal(err)
	}
	var b2 bytes.Buffer
	if err := tree(&b2, g); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"mounts may be changed", "no layer handles, so all may (fs): execute", "all others"} {
		if !strings.Contains(b2.String(), want) {
			t.Errorf("%q is not in\n%s", want, b2.String())
		}
	}
	for _, draw := range []func(io.Writer) error{g.Dot, g.SVG, g.HTML} {
		if err := draw(io.Discard); err != nil {
			t.Error(err)
		}
	}
}

func TestUnknownLayer(t *testing.T) {
	p, _ := example(t)
	if _, err := New(p, nil, Options{Layers: []string{"hots"}}); err == nil || !strings.Contains(err.Error(), "host, narrow") {
		t.Errorf("got %v", err)
	}
}

func TestUTF8(t *testing.T) {
	for _, tc := range []struct {
		all, ctype, lang string
		want             bool
	}{
		{"", "", "", false},
		{"", "", "C.UTF-8", true},
		{"", "", "de_DE.utf8", true},
		{"C", "", "C.UTF-8", false},
		{"", "POSIX", "en_US.UTF-8", false},
		{"en_US.UTF-8", "C", "C", true},
	} {
		t.Setenv("LC_ALL", tc.all)
		t.Setenv("LC_CTYPE", tc.ctype)
		t.Setenv("LANG", tc.lang)
		if got := UTF8(); got != tc.want {
			t.Errorf("%+v: %v", tc, got)
		}
	}
}

func TestVisible(t *testing.T) {
	for in, want := range map[string]string{
		"plain /path-ü.日本": "plain /path-ü.日本", "a\nb": `a\nb`, `a\nb`: `a\\nb`, "\u202e": `\u202e`, "\xff": `\xff`,
		"\u00a0": `\u00a0`, "\u200b": `\u200b`, "\ufffd": `\ufffd`, "e\u0301": "e\u0301", "\U000e0041": `\U000e0041`, "\u3164": "\u3164",
	} {
		if got := Visible(in); got != want {
			t.Errorf("Visible(%q) = %s, want %s", in, got, want)
		}
	}
}

// Rules that fragments alone have are counted, and what they grant holds for the
// paths beneath; a rule that the policy has too stays.
func TestFoldedFragments(t *testing.T) {
	p, origins := example(t)
	for _, o := range origins {
		switch path := p.Paths[o.GetRow()].Path; {
		case strings.HasPrefix(path, "/srv/hostile/"), path == "/srv":
			o.Fragment = "std/hostile"
		case path == "/usr":
			o.Fragment = "std/usr"
			origins = append(origins, &apiv1.Origin{Table: o.Table, Row: o.Row, Layer: o.Layer, Access: o.Access, Field: "spec.own"})
		}
	}
	g, err := New(p, origins, Options{Name: "web", Fold: true})
	if err != nil {
		t.Fatal(err)
	}
	if want := []Folded{{"std/hostile", len(hostile) + 1}}; len(g.Folded) != 1 || g.Folded[0] != want[0] {
		t.Errorf("folded %v, want %v", g.Folded, want)
	}
	var b bytes.Buffer
	if err := g.Tree(&b, TreeOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		fmt.Sprintf("\nfragment std/hostile: %d rules for paths, not shown (--fragments)\n", len(hostile)+1),
		"data            read,write ", "── usr ", "spec.own",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
	if strings.Contains(b.String(), "日本") {
		t.Errorf("a rule of a fragment is shown:\n%s", b.String())
	}
}

func TestShortReadsBeforeExecuting(t *testing.T) {
	matter := ro | profile.FSExecute
	for want, a := range map[string]profile.Access{"read,execute": matter, "read_file,execute": profile.FSReadFile | profile.FSExecute, "read_dir,execute": profile.FSReadDir | profile.FSExecute} {
		if got := Short(profile.FS, a, matter|rw); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
