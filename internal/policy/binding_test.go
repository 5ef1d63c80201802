package policy

import (
	"errors"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/internal/binding"
)

// bindingText is a Binding whose spec has these lines.
func bindingText(lines ...string) string {
	return "apiVersion: policyd/v1\nkind: Binding\nmetadata: {name: web}\nspec:\n  " + strings.Join(lines, "\n  ") + "\n"
}

func TestParseBinding(t *testing.T) {
	text := bindingText("set: {state: /srv}", "policy: web@stable", "match:",
		`  {uid: [0, 1000-1999], image: 'nginx:*', annotation: {policyd.dev/profile: "w*"}, label: {app: web}, unit: nginx.service, namespace: [a, b?], smackLabel: Web}`)
	d := mustParse(t, text)
	m := d.Resource.GetBinding().GetSpec().GetMatch()
	if d.Kind != KindBinding || d.Name != "web" || m.GetAnnotation()["policyd.dev/profile"] != "w*" || len(m.GetUid()) != 2 || m.GetImage()[0] != "nginx:*" {
		t.Errorf("%s %s: %v", d.Kind, d.Name, m)
	}
	out, err := Format([]byte(text))
	if err != nil || strings.Index(string(out), "match:") > strings.Index(string(out), "policy:") || strings.Index(string(out), "annotation:") > strings.Index(string(out), "image:") {
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

// The rules of precedence are the keys of match, in its order, and the name.
func TestBindingKeysAreRules(t *testing.T) {
	fields := (&apiv1.BindingMatch{}).ProtoReflect().Descriptor().Fields()
	rules := binding.Precedence()
	if len(rules) != fields.Len()+1 {
		t.Fatalf("%d rules, %d keys", len(rules), fields.Len())
	}
	for i := range fields.Len() {
		if rules[i] != fields.Get(i).JSONName() {
			t.Errorf("rule %d is %s, the key %s", i, rules[i], fields.Get(i).JSONName())
		}
	}
}

func TestParseBindingRefuses(t *testing.T) {
	ok := "match: {unit: a.service}"
	long := strings.Repeat("x", MaxPatternBytes+1)
	for _, c := range []struct{ name, text, code, place, says string }{
		{"no spec", "apiVersion: policyd/v1\nkind: Binding\nmetadata: {name: web}\n", "missing-key", "1:1", "spec"},
		{"no match", bindingText("policy: web"), "missing-key", "5:3", "match is missing"},
		{"empty match", bindingText("policy: web", "match: {}"), "missing-key", "6:10", "annotation, image, label"},
		{"empty lists", bindingText("policy: web", "match: {image: [], label: {}}"), "missing-key", "6:10", "selects on nothing"},
		{"no policy", bindingText(ok), "missing-key", "5:3", "policy is missing"},
		{"name of the policy", bindingText(ok, "policy: Web"), "bad-name", "6:11", `"Web"`},
		{"nothing behind the @", bindingText(ok, "policy: web@"), "bad-value", "6:11", "behind the @"},
		{"version 0", bindingText(ok, "policy: web@0"), "bad-value", "6:11", "behind the @"},
		{"short digest", bindingText(ok, "policy: web@sha256:abc"), "bad-value", "6:11", "8 to 64"},
		{"unknown key", bindingText("policy: web", "match: {images: a}"), "unknown-key", "6:11", `did you mean "image"`},
		{"repeated key", bindingText("policy: web", "match: {label: {a: b, a: c}}"), "repeated-key", "6:25", "twice"},
		{"a list of keys", bindingText("policy: web", "match: {label: [a]}"), "wrong-type", "6:18", "a mapping"},
		{"empty pattern", bindingText("policy: web", `match: {image: ""}`), "bad-value", "6:18", "is empty"},
		{"empty value", bindingText("policy: web", `match: {annotation: {a: ""}}`), "bad-value", "6:27", "is empty"},
		{"open quoting", bindingText("policy: web", `match: {unit: [a, 'b\']}`), "bad-value", "6:21", "as it is"},
		{"control character", bindingText("policy: web", `match: {namespace: "a\nb"}`), "bad-value", "6:22", "control character"},
		{"long pattern", bindingText("policy: web", "match: {unit: "+long+"}"), "too-large", "6:17", "at most 1024"},
		{"empty key", bindingText("policy: web", `match: {label: {"": b}}`), "bad-name", "6:23", "1 to 1024"},
		{"many values", bindingText("policy: web", "match: {unit: ["+strings.Repeat("a, ", MaxSelections)+"a]}"), "too-large", "6:17", "257"},
		{"uid", bindingText("policy: web", "match: {uid: root}"), "bad-value", "6:16", "no number of a user"},
		{"uid of nobody", bindingText("policy: web", "match: {uid: 4294967295}"), "bad-value", "6:16", "no number of a user"},
		{"uids backwards", bindingText("policy: web", "match: {uid: [1, 9-2]}"), "bad-value", "6:20", "backwards"},
		{"parameter", bindingText(ok, "policy: web", "set: {a-b: /x}"), "bad-name", "7:14", `"a-b"`},
		{"value", bindingText(ok, "policy: web", "set: {a: x}"), "bad-parameter", "7:12", "absolute"},
		{"name", strings.Replace(bindingText(ok, "policy: web"), "name: web", "name: a/b", 1), "bad-name", "3:18", `"a/b"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := Parse("b.yaml", []byte(c.text))
			var e *Errors
			if !errors.As(err, &e) {
				t.Fatalf("got %v", err)
			}
			f := e.Findings()[0]
			if f.GetCode() != c.code || !strings.Contains(f.GetMessage(), c.says) || !strings.HasPrefix(FormatFinding(f), "b.yaml:"+c.place+": ") {
				t.Errorf("got %s, want %s at %s with %q", FormatFinding(f), c.code, c.place, c.says)
			}
		})
	}
}

func TestLintBinding(t *testing.T) {
	for text, warns := range map[string]bool{
		"{image: '*'}":                          true,
		"{image: [a, '**'], uid: 0-4294967294}": true,
		"{image: '*', namespace: a}":            false,
		"{annotation: {a: '*'}}":                false,
		"{uid: 1-4294967294}":                   false,
	} {
		found := Lint(mustParse(t, bindingText("policy: web", "match: "+text)), nil)
		if (len(found) == 1 && found[0].GetCode() == "binds-all" && found[0].GetSeverity() == apiv1.Finding_SEVERITY_WARNING) != warns || len(found) > 1 {
			t.Errorf("%s: %v", text, found)
		}
	}
}
