package policy

import (
	"fmt"
	"strings"
	"testing"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
)

func TestFormat(t *testing.T) {
	in := `# licence

---
# about the kind
kind:   LandlockPolicy
spec:  # the body
    layers:
    # the first
    - paths:  # what it may
      - at: ['/usr',   "/etc"]  # two
        allow:  [ read,execute ]
      # the second rule
      -   {at: /srv, missing: skip, allow: read}
      - {allow: [read_file], at: [/a/long/path/that/goes/on/and/on, /another/long/path/that/goes/on/and/on, /etc/x]}
      name: host
      # last words
    abi: 7
    variables: {b: [x], a: ["${x}", 'it''s', "tab\there", "null", "", "# no comment"]}
metadata: {labels: {}, name: web, description: "yes: really"}
apiVersion: policyd/v1
# the end
---
apiVersion: policyd/v1
kind: Fragment
metadata: {name: f}   # inline
spec: {abi: 1}
`
	want := `# licence

apiVersion: policyd/v1
# about the kind
kind: LandlockPolicy
metadata: {name: web, labels: {}, description: "yes: really"}
spec: # the body
  abi: 7
  variables: {b: [x], a: ["${x}", "it's", "tab\there", "null", "", "# no comment"]}
  layers:
    # the first
    - name: host
      paths: # what it may
        - allow: [read, execute]
          at: [/usr, /etc] # two
        # the second rule
        - {allow: read, at: /srv, missing: skip}
        - allow: [read_file]
          at: [/a/long/path/that/goes/on/and/on, /another/long/path/that/goes/on/and/on, /etc/x]
`
	in = strings.Replace(in, `"", "# no`, `"x", "# no`, 1)
	want = strings.Replace(want, `"", "# no`, `x, "# no`, 1)
	out, err := Format([]byte(in))
	if err != nil {
		t.Fatal(err)
	}
	got := string(out)
	for line := range strings.SplitSeq(strings.TrimSpace(want), "\n") {
		if !strings.Contains(got, line+"\n") {
			t.Errorf("line %q is missing", line)
		}
	}
	for _, c := range []string{"# licence", "# about the kind", "# the body", "# the first", "# what it may", "# two", "# the second rule", "# last words", "# the end", "# inline"} {
		if strings.Count(got, c) != 1 {
			t.Errorf("comment %q stands there %d times", c, strings.Count(got, c))
		}
	}
	if t.Failed() {
		t.Log(got)
	}
	again, err := Format(out)
	if err != nil || string(again) != got {
		t.Errorf("formatted again: %v\n%s", err, again)
	}
	before, err := Parse("", []byte(in))
	if err != nil {
		t.Fatal(err)
	}
	after, err := Parse("", out)
	if err != nil {
		t.Fatal(err)
	}
	for i := range before {
		if ContentDigest(before[i].Resource, nil) != ContentDigest(after[i].Resource, nil) {
			t.Errorf("document %d means something else", i)
		}
	}
}

// TestFormatKeepsComments puts a comment in every place that may hold one.
func TestFormatKeepsComments(t *testing.T) {
	in := `# 01
---
# 02
kind: Fragment # 03
apiVersion: policyd/v1
# 04
metadata: # 05
  # 06
  name: a # 07
  # 08
  labels: {a: b} # 09
# 10
spec: # 11
  # 12
  paths:
    # 13
    - # 14
      at: # 15
        # 16
        - /a # 17
        # 18
        - /b
      # 19
      allow: [
        read, # 21
        # 22
        write # 23
      ]
    # 24
    - {at: /c, allow: read} # 25
    - {at: /d, # 26
       allow: read}
    # 27
  # 20
  # 28
  abi: 3 # 29
  # 30
# 31
`
	out, err := Format([]byte(in))
	if err != nil {
		t.Fatal(err)
	}
	for i := 1; i <= 31; i++ {
		if c := fmt.Sprintf("# %02d\n", i); strings.Count(string(out), c) != 1 {
			t.Errorf("%q stands there %d times", c, strings.Count(string(out), c))
		}
	}
	if t.Failed() {
		t.Logf("\n%s", out)
	}
}

func TestFormatRefuses(t *testing.T) {
	for _, text := range []string{
		"", "a: b: c", pathText(7, "{allow: [x], at: [/]}"),
		pathText(7, "{allow: [ # a comment that the parser does not give\n read], at: [/]}"),
	} {
		if out, err := Format([]byte(text)); err == nil {
			t.Errorf("formatted %q to %q", text, out)
		}
	}
}

func TestToYAML(t *testing.T) {
	text := layerText(11,
		"name: l", "handles: {}", "include: [std/base]", "scope: [signal]",
		"quiet: {scope: [signal]}", "log: {sameExecOff: true}",
		"paths: []")
	text = strings.Replace(text, "  abi: 11\n", "  abi: 11\n  enforcement: degrade\n  variables: {a: [/x, '${y}']}\n  parameters: [p, {name: a, within: [/]}]\n  process: {umask: 0027, limits: {nofile: 10:20}, environment: {A: \"a: b\\nc\"}}\n  flatten: {always: true, accept: [refer]}\n", 1)
	text = strings.Replace(text, ", '${y}'", "", 1)
	d := mustParse(t, text)
	out, err := ToYAML(d.Resource)
	if err != nil {
		t.Fatal(err)
	}
	again := mustParse(t, string(out))
	if ContentDigest(again.Resource, nil) != ContentDigest(d.Resource, nil) {
		t.Errorf("\n%s\n%s\n%s", out, Canonical(d.Resource), Canonical(again.Resource))
	}
	if !strings.HasPrefix(string(out), "apiVersion: policyd/v1\nkind: LandlockPolicy\nmetadata:\n  name: web\nspec:\n  abi: 11\n") {
		t.Errorf("%s", out)
	}
	formatted, err := Format(out)
	if err != nil || string(formatted) != string(out) {
		t.Errorf("what is written is not formatted: %v\n%s\n%s", err, out, formatted)
	}
	if _, err := ToYAML(&apiv1.Resource{}); err == nil {
		t.Error("nothing was written as YAML")
	}
}

func TestCanonical(t *testing.T) {
	d := mustParse(t, "apiVersion: policyd/v1\nkind: Fragment\nmetadata: {labels: {z: a, b: c}, name: f, description: 'a \"ü\" \\'}\nspec: {paths: [{at: \"/\\t\\n<&\\u2028\", allow: execute, missing: skip, quiet: false}], abi: 1}\n")
	want := "{\"fragment\":{\"metadata\":{\"description\":\"a \\\"ü\\\" \\\\\",\"labels\":{\"b\":\"c\",\"z\":\"a\"},\"name\":\"f\"}," +
		"\"spec\":{\"abi\":1,\"paths\":[{\"allow\":[\"execute\"],\"at\":[\"/\\u0009\\u000a<&\u2028\"],\"missing\":2}]}}}"
	if got := string(Canonical(d.Resource)); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	// Made by hand after docs/formats.md; a change would rename every stored version.
	const digest = "sha256:4fe7937f8c32ef9a48ceda43c341ae9c493b914db27f63711531ce79de93202e"
	pins := []*apiv1.Pin{{Name: "b", Digest: "y"}, {Name: "a", Digest: "x"}}
	got := ContentDigest(d.Resource, pins)
	if got != digest || got != ContentDigest(d.Resource, []*apiv1.Pin{pins[1], pins[0]}) {
		t.Error(got)
	}
	request := &apiv1.RunRequest{Request: &apiv1.RunRequest_Signal{Signal: -9}}
	if got := string(Canonical(request)); got != `{"signal":-9}` {
		t.Error(got)
	}
	apply := &apiv1.ApplyRequest{Files: []*apiv1.SourceFile{{Name: "a", Content: []byte{0, 0xff}}}, Expect: &apiv1.Expectation{}, Strict: true}
	if got := string(Canonical(apply)); got != `{"expect":{},"files":[{"content":"AP8=","name":"a"}],"strict":true}` {
		t.Error(got)
	}
	with := mustParse(t, layerText(7, "handles: {}", "scope: [signal]"))
	without := mustParse(t, layerText(7, "scope: [signal]"))
	if ContentDigest(with.Resource, nil) == ContentDigest(without.Resource, nil) {
		t.Error("handles: {} and no handles have one digest and mean two things")
	}
}
