package policy

import (
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
)

// testText is a PolicyTest whose spec has these lines.
func testText(lines ...string) string {
	return "apiVersion: policyd/v1\nkind: PolicyTest\nmetadata: {name: web}\nspec:\n  " + strings.Join(lines, "\n  ") + "\n"
}

func TestParsePolicyTest(t *testing.T) {
	text := testText("policy: web@stable", "set: {state: '${root}/state'}", "abi: 7",
		"tree: [{dir: /state, mode: 1777}, {file: a/b, content: x, mode: 0600}, {symlink: l, to: '${root}/a'}, {link: h, to: a/b}, {char: zero, device: '1:3'}]",
		"expect:",
		"  - {op: 'open ${root}/a r', verdict: allow, reason: it is there}",
		"  - {op: 'rename /a /b', verdict: deny, errno: EXDEV, layer: host}",
		"  - {op: stat /, verdict: not_mediated}")
	d := mustParse(t, text)
	spec := d.Resource.GetPolicyTest().GetSpec()
	if d.Kind != KindTest || d.Name != "web" || len(spec.GetTree()) != 5 || len(spec.GetExpect()) != 3 ||
		spec.GetExpect()[1].GetLayer()[0] != "host" || spec.GetExpect()[2].GetVerdict() != apiv1.TestVerdict_TEST_VERDICT_NOT_MEDIATED {
		t.Errorf("%s %s: %v", d.Kind, d.Name, spec)
	}
	if got := d.TestLine(1); got != 11 {
		t.Errorf("the second expectation stands in line %d, want 11", got)
	}
	if got := d.TestLine(-1); got != 3 {
		t.Errorf("the name stands in line %d, want 3", got)
	}
	if f := d.TestFinding(1, "op", "bad"); f.GetLine() != 11 || f.GetColumn() != 12 || f.GetField() != "spec.expect[1].op" || f.GetFile() != "web.yaml" {
		t.Errorf("%v", f)
	}
	if f := d.TestFinding(-1, "policy", "bad"); f.GetLine() != 5 || f.GetField() != "spec.policy" {
		t.Errorf("%v", f)
	}

	out, err := Format([]byte(text))
	if err != nil || !strings.Contains(string(out), `- {op: "open ${root}/a r", verdict: allow, reason: it is there}`) {
		t.Errorf("%v\n%s", err, out)
	}
	yaml, err := ToYAML(d.Resource)
	if err != nil {
		t.Fatal(err)
	}
	if again := mustParse(t, string(yaml)); !proto.Equal(again.Resource, d.Resource) {
		t.Errorf("written and read again it is\n%s", yaml)
	}
	if found := Lint(d, nil); len(found) > 0 {
		t.Error(found)
	}
}

func TestParsePolicyTestRefuses(t *testing.T) {
	ok := "expect: [{op: open / r, verdict: allow}]"
	many := func(n int, format string) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, format, i)
		}
		return b.String()
	}
	for _, c := range []struct{ name, text, code, place, says string }{
		{"no spec", "apiVersion: policyd/v1\nkind: PolicyTest\nmetadata: {name: web}\n", "missing-key", "1:1", "spec"},
		{"no expectation", testText("policy: web"), "missing-key", "5:3", "at least one"},
		{"empty list", testText("expect: []"), "missing-key", "5:3", "at least one"},
		{"unknown key", testText("polcy: web", ok), "unknown-key", "5:3", `did you mean "policy"`},
		{"unknown key of an expectation", testText("expect: [{op: a, verdct: allow}]"), "unknown-key", "5:20", `did you mean "verdict"`},
		{"verdict", testText("expect: [{op: a, verdict: denied}]"), "bad-value", "5:29", `did you mean "deny"`},
		{"no verdict", testText("expect: [{op: open / r}]"), "missing-key", "5:12", "allow, deny or not_mediated"},
		{"no op", testText("expect: [{verdict: deny}]"), "missing-key", "5:12", "op is missing"},
		{"op of two lines", testText(`expect: [{op: "a\nb", verdict: deny}]`), "bad-value", "5:17", "one line"},
		{"errno of an allowed", testText("expect: [{op: a, verdict: allow, errno: EACCES}]"), "bad-value", "5:43", "goes with verdict: deny"},
		{"other errno", testText("expect: [{op: a, verdict: deny, errno: ENOENT}]"), "bad-value", "5:42", "does not deny with"},
		{"layer of an allowed", testText("expect: [{op: a, verdict: allow, layer: host}]"), "bad-value", "5:43", "goes with verdict: deny"},
		{"name of a layer", testText("expect: [{op: a, verdict: deny, layer: [a, B]}]"), "bad-name", "5:46", "layer"},
		{"reason", testText(`expect: [{op: a, verdict: deny, reason: "a\tb"}]`), "bad-value", "5:43", "one line"},
		{"root without a tree", testText("expect: [{op: 'open ${root}/a r', verdict: deny}]"), "bad-template", "5:17", "no tree"},
		{"root of a lexical test", testText("lexical: true", "tree: [{dir: a}]", "expect: [{op: 'open ${root}/a r', verdict: deny}]"), "bad-template", "7:17", "begin at /"},
		{"another variable", testText("tree: [{dir: a}]", "expect: [{op: 'open ${rot}/a r', verdict: deny}]"), "bad-template", "6:17", "only ${root}"},
		{"root in set", testText("set: {a: '${root}'}", ok), "bad-template", "5:12", "no tree"},
		{"parameter", testText("set: {a-b: /x}", ok), "bad-name", "5:14", "a-b"},
		{"abi", testText("abi: 99", ok), "bad-abi", "5:8", "1 to 11"},
		{"policy", testText("policy: A/b", ok), "bad-name", "5:11", "policy"},
		{"version", testText("policy: web@", ok), "bad-value", "5:11", "no version"},
		{"version of a file", testText("policy: web@3", "policyFile: web.yaml", ok), "bad-value", "5:11", "no versions"},
		{"file", testText("policyFile: ['']", ok), "bad-path", "5:16", "no name of a file"},
		{"two objects", testText("tree: [{dir: a, file: b}]", ok), "bad-value", "5:10", "one of them"},
		{"no object", testText("tree: [{mode: 0755}]", ok), "bad-value", "5:10", "one of dir"},
		{"out of the tree", testText("tree: [{dir: ../a}]", ok), "bad-value", "5:10", ".."},
		{"the folder as a file", testText("tree: [{file: /}]", ok), "bad-value", "5:10", "cannot be a file"},
		{"twice", testText("tree: [{dir: a}, {file: /a}]", ok), "bad-value", "5:20", "twice"},
		{"content of a folder", testText("tree: [{dir: a, content: x}]", ok), "bad-value", "5:28", "no content"},
		{"link to nothing", testText("tree: [{symlink: a}]", ok), "missing-key", "5:10", "to is missing"},
		{"folder that leads", testText("tree: [{dir: a, to: b}]", ok), "bad-value", "5:23", "leads nowhere"},
		{"mode of a link", testText("tree: [{symlink: a, to: b, mode: 0777}]", ok), "bad-value", "5:36", "no mode"},
		{"mode", testText("tree: [{dir: a, mode: 0999}]", ok), "bad-value", "5:25", "octal"},
		{"device of a file", testText("tree: [{file: a, device: '1:3'}]", ok), "bad-value", "5:28", "number of a device"},
		{"device", testText("tree: [{char: a, device: null:3}]", ok), "bad-value", "5:28", "MAJOR:MINOR"},
		{"too many", testText("expect: [" + many(MaxExpectations+1, "{op: a%d, verdict: deny}, ") + "]"), "too-large", "5:11", "at most"},
		{"too many entries", testText("tree: ["+many(MaxTestEntries+1, "{dir: a%d}, ")+"]", ok), "too-large", "5:9", "at most"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := refusedAs(t, c.text)[0]
			if place := fmt.Sprintf("%d:%d", f.GetLine(), f.GetColumn()); f.GetCode() != c.code || place != c.place || !strings.Contains(f.GetMessage(), c.says) {
				t.Errorf("got %s %s %q; want %s %s %q", place, f.GetCode(), f.GetMessage(), c.place, c.code, c.says)
			}
		})
	}
}
