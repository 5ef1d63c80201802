package policy

import (
	"slices"
	"strings"
	"testing"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
)

func lintText(t *testing.T, text string) string {
	t.Helper()
	var got []string
	d := mustParse(t, text)
	for _, f := range Lint(d, nil) {
		if f.GetSeverity() != apiv1.Finding_SEVERITY_WARNING || f.GetLine() < 6 && d.Kind == KindPolicy || f.GetColumn() == 0 || f.GetExcerpt() == "" {
			t.Errorf("%v", f)
		}
		got = append(got, f.GetCode()+" "+f.GetField())
	}
	return strings.Join(got, "\n")
}

func TestLint(t *testing.T) {
	const exec = "{allow: [execute, read_file], at: [/bin/x]}"
	layers := func(n int) string {
		return "layers: [" + strings.Repeat("{handles: {net: [all]}}, ", n) + "]"
	}
	for _, c := range []struct{ name, text, want string }{
		{"nothing to say", layerText(7, "include: [std/shell]", "paths: [{allow: [read, modify], at: [/tmp/a]}]"), ""},
		{"execute without read", pathText(7, "{allow: [execute], at: [/usr]}"), "execute-without-read spec.layers[0].paths[0].allow"},
		{"execute, read by another rule", layerText(7, "paths: [{allow: [execute], at: [/usr/bin]}, {allow: [read], at: [/usr]}]"), ""},
		{"execute, read by a fragment", layerText(7, "include: [std/base]", "paths: [{allow: [execute], at: [/usr/lib/x]}]"), ""},
		{"execute where read is not handled", layerText(7, "handles: {fs: [execute, refer]}", "paths: [{allow: [execute], at: [/usr]}]"), ""},
		{"nothing more than above", layerText(7, "paths: ["+exec+", {allow: [read, execute], at: [/usr]}, {allow: [read], at: [/usr/share, /srv]}]"), "redundant-rule spec.layers[0].paths[2].at[0]"},
		{"nothing more than two above", layerText(7, "paths: [{allow: [read, execute], at: [/a]}, {allow: [write], at: [/a/b]}, {allow: [read, write], at: [/a/b/c]}]"), "redundant-rule spec.layers[0].paths[2].at[0]"},
		{"the same twice", layerText(7, "paths: ["+exec+", "+exec+"]"), "redundant-rule spec.layers[0].paths[1].at[0]"},
		{"nothing more than a fragment", layerText(7, "include: [std/shell]", "paths: [{allow: [read], at: [/usr/lib/locale]}]"), "redundant-rule spec.layers[0].paths[0].at[0]"},
		{"more than above", layerText(7, "paths: [{allow: [read, execute], at: [/usr]}, {allow: [read, write], at: [/usr/share]}]"), ""},
		{"quiet is more", layerText(10, "quiet: {fs: [read]}", "paths: [{allow: [read, execute], at: [/usr]}, {allow: [read], at: [/usr/share], quiet: true}]"), ""},
		{"file in a writable folder", layerText(7, "paths: ["+exec+", {allow: [modify], at: [/var/lib/x]}, {allow: [read_file], at: [/var/lib/x/token]}]"), "file-in-writable-folder spec.layers[0].paths[2].at[0]"},
		{"file by its name", layerText(7, "paths: ["+exec+", {allow: [modify], at: [/var/lib/x]}, {allow: [read], at: [/var/lib/x/state.db]}]"), "file-in-writable-folder spec.layers[0].paths[2].at[0]"},
		{"folder in a writable folder", layerText(7, "paths: ["+exec+", {allow: [modify], at: [/var/lib/x]}, {allow: [read], at: [/var/lib/x/sub]}]"), ""},
		{
			"proc self", layerText(7, "paths: ["+exec+", {allow: [read], at: [/proc/self/fd, /proc/12, /proc/thread-self, /dev/fd, /dev/stdin, /proc/sys, /proc]}]"),
			"proc-self spec.layers[0].paths[1].at[0]\nredundant-rule spec.layers[0].paths[1].at[0]\nproc-self spec.layers[0].paths[1].at[1]\nredundant-rule spec.layers[0].paths[1].at[1]\n" +
				"proc-self spec.layers[0].paths[1].at[2]\nredundant-rule spec.layers[0].paths[1].at[2]\nproc-self spec.layers[0].paths[1].at[3]\nproc-self spec.layers[0].paths[1].at[4]\nredundant-rule spec.layers[0].paths[1].at[5]",
		},
		{"refer handled and not granted", policyText(7, "layers:", "  - {name: a, include: [std/tmp], paths: ["+exec+"]}", "  - {name: b, paths: ["+exec+"]}"), ""},
		{"refer refused anyway", policyText(7, "layers:", "  - {name: a, paths: ["+exec+"]}", "  - {name: b, handles: {net: [all]}}"), ""},
		{"net layer above refer", policyText(7, "layers:", "  - {name: a, include: [std/tmp], paths: ["+exec+"]}", "  - {name: b, handles: {net: [all]}}"), "implicit-refer spec.layers[1]"},
		{"refer not listed", layerText(7, "handles: {fs: [write, make_reg]}"), "implicit-refer spec.layers[0]"},
		{"net layer alone", layerText(7, "handles: {net: [all]}"), ""},
		{"port 0", layerText(7, "handles: {net: [all]}", "ports: [{allow: [bind_tcp], port: [80, 0, 0-5]}]"), "port-zero spec.layers[0].ports[0].port[1]\nport-zero spec.layers[0].ports[0].port[2]"},
		{"port 0 for datagrams", layerText(10, "handles: {net: [all]}", "ports: [{allow: [bind_udp], port: [0]}]"), ""},
		{"port 0 for all that is done with ports", layerText(10, "handles: {net: [all]}", "ports: [{allow: [all], port: [0, 0-65535]}]"), ""},
		{"port 0 where datagrams are under no rule", layerText(7, "handles: {net: [all]}", "ports: [{allow: [all], port: [0]}, {allow: [bind], port: [0]}]"), "port-zero spec.layers[0].ports[0].port[0]\nport-zero spec.layers[0].ports[1].port[0]"},
		{"port 0 where the layer leaves datagrams alone", layerText(10, "handles: {net: [bind_tcp]}", "ports: [{allow: [all], port: [0]}]"), "port-zero spec.layers[0].ports[0].port[0]"},
		{"port 0 to be quiet about", layerText(10, "handles: {net: [all]}", "quiet: {net: [bind_udp]}", "ports: [{allow: [], port: [0], quiet: true}]"), ""},
		{"17 layers", policyText(7, layers(17)), "too-many-layers spec.layers"},
		{"16 layers", policyText(7, layers(16)), ""},
		{"unused names", policyText(7, "variables: {a: [/x], b: [/y]}", "parameters: [c]", "layers: [{handles: {fs: [execute, refer]}, paths: [{allow: [execute], at: ['${b}']}]}]"), "unused-variable spec.variables.a\nunused-variable spec.parameters[0]"},
		{"parameters without within", policyText(7, "variables: {a: [/x]}", "parameters: [a, b, {name: c, within: [/]}]", "layers: [{include: [std/shell], paths: [{allow: [read], at: ['${a}', '${b}', '${c}']}]}]"), "open-parameter spec.parameters[0]\nopen-parameter spec.parameters[1]"},
		{"a fragment twice", layerText(7, "include: [std/shell, std/tmp, std/shell]"), "repeated-include spec.layers[0].include[2]"},
		{"nothing to execute", layerText(7, "include: [std/tmp]"), "nothing-to-execute spec.layers[0]"},
		{
			"a fragment", "apiVersion: policyd/v1\nkind: Fragment\nmetadata: {name: a}\nspec: {abi: 1, paths: [{allow: [execute], at: [/a]}, {allow: [execute], at: [/a/b]}]}\n",
			"execute-without-read spec.paths[0].allow\nexecute-without-read spec.paths[1].allow\nredundant-rule spec.paths[1].at[0]",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := lintText(t, c.text); got != c.want {
				t.Errorf("got\n%s\nwant\n%s\nof\n%s", got, c.want, c.text)
			}
		})
	}
}

// TestStdFragments holds that the shipped fragments are formatted and without warnings.
func TestStdFragments(t *testing.T) {
	docs := StdFragments()
	for _, name := range []string{"std/base", "std/dns", "std/exec", "std/python", "std/shell", "std/tls", "std/tmp", "std/tty", "std/users"} {
		if !slices.ContainsFunc(docs, func(d *Document) bool { return d.Name == name }) {
			t.Errorf("%s is not there", name)
		}
		if !IsReserved(name) {
			t.Errorf("%s is not reserved", name)
		}
	}
	for _, d := range docs {
		for _, f := range Lint(d, nil) {
			t.Errorf("%s", FormatFinding(f))
		}
		if out, err := Format([]byte(d.Source)); err != nil || string(out) != d.Source {
			t.Errorf("%s is not formatted: %v", d.Name, err)
		}
		for _, r := range d.Resource.GetFragment().GetSpec().GetPaths() {
			if r.GetMissing() != apiv1.MissingPath_MISSING_PATH_SKIP {
				t.Errorf("%s: %v must be there on every machine", d.Name, r.GetAt())
			}
		}
		if d.Resource.GetFragment().GetMetadata().GetDescription() == "" {
			t.Errorf("%s has no description", d.Name)
		}
	}
	if _, err := Std().Fragment("std/nothing"); err == nil {
		t.Error("std/nothing was found")
	}
}
