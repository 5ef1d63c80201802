package policy

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/internal/errs"
)

// policyText is a policy whose spec begins with abi and ends with these lines.
func policyText(abi int, lines ...string) string {
	return fmt.Sprintf("apiVersion: policyd/v1\nkind: LandlockPolicy\nmetadata: {name: web}\nspec:\n  abi: %d\n  %s\n", abi, strings.Join(lines, "\n  "))
}

// layerText is a policy of one layer with these keys.
func layerText(abi int, lines ...string) string {
	return policyText(abi, "layers:\n    - "+strings.Join(lines, "\n      "))
}

func pathText(abi int, rule string) string { return layerText(abi, "paths:\n        - "+rule) }
func portText(abi int, rule string) string { return layerText(abi, "ports:\n        - "+rule) }

func mustParse(t testing.TB, text string) *Document {
	t.Helper()
	docs, err := Parse("web.yaml", []byte(text))
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return docs[0]
}

// refusedAs parses a wrong text and gives its findings.
func refusedAs(t testing.TB, text string) []*apiv1.Finding {
	t.Helper()
	docs, err := Parse("web.yaml", []byte(text))
	var e *Errors
	if !errors.As(err, &e) || !errors.Is(err, errs.ErrInvalid) || docs != nil {
		t.Fatalf("got %v, %v; want *Errors\n%s", docs, err, clip(text))
	}
	if err.Error() == "" {
		t.Error("no text")
	}
	return e.Findings()
}

func TestParseRefuses(t *testing.T) {
	deep := strings.Repeat("[", 100) + strings.Repeat("]", 100)
	for _, c := range []struct {
		name, text, code string
		place            string // line:column
		field            string
		says             string
	}{
		{"not YAML", "a: b: c\n", "syntax", "1:5", "", "mapping values"},
		{"unclosed list", policyText(7, "layers: [1"), "syntax", "7:1", "", ""},
		{"tab indents", "apiVersion: policyd/v1\nkind: LandlockPolicy\nspec:\n\tabi: 7\n", "syntax", "4:1", "", "a tab cannot indent"},
		{"directive", "%YAML 1.2\n---\nkind: x\n", "syntax", "1:1", "", "directives"},
		{"empty", "", "syntax", "0:0", "", "no document"},
		{"only comments", "# nothing\n---\n# here\n", "syntax", "0:0", "", "no document"},
		{"NUL", "apiVersion: \x00policyd/v1\n", "encoding", "1:13", "", "control character"},
		{"escape", "a: 1\nb: \x1b[2J\n", "encoding", "2:4", "", "control character"},
		{"not UTF-8", "a: 1\nb: \xff\n", "encoding", "2:4", "", "not UTF-8"},
		{"UTF-16", "\xff\xfea\x00:\x00", "encoding", "1:1", "", "not UTF-8"},
		{"too deep", "a: " + deep + "\n", "too-large", "1:28", "", "nested more than 24"},
		{"deep without a list", strings.Repeat("- ", 500) + "a\n", "too-large", "1:49", "", "nested more than 24"},
		{"anchor", policyText(7, "layers: &a [{}]"), "alias", "6:11", "spec.layers", "anchors are not used"},
		{"bomb of aliases", policyText(7, "variables: {a: &a [x, x], b: &b [*a, *a], c: &c [*b, *b], d: [*c, *c, *c, *c]}", "layers: [{}]"), "alias", "6:18", "spec.variables.a", "anchors are not used"},
		{"alias alone", "apiVersion: *x\n", "alias", "1:13", "", ""},
		{"tag", policyText(7, "layers: !!set [x]"), "alias", "6:11", "spec.layers", "tags"},
		{"merge key", pathText(7, "{<<: {allow: [read]}, at: [/]}"), "alias", "8:12", "spec.layers[0].paths[0]", "merge keys"},
		{"list as document", "- a\n", "wrong-type", "1:1", "", "a document is a mapping"},
		{"no apiVersion", "kind: LandlockPolicy\n", "missing-key", "1:1", "", "apiVersion"},
		{"old apiVersion", "apiVersion: policyd/v9\nkind: LandlockPolicy\n", "unknown-kind", "1:13", "apiVersion", "reads policyd/v1"},
		{"unknown kind", "apiVersion: policyd/v1\nkind: LandlockPolice\n", "unknown-kind", "2:7", "kind", `did you mean "LandlockPolicy"`},
		{"far kind", "apiVersion: policyd/v1\nkind: Deployment\n", "unknown-kind", "2:7", "kind", "known are Binding, Fragment, LandlockPolicy"},
		{"unknown key", pathText(7, "{alow: [read], at: [/usr]}"), "unknown-key", "8:12", "spec.layers[0].paths[0].alow", `did you mean "allow"`},
		{"snake case", layerText(7, "log: {same_exec_off: true}"), "unknown-key", "7:13", "spec.layers[0].log.same_exec_off", `did you mean "sameExecOff"`},
		{"repeated key", pathText(7, "{allow: [read], at: [/usr], allow: [write]}"), "repeated-key", "8:39", "spec.layers[0].paths[0].allow", "first in line 8"},
		{"repeated label", "apiVersion: policyd/v1\nkind: Fragment\nmetadata: {name: a, labels: {b: c, b: d}}\nspec: {abi: 1}\n", "repeated-key", "3:36", "metadata.labels.b", "stands twice"},
		{"key that is a list", policyText(7, "? [a]\n  : b"), "wrong-type", "6:5", "spec", "a key is a word"},
		{"abi in words", "apiVersion: policyd/v1\nkind: Fragment\nmetadata: {name: a}\nspec: {abi: seven}\n", "wrong-type", "4:13", "spec.abi", `want a number, not "seven"`},
		{"abi in quotes", "apiVersion: policyd/v1\nkind: Fragment\nmetadata: {name: a}\nspec: {abi: '7'}\n", "wrong-type", "4:13", "spec.abi", "want a number"},
		{"abi without value", "apiVersion: policyd/v1\nkind: Fragment\nmetadata: {name: a}\nspec:\n  abi:\n", "wrong-type", "5:7", "spec.abi", "no value"},
		{"list where mapping", policyText(7, "layers: {a: b}"), "wrong-type", "6:11", "spec.layers", "want a list, not a mapping"},
		{"word where mapping", policyText(7, "layers: [web]"), "wrong-type", "6:12", "spec.layers[0]", `want a mapping, not "web"`},
		{"mapping where word", "apiVersion: policyd/v1\nkind: Fragment\nmetadata: {name: {a: b}}\nspec: {abi: 1}\n", "wrong-type", "3:18", "metadata.name", "want a word"},
		{"not a bool", pathText(10, "{allow: [read], at: [/usr], quiet: yes}"), "wrong-type", "8:46", "spec.layers[0].paths[0].quiet", "true or false"},
		{"unknown word", pathText(7, "{allow: [read], at: [/usr], missing: skp}"), "bad-value", "8:48", "spec.layers[0].paths[0].missing", `did you mean "skip"`},
		{"values spelled out", policyText(7, "variables: {a: {values: [b]}}\n  layers: [{}]"), "wrong-type", "6:18", "spec.variables.a", "want a list"},
		{"no name", "apiVersion: policyd/v1\nkind: Fragment\nmetadata: {}\nspec: {abi: 1}\n", "missing-key", "3:11", "metadata", "metadata.name is missing"},
		{"no spec", "apiVersion: policyd/v1\nkind: Fragment\nmetadata: {name: a}\n", "missing-key", "1:1", "", "spec is missing"},
		{"bad name", "apiVersion: policyd/v1\nkind: Fragment\nmetadata: {name: a_b}\nspec: {abi: 1}\n", "bad-name", "3:18", "metadata.name", "a name is 1 to 63"},
		{"policy with a slash", strings.Replace(layerText(7, "paths: []"), "name: web", "name: a/b", 1), "bad-name", "3:18", "metadata.name", ""},
		{"name too long", "apiVersion: policyd/v1\nkind: Fragment\nmetadata: {name: " + strings.Repeat("a", 64) + "}\nspec: {abi: 1}\n", "bad-name", "3:18", "metadata.name", ""},
		{"reserved", "apiVersion: policyd/v1\nkind: Fragment\nmetadata: {name: std/mine}\nspec: {abi: 1}\n", "reserved-name", "3:18", "metadata.name", "shipped"},
		{"bad label", "apiVersion: policyd/v1\nkind: Fragment\nmetadata: {name: a, labels: {a b: c}}\nspec: {abi: 1}\n", "bad-name", "3:35", `metadata.labels["a b"]`, ""},
		{"description of two lines", "apiVersion: policyd/v1\nkind: Fragment\nmetadata: {name: a, description: \"a\\nb\"}\nspec: {abi: 1}\n", "bad-value", "3:34", "metadata.description", "one line"},
		{"no abi", "apiVersion: policyd/v1\nkind: Fragment\nmetadata: {name: a}\nspec: {}\n", "bad-abi", "4:7", "spec", "abi is missing"},
		{"abi of the future", "apiVersion: policyd/v1\nkind: Fragment\nmetadata: {name: a}\nspec: {abi: 12}\n", "bad-abi", "4:13", "spec.abi", "knows 1 to 11"},
		{"no layers", "apiVersion: policyd/v1\nkind: LandlockPolicy\nmetadata: {name: a}\nspec: {abi: 7}\n", "missing-key", "4:7", "spec", "layers is missing"},
		{"two layers of a name", policyText(7, "layers: [{name: a}, {name: a}]"), "duplicate-name", "6:30", "spec.layers[1].name", ""},
		{"layer named as another by default", policyText(7, "layers: [{name: layer-2}, {}]"), "duplicate-name", "6:29", "spec.layers[1].name", "layer-2"},
		{"handles nothing", layerText(7, "handles: {}"), "handles-nothing", "7:7", "spec.layers[0]", "restricts nothing"},
		{"unknown right", pathText(7, "{allow: [raed_file], at: [/usr]}"), "unknown-right", "8:20", "spec.layers[0].paths[0].allow[0]", `did you mean "read_file"`},
		{"right of another kind", pathText(7, "{allow: [bind_tcp], at: [/usr]}"), "unknown-right", "8:20", "spec.layers[0].paths[0].allow[0]", "it is a net right"},
		{"upper case", pathText(7, "{allow: [READ_FILE], at: [/usr]}"), "unknown-right", "8:20", "spec.layers[0].paths[0].allow[0]", `did you mean "read_file"`},
		{"right of a newer abi", pathText(7, "{allow: [resolve_unix], at: [/run]}"), "needs-abi", "8:20", "spec.layers[0].paths[0].allow[0]", "of ABI 9 (Linux 7.1), and this document says abi: 7"},
		{"UDP at abi 7", portText(7, "{allow: [bind_udp], port: [53]}"), "needs-abi", "8:20", "spec.layers[0].ports[0].allow[0]", "ABI 10"},
		{"scope at abi 5", layerText(5, "scope: [signal]"), "needs-abi", "7:15", "spec.layers[0].scope[0]", "ABI 6"},
		{"log at abi 6", layerText(6, "log: {newExecOn: true}"), "needs-abi", "7:12", "spec.layers[0].log", "ABI 7"},
		{"quiet at abi 9", layerText(9, "quiet: {fs: [read]}"), "needs-abi", "7:14", "spec.layers[0].quiet", "ABI 10"},
		{"mask of a newer abi", pathText(7, "{allow: [0x10000], at: [/run]}"), "needs-abi", "8:20", "spec.layers[0].paths[0].allow[0]", "ABI 9"},
		{"mask nobody knows", pathText(11, "{allow: [0x20000], at: [/run]}"), "unknown-right", "8:20", "spec.layers[0].paths[0].allow[0]", "0x20000"},
		{"mask of zero", pathText(11, "{allow: [0x0], at: [/run]}"), "unknown-right", "8:20", "spec.layers[0].paths[0].allow[0]", ""},
		{"mask of 64 bits", pathText(11, "{allow: [0xffffffffffffffffff], at: [/run]}"), "unknown-right", "8:20", "spec.layers[0].paths[0].allow[0]", ""},
		{"right not handled", layerText(7, "handles: {fs: [write]}", "paths: [{allow: [write_file, read_file], at: [/]}]"), "not-handled", "8:23", "spec.layers[0].paths[0].allow", "does not handle read_file"},
		{"group not handled at all", layerText(7, "handles: {fs: [write]}", "paths: [{allow: [read], at: [/]}]"), "empty-allow", "8:23", "spec.layers[0].paths[0].allow", "handles none"},
		{"quiet right not handled", layerText(10, "handles: {fs: [read]}", "quiet: {fs: [write_file]}"), "not-handled", "8:19", "spec.layers[0].quiet.fs", ""},
		{"quiet rule in a loud layer", pathText(10, "{allow: [read], at: [/], quiet: true}"), "bad-value", "8:43", "spec.layers[0].paths[0].quiet", "lists no quiet fs rights"},
		{"nothing allowed", pathText(7, "{allow: [], at: [/usr/secret]}"), "empty-allow", "8:11", "spec.layers[0].paths[0]", "does not deny either"},
		{"no paths", pathText(7, "{allow: [read]}"), "missing-key", "8:11", "spec.layers[0].paths[0]", "at is missing"},
		{"relative path", pathText(7, "{allow: [read], at: [usr/lib]}"), "bad-path", "8:32", "spec.layers[0].paths[0].at[0]", "not absolute"},
		{"home", pathText(7, "{allow: [read], at: [~/x]}"), "bad-path", "8:32", "spec.layers[0].paths[0].at[0]", "not absolute"},
		{"empty path", pathText(7, "{allow: [read], at: ['']}"), "bad-path", "8:32", "spec.layers[0].paths[0].at[0]", "empty"},
		{"dots", pathText(7, "{allow: [read], at: [/usr/../etc]}"), "bad-path", "8:32", "spec.layers[0].paths[0].at[0]", "has a .."},
		{"NUL in a path", pathText(7, `{allow: [read], at: ["/usr\0/x"]}`), "bad-path", "8:32", "spec.layers[0].paths[0].at[0]", "NUL"},
		{"path of 1 MB", pathText(7, "{allow: [read], at: [/"+strings.Repeat("a/", 1<<19)+"]}"), "bad-path", "8:32", "spec.layers[0].paths[0].at[0]", "1048577 bytes, at most 4095"},
		{"name of 256 bytes", pathText(7, "{allow: [read], at: [/"+strings.Repeat("a", 256)+"]}"), "bad-path", "8:32", "spec.layers[0].paths[0].at[0]", "256 bytes, at most 255"},
		{"unclosed variable", pathText(7, `{allow: [read], at: ["/usr/${x"]}`), "bad-template", "8:32", "spec.layers[0].paths[0].at[0]", "at character 6 is not closed"},
		{"lone dollar", pathText(7, "{allow: [read], at: [$HOME/x]}"), "bad-template", "8:32", "spec.layers[0].paths[0].at[0]", "$$ for a dollar|${name}"},
		{"empty variable name", pathText(7, `{allow: [read], at: ["/${}"]}`), "bad-template", "8:32", "spec.layers[0].paths[0].at[0]", "not the name"},
		{"unknown variable", policyText(7, "variables: {state: [/var]}", `layers: [{paths: [{allow: [read], at: ["${stat}"]}]}]`), "unknown-variable", "7:42", "spec.layers[0].paths[0].at[0]", `did you mean "state"`},
		{"variable makes a relative path", policyText(7, "variables: {state: [var]}", `layers: [{paths: [{allow: [read], at: ["${state}/x"]}]}]`), "bad-path", "7:42", "spec.layers[0].paths[0].at[0]", `"var/x" is not absolute`},
		{"variable without members", policyText(7, "variables: {state: []}", "layers: [{}]"), "bad-value", "6:22", "spec.variables.state", "no member"},
		{"variable with dots", policyText(7, "variables: {state: [/var/../etc]}", "layers: [{}]"), "bad-value", "6:23", "spec.variables.state[0]", "climbs: a .."},
		{"variable with a bad name", policyText(7, "variables: {a-b: [x]}", "layers: [{}]"), "bad-name", "6:20", "spec.variables.a-b", ""},
		{"a parameter twice", policyText(7, "parameters: [a, {name: a}]", "layers: [{}]"), "duplicate-name", "6:19", "spec.parameters[1]", "declared twice"},
		{"parameter within a relative path", policyText(7, "parameters: [{name: a, within: [srv]}]", "layers: [{}]"), "bad-path", "6:35", "spec.parameters[0].within[0]", "not absolute"},
		{"default outside of within", policyText(7, "variables: {a: [/etc]}", "parameters: [{name: a, within: [/srv]}]", "layers: [{}]"), "bad-parameter", "7:16", "spec.parameters[0]", "not within /srv"},
		{"port 65536", portText(7, "{allow: [bind_tcp], port: [65536]}"), "bad-port", "8:38", "spec.layers[0].ports[0].port[0]", "not within 0 to 65535"},
		{"port -1", portText(7, "{allow: [bind_tcp], port: [-1]}"), "bad-port", "8:38", "spec.layers[0].ports[0].port[0]", "not within 0 to 65535"},
		{"port in words", portText(7, "{allow: [bind_tcp], port: [https]}"), "bad-port", "8:38", "spec.layers[0].ports[0].port[0]", "not a number"},
		{"octal port", portText(7, "{allow: [bind_tcp], port: [010]}"), "bad-port", "8:38", "spec.layers[0].ports[0].port[0]", "begins with a 0"},
		{"range backwards", portText(7, "{allow: [bind_tcp], port: [8010-8000]}"), "bad-port", "8:38", "spec.layers[0].ports[0].port[0]", "write 8000-8010"},
		{"range without end", portText(7, "{allow: [bind_tcp], port: [8000-]}"), "bad-port", "8:38", "spec.layers[0].ports[0].port[0]", ""},
		{"no ports", portText(7, "{allow: [bind_tcp]}"), "missing-key", "8:11", "spec.layers[0].ports[0]", "port is missing"},
		{"unknown limit to accept", policyText(7, "flatten: {accept: [refr]}", "layers: [{}]"), "bad-value", "6:22", "spec.flatten.accept[0]", `did you mean "refer"`},
		{"umask", policyText(7, "process: {umask: 0888}", "layers: [{}]"), "bad-value", "6:20", "spec.process.umask", "octal"},
		{"unknown limit", policyText(7, "process: {limits: {nofiles: 1}}", "layers: [{}]"), "bad-value", "6:31", "spec.process.limits.nofiles", `did you mean "nofile"`},
		{"limit that is none", policyText(7, "process: {limits: {nofile: many}}", "layers: [{}]"), "bad-value", "6:30", "spec.process.limits.nofile", "not a number"},
		{"soft above hard", policyText(7, "process: {limits: {nofile: '20:10'}}", "layers: [{}]"), "bad-value", "6:30", "spec.process.limits.nofile", "above the hard limit"},
		{"Smack label", policyText(7, "process: {smackLabel: a/b}", "layers: [{}]"), "bad-value", "6:25", "spec.process.smackLabel", `holds "/"`},
		{"environment name", policyText(7, "process: {environment: {A-B: c}}", "layers: [{}]"), "bad-name", "6:32", "spec.process.environment.A-B", ""},
		{"environment NUL", policyText(7, `process: {environment: {A: "c\0d"}}`, "layers: [{}]"), "bad-value", "6:30", "spec.process.environment.A", "NUL"},
		{"fragment name", layerText(7, "include: [std/base/x]"), "bad-name", "7:17", "spec.layers[0].include[0]", ""},
		{"scope in a fragment", "apiVersion: policyd/v1\nkind: Fragment\nmetadata: {name: a}\nspec: {abi: 7, scope: [signal]}\n", "unknown-key", "4:16", "spec.scope", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := refusedAs(t, c.text)[0]
			if f.GetCode() != c.code || f.GetField() != c.field {
				t.Errorf("got %s at %q, want %s at %q", f.GetCode(), f.GetField(), c.code, c.field)
			}
			if place := fmt.Sprintf("%d:%d", f.GetLine(), f.GetColumn()); place != c.place {
				t.Errorf("got place %s, want %s: %s", place, c.place, FormatFinding(f))
			}
			for says := range strings.SplitSeq(c.says, "|") {
				if !strings.Contains(f.GetMessage(), says) {
					t.Errorf("message %q does not say %q", f.GetMessage(), says)
				}
			}
		})
	}
}

func TestParseReportsEverything(t *testing.T) {
	text := pathText(7, "{alow: [read], at: [usr]}") + "---\na: b: c\n---\n" + pathText(7, "{allow: [raed, bind_tcp], at: [usr, /a/../b]}")
	var got []string
	for _, f := range refusedAs(t, text) {
		got = append(got, fmt.Sprintf("%d %s", f.GetLine(), f.GetCode()))
	}
	want := "8 unknown-key, 10 syntax, 14 duplicate-name, 19 unknown-right, 19 unknown-right, 19 bad-path, 19 bad-path"
	if s := strings.Join(got, ", "); s != want {
		t.Errorf("got  %s\nwant %s", s, want)
	}
}

func TestParseCountsWhatItDoesNotShow(t *testing.T) {
	var b strings.Builder
	for range 1000 {
		b.WriteString("        - {allow: [raed], at: [usr]}\n")
	}
	_, err := Parse("web.yaml", []byte(layerText(7, "paths:\n"+b.String())))
	if err == nil || !strings.HasSuffix(err.Error(), "and 1900 more errors") {
		t.Errorf("got %v", err)
	}
}

func TestErrorText(t *testing.T) {
	_, err := Parse("web.yaml", []byte(pathText(7, "{allow: [raed_file], at: [/usr]}")))
	want := `web.yaml:8:20: error: unknown fs right "raed_file"; did you mean "read_file"? [unknown-right] at spec.layers[0].paths[0].allow[0]
    8 |         - {allow: [raed_file], at: [/usr]}
      |                    ^`
	if err == nil || err.Error() != want {
		t.Errorf("got\n%v\nwant\n%s", err, want)
	}
	f := &apiv1.Finding{Code: "x", File: "a\x1b[31m.yaml", Message: "b\x07", Line: 1, Column: 3, Excerpt: "\t\x1b]0;x"}
	if s := FormatFinding(f); strings.ContainsAny(s, "\x1b\x07") {
		t.Errorf("control characters in %q", s)
	}
}

func TestParseTooLarge(t *testing.T) {
	for name, text := range map[string]string{
		"file":      strings.Repeat("#", MaxFileBytes+1),
		"documents": strings.Repeat("---\na: 1\n", MaxDocuments+1),
		"layers":    policyText(7, "layers: ["+strings.Repeat("{},", MaxLayers+1)+"]"),
		"rules":     pathText(7, "{allow: [read], at: ["+strings.Repeat("/a,", MaxRules+1)+"]}"),
		"expansion": policyText(7, "variables: {a: ["+strings.Repeat("/a,", 2000)+"]}", `layers: [{paths: [{allow: [read], at: ["${a}", "${a}${a}${a}", "/x${a}/${a}"]}, {allow: [read], at: ["${a}/x"]}]}]`),
		"labels":    "apiVersion: policyd/v1\nkind: Fragment\nmetadata: {name: a, labels: {" + numbered("k%d: v, ", MaxLabels+1) + "}}\nspec: {abi: 1}\n",
		"members":   policyText(7, "variables: {a: ["+strings.Repeat("/a,", MaxMembers+1)+"]}", "layers: [{}]"),
		"within":    policyText(7, "parameters: [{name: a, within: ["+strings.Repeat("/a,", MaxWithin+1)+"]}]", "layers: [{}]"),
		"variables": policyText(7, "variables: {"+numbered("k%d: v, ", MaxVariables+1)+"}", "layers: [{}]"),
		"includes":  layerText(7, "include: ["+numbered("f%d, ", MaxIncludes+1)+"]"),
	} {
		t.Run(name, func(t *testing.T) {
			text := text
			if name == "expansion" { // two different variables multiply
				text = strings.Replace(text, "variables: {", "variables: {b: ["+strings.Repeat("/b,", 2000)+"], ", 1)
				text = strings.Replace(text, "/x${a}/${a}", "${a}${b}", 1)
			}
			_, err := Parse("web.yaml", []byte(text))
			if !errors.Is(err, errs.ErrTooLarge) || !errors.Is(err, errs.ErrInvalid) {
				t.Errorf("got %.300v", err)
			}
		})
	}
}

func numbered(format string, n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, format, i)
	}
	return strings.TrimSuffix(b.String(), ", ")
}

func TestParseManyRules(t *testing.T) {
	d := mustParse(t, string(manyRules(100_000, 1, false)))
	if n := len(d.Resource.GetLandlockPolicy().GetSpec().GetLayers()[0].GetPaths()); n != 100_000 {
		t.Fatalf("%d rules", n)
	}
	c, err := Compile(d.Resource.GetLandlockPolicy(), CompileOptions{Document: d})
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Profile.Paths) != 100_000 || len(c.Origins) != 100_000 {
		t.Errorf("%d paths, %d origins", len(c.Profile.Paths), len(c.Origins))
	}
}

func TestParseDocuments(t *testing.T) {
	text := "# a licence\n---\n" + pathText(7, "{allow: read, at: /usr}") + "...\n---\n---\n# the second\n" +
		strings.Replace(pathText(7, "{allow: read, at: /usr}"), "name: web", "name: other", 1) + "--- {apiVersion: policyd/v1, kind: Fragment, metadata: {name: f}, spec: {abi: 1}}\n---\n# the end\n"
	docs, err := Parse("web.yaml", []byte("\uFEFF"+text))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	var whole string
	for _, d := range docs {
		got = append(got, fmt.Sprintf("%s %s %d", d.Kind, d.Name, d.FirstLine))
		whole += d.Source
		if first := strings.Split(text, "\n")[d.FirstLine-1]; !strings.HasPrefix(d.Source, first) {
			t.Errorf("%s begins with %q, not %q", d.Name, clip(d.Source), first)
		}
	}
	if s := strings.Join(got, ", "); s != "LandlockPolicy web 1, LandlockPolicy other 12, Fragment f 23" {
		t.Error(s)
	}
	if whole != text {
		t.Errorf("the sources together are not the text:\n%s", whole)
	}
}

func TestParseShortForms(t *testing.T) {
	short := mustParse(t, policyText(7, "variables: {state: /var/lib/web}", "parameters: [{name: state, within: /var}]",
		"layers: [{include: std/base, paths: [{allow: read, at: '${state}'}], ports: [{allow: bind_tcp, port: 443}], scope: signal}]"))
	long := mustParse(t, policyText(7, "variables: {state: [/var/lib/web]}", "parameters: [{name: state, within: [/var]}]",
		"layers: [{include: [std/base], paths: [{allow: [read], at: ['${state}']}], ports: [{allow: [bind_tcp], port: ['443']}], scope: [signal]}]"))
	if a, b := Canonical(short.Resource), Canonical(long.Resource); string(a) != string(b) {
		t.Errorf("\n%s\n%s", a, b)
	}
}

func TestFromResource(t *testing.T) {
	d := mustParse(t, pathText(7, "{allow: read, at: /usr}"))
	again, err := FromResource(d.Resource)
	if err != nil || again.Name != "web" || again.Kind != KindPolicy || again.Source != "" {
		t.Fatalf("%+v, %v", again, err)
	}
	d.Resource.GetLandlockPolicy().Spec.Layers[0].Paths[0].At = []string{"usr"}
	_, err = FromResource(d.Resource)
	var e *Errors
	if !errors.As(err, &e) || e.Findings()[0].GetField() != "spec.layers[0].paths[0].at[0]" || e.Findings()[0].GetLine() != 0 {
		t.Errorf("got %v", err)
	}
	for name, r := range map[string]*apiv1.Resource{
		"nil": nil, "empty": {}, "no policy": {Kind: &apiv1.Resource_LandlockPolicy{}}, "no spec": {Kind: &apiv1.Resource_Fragment{Fragment: &apiv1.Fragment{}}},
	} {
		if _, err := FromResource(r); !errors.Is(err, errs.ErrInvalid) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}
