package policy

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v4"
)

// TestSchema holds that the schema accepts what Parse accepts and refuses what an editor should mark.
func TestSchema(t *testing.T) {
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(JSONSchema()))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource(schemaID, doc); err != nil {
		t.Fatal(err)
	}
	schema, err := c.Compile(schemaID)
	if err != nil {
		t.Fatal(err)
	}
	validate := func(text string) error {
		var v any
		if err := yaml.Unmarshal([]byte(text), &v); err != nil {
			return err
		}
		b, err := json.Marshal(v)
		if err != nil {
			return err
		}
		inst, err := jsonschema.UnmarshalJSON(bytes.NewReader(b))
		if err != nil {
			return err
		}
		return schema.Validate(inst)
	}
	var files []string
	for _, pattern := range []string{"../../docs/examples/*.yaml", "../../docs/examples/tests/*.yaml", "../../test/std/tests/*.yaml", "std/*.yaml"} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, found...)
	}
	for _, file := range files {
		src, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		docs, err := parse(file, src, true)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range docs {
			if err := validate(d.Source); err != nil {
				t.Errorf("%s: %v", file, err)
			}
		}
	}
	for name, text := range map[string]string{
		"short forms": policyText(7, "variables: {state: /var/lib/web}", "parameters: [{name: state, within: /var}, x]", "layers: [{include: std/base, paths: [{allow: read, at: '${state}'}, {allow: 0x4, at: /x}], ports: [{allow: bind_tcp, port: 443}], scope: signal}]"),
		"binding":     bindingText("policy: web", "match: {uid: [0, 5-9], image: a, label: {a: b}}", "set: {a: /x}"),
		"process":     policyText(7, "process: {umask: 0027, limits: {nofile: 100, as: unlimited}, environment: {A: 1, B: true, C: 1.5}}", "layers: [{}]"),
	} {
		if err := validate(text); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, text := range map[string]string{
		"no kind":          "apiVersion: policyd/v1\nmetadata: {name: a}\nspec: {abi: 1, layers: [{}]}\n",
		"unknown kind":     strings.Replace(layerText(7, "paths: []"), "LandlockPolicy", "Policy", 1),
		"unknown key":      pathText(7, "{alow: [read], at: [/usr]}"),
		"unknown right":    pathText(7, "{allow: [raed], at: [/usr]}"),
		"right of a kind":  pathText(7, "{allow: [bind_tcp], at: [/usr]}"),
		"abi":              layerText(99, "paths: []"),
		"word":             pathText(7, "{allow: [read], at: [/usr], missing: skp}"),
		"port":             portText(7, "{allow: [bind_tcp], port: [65536]}"),
		"truth value":      pathText(7, "{allow: [read], at: [/usr], quiet: 'yes'}"),
		"layers missing":   policyText(7, "flatten: {}"),
		"verdict":          testText("expect: [{op: stat /, verdict: denied}]"),
		"binding of none":  bindingText("match: {image: a}"),
		"binding's key":    bindingText("policy: web", "match: {images: a}"),
		"no verdict":       testText("expect: [{op: stat /}]"),
		"key of an entry":  testText("tree: [{folder: a}]", "expect: [{op: stat /, verdict: deny}]"),
		"fragment's scope": "apiVersion: policyd/v1\nkind: Fragment\nmetadata: {name: a}\nspec: {abi: 7, scope: [signal]}\n",
	} {
		if err := validate(text); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	if fieldDocs["Layer.handles"] == "" || !bytes.Contains(JSONSchema(), []byte(fieldDocs["Metadata.description"])) {
		t.Error("the comments of the messages are not in the schema")
	}
}
