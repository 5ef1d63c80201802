package policy

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"policyd.dev/policyd/enforce/profile"
	"policyd.dev/policyd/internal/errs"
)

// addSeeds gives the examples, the shipped fragments and texts with unusual forms.
func addSeeds(f *testing.F) {
	for _, pattern := range []string{"../../docs/examples/*.yaml", "../../docs/examples/tests/*.yaml", "std/*.yaml"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			f.Fatal(err)
		}
		for _, file := range files {
			src, err := os.ReadFile(file)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(src)
		}
	}
	for _, text := range []string{
		"", "---\n---\n", "a: b: c", "- a", "%YAML 1.2\n---\n", "? [a]\n: b\n", "{a: &x [1], b: *x}", "a: |\n  b\n  # c\n...\n",
		layerText(11, "handles: {}", "scope: [signal]", "quiet: {scope: all}", "paths: [{allow: [], at: ['/${a}$$'], quiet: true}]"),
		policyText(7, "variables: {a: [/x, /y], b: [z]}", "parameters: [a, {name: c, within: /srv}]", "layers: [{paths: [{allow: 0x5, at: ['${a}/${b}', '${c}']}], ports: [{allow: all, port: [0, 1-65535]}]}]"),
		testText("policy: a@1", "policyFile: [a, b]", "set: {a: '${root}'}", "abi: 1", "lexical: false", "tree: [{dir: ., mode: 0}, {link: a/b, to: /c}, {char: d, device: '1:3'}]", "expect: [{op: stat /, verdict: not_mediated}, {op: \"a'\", verdict: deny, errno: EXDEV, layer: [b], reason: x}]"),
		smackHead + "  variables: {a: [x, y]}\n  labelBudget: 9\n  layers:\n    - rules: |2 # c\n          A B rwx\n\n        A B r w\n      list: [{subject: '#', object: \"*\", access: '-'}, {subject: A, object: B, allow: r, deny: t}]\n    - name: t\n      handles: rwl\n      templates:\n        - {name: n, for: {b: '-z'}, rules: \"${a} $$${b} r\\n\"}\n  settings: {onlycap: [A], unconfined: '', ptrace: 0, doi: 3, cipso: [{label: A, level: 1, categories: [2]}], netlabel: [{address: 10.0.0.0/8, label: B}], ipv6host: [{address: 'fe80::/10', label: -DELETE}]}\n",
		smackHead + "  layers: [{rules: \"A/ B r\\nA B\"}]\n  settings: {clearOnlycap: true, onlycap: []}\n",
		"# a\n---\n# b\nkind: Fragment # c\napiVersion: policyd/v1\n# d\nmetadata: # e\n  # f\n  name: a # g\nspec: # h\n  paths:\n    # i\n    - # j\n      # k\n      at: # l\n        # m\n        - /a # n\n      # o\n      allow: [ # p\n        read # q\n      ]\n    # r\n  abi: 1 # s\n# t\n---\n# u\n",
		"apiVersion: policyd/v1\nkind: Fragment\nmetadata: {name: a, description: \"a\\u2028\\x01\\\\ \\\"\"}\nspec: {abi: 1}\n",
	} {
		f.Add([]byte(text))
	}
}

func FuzzParse(f *testing.F) {
	addSeeds(f)
	f.Fuzz(func(t *testing.T, src []byte) {
		docs, err := Parse("f.yaml", src)
		if err != nil {
			var e *Errors
			if !errors.As(err, &e) || len(e.Findings()) == 0 || docs != nil {
				t.Fatalf("%v, %v", docs, err)
			}
			lines := uint32(bytes.Count(src, []byte("\n")) + 1)
			for _, x := range e.Findings() {
				if x.GetLine() > lines || x.GetCode() == "" || x.GetMessage() == "" || FormatFinding(x) == "" {
					t.Errorf("%d lines, finding %v", lines, x)
				}
			}
			return
		}
		for _, d := range docs {
			// What was read is checked, and survives being written.
			if _, err := FromResource(d.Resource); err != nil {
				t.Fatal(err)
			}
			text, err := ToYAML(d.Resource)
			if err != nil {
				t.Fatal(err)
			}
			again, err := Parse("again.yaml", text)
			if err != nil {
				t.Fatalf("%v\n%s", err, text)
			}
			if a, b := Canonical(d.Resource), Canonical(again[0].Resource); !bytes.Equal(a, b) {
				t.Fatalf("digest changed:\n%s\n%s\n%s", a, b, text)
			}
			for _, x := range Lint(d, nil) {
				if x.GetLine() == 0 {
					t.Errorf("%v", x)
				}
			}
		}
	})
}

func FuzzFormat(f *testing.F) {
	addSeeds(f)
	f.Fuzz(func(t *testing.T, src []byte) {
		out, err := Format(src)
		if err != nil {
			if _, parseErr := parse("", src, true); !errors.Is(err, errs.ErrInvalid) || parseErr == nil && !bytes.ContainsRune(src, '#') {
				t.Fatal(err) // only comments may stand in the way of a correct text
			}
			return
		}
		again, err := Format(out)
		if err != nil || !bytes.Equal(again, out) {
			t.Fatalf("formatted again: %v\n%s\n---- became\n%s", err, out, again)
		}
		before, err := parse("", src, true)
		if err != nil {
			t.Fatal(err)
		}
		after, err := parse("", out, true)
		if err != nil || len(after) != len(before) {
			t.Fatal(err)
		}
		for i := range before {
			if !bytes.Equal(Canonical(before[i].Resource), Canonical(after[i].Resource)) {
				t.Fatalf("meaning changed:\n%s", out)
			}
		}
	})
}

func FuzzCompile(f *testing.F) {
	addSeeds(f)
	f.Fuzz(func(t *testing.T, src []byte) {
		docs, err := Parse("f.yaml", src)
		if err != nil {
			return
		}
		for _, d := range docs {
			p := d.Resource.GetLandlockPolicy()
			if p == nil {
				continue
			}
			given := map[string]string{}
			for _, param := range p.GetSpec().GetParameters() {
				given[param.GetName()] = standIn(param)
			}
			c, err := Compile(p, CompileOptions{Parameters: given, Document: d})
			if err != nil {
				if !errors.Is(err, errs.ErrInvalid) {
					t.Fatal(err)
				}
				continue
			}
			if err := c.Profile.Validate(); err != nil {
				t.Fatal(err)
			}
			if _, err := profile.Decode(c.Profile.Encode()); err != nil {
				t.Fatal(err)
			}
			checkOrigins(t, c)
		}
	})
}

// checkOrigins holds that the origins of a row are just what the row grants.
func checkOrigins(t *testing.T, c *Compiled) {
	type key struct{ table, row, layer int }
	sum := map[key]profile.Access{}
	for _, o := range c.Origins {
		sum[key{int(o.GetTable()), int(o.GetRow()), int(o.GetLayer())}] |= profile.Access(o.GetAccess())
		if o.GetLine() == 0 || o.GetField() == "" {
			t.Fatalf("%v", o)
		}
	}
	check := func(table, row int, masks []profile.Access) {
		for layer, mask := range masks {
			if got := sum[key{table, row, layer}]; got != mask&^profile.QuietRule {
				t.Fatalf("row %d of table %d, layer %d: origins %#x, mask %#x", row, table, layer, got, mask)
			}
		}
	}
	for row, r := range c.Profile.Paths {
		check(1, row, r.Access)
	}
	for row, r := range c.Profile.Ports {
		check(2, row, r.Access)
	}
}
