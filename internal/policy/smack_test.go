package policy

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/internal/errs"
	"policyd.dev/policyd/smack"
)

// smackHead is the first five lines of a SmackPolicy, up to "spec:".
const smackHead = "apiVersion: policyd/v1\nkind: SmackPolicy\nmetadata:\n  name: p\nspec:\n"

func smackDocument(t *testing.T, spec string) *Document {
	t.Helper()
	docs, err := Parse("p.yaml", []byte(smackHead+spec))
	if err != nil {
		t.Fatal(err)
	}
	return docs[0]
}

func compileSmackText(t *testing.T, spec string) *CompiledSmack {
	t.Helper()
	d := smackDocument(t, spec)
	c, err := CompileSmack(d.Resource.GetSmackPolicy(), d)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// rowsOf gives the effective rules as lines.
func rowsOf(c *CompiledSmack) string {
	var b []byte
	for r := range c.Policy.Effective().All() {
		b = r.Append(b)
	}
	return string(b)
}

func TestCompileSmack(t *testing.T) {
	for _, c := range []struct{ name, spec, want string }{
		{"text", "  layers:\n    - rules: |\n        # a comment\n        B A RX\n\n        A\tB  -\n        A C rw\n        A C a w\n", "A B -\nA C ra\nB A rx\n"},
		{"no line feed at the end", "  layers:\n    - rules: A B r\n", "A B r\n"},
		{"list", "  layers:\n    - list:\n        - {subject: \"#x\", object: \"*\", access: t}\n        - {subject: 1, object: \"~\", allow: rw}\n        - {subject: 1, object: \"~\", deny: w}\n        - subject: A\n          object: B\n          access: \"-\"\n", "#x * t\n1 ~ r\nA B -\n"},
		{"text, list, template merge in this order", "  variables: {s: A}\n  layers:\n    - rules: A B r\n      list: [{subject: A, object: B, allow: w}]\n      templates: [{rules: \"${s} B x r\"}]\n", "A B wx\n"},
		{
			"template", "  variables: {app: [mail, web], x: [r]}\n  layers:\n    - templates:\n        - name: apps\n          for: {kind: [data, cache]}\n          rules: |\n            # ${nobody} here\n            App.${app} App.${app}.${kind} rw${x}\n            App.${app} Bus -\n",
			"App.mail App.mail.cache rw\nApp.mail App.mail.data rw\nApp.mail Bus -\nApp.web App.web.cache rw\nApp.web App.web.data rw\nApp.web Bus -\n",
		},
		{"a value that begins with #", "  layers:\n    - templates: [{for: {s: [\"#a\"]}, rules: \"${s} B r\"}]\n", "#a B r\n"},
		{"a value that begins with -", "  layers:\n    - templates: [{for: {s: [\"-a\"]}, rules: \"A${s} B r\"}]\n", "A-a B r\n"},
		{"a dollar", "  layers:\n    - rules: $A B r\n      templates: [{rules: \"$$A C r\"}]\n", "$A B r\n$A C r\n"},
		{"layers", "  layers:\n    - {name: base, rules: \"A B rwx\\nC D rx\\n\"}\n    - {name: ceiling, handles: rwl, rules: \"A B r\\n\"}\n", "A B rx\nC D x\n"},
	} {
		if got := rowsOf(compileSmackText(t, c.spec)); got != c.want {
			t.Errorf("%s: got\n%swant\n%s", c.name, got, c.want)
		}
	}
}

func TestCompileSmackSettings(t *testing.T) {
	c := compileSmackText(t, `  layers: [{rules: A B r}]
  settings:
    cipso: [{label: TS, level: 7, categories: [2, 1]}]
    netlabel:
      - {address: 10.0.0.0/8, label: Net}
      - {address: 127.0.0.1, label: -CIPSO}
    ipv6host:
      - {address: "fe80::/16", label: Link}
      - {address: "2001:db8::/31", label: -DELETE}
    onlycap: [System, _]
    unconfined: ""
    ambient: _
    doi: 3
    direct: 0
    mapped: 251
    ptrace: 0
    logging: 3
    syslog: "*"
    relabelSelf: [User]
`)
	var got []string
	for _, w := range c.Policy.Settings.Writes() {
		got = append(got, w.File+"="+string(w.Data))
	}
	want := []string{
		"doi=3", "direct=0", "mapped=251", "cipso2=TS 7   2   1   2   ", "netlabel=10.0.0.0/8 Net", "netlabel=127.0.0.1/32 -CIPSO",
		"ipv6host=fe80:0:0:0:0:0:0:0/16 Link", "ipv6host=2001:db8:0:0:0:0:0:0/32 -DELETE", "ipv6host=2001:db9:0:0:0:0:0:0/32 -DELETE",
		"ambient=_", "syslog=*", "ptrace=0", "logging=3", "relabel-self=User", "unconfined=-", "onlycap=System _",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	if len(c.Warnings) != 1 || c.Warnings[0].GetCode() != "prefix" || c.Warnings[0].GetLine() != 14 {
		t.Errorf("warnings %v", c.Warnings)
	}
	c = compileSmackText(t, "  layers: [{rules: A B r}]\n  settings: {clearOnlycap: true, onlycap: []}\n")
	if w := c.Policy.Settings.Writes(); len(w) != 1 || w[0].File != "onlycap" || string(w[0].Data) != "-" {
		t.Errorf("got %q", w)
	}
	c = compileSmackText(t, "  layers: [{rules: A B r}]\n")
	if w := c.Policy.Settings.Writes(); len(w) != 0 {
		t.Errorf("nothing is set: %q", w)
	}
}

// TestSmackErrors holds that every bad input is refused with its place. A want is
// LINE:COLUMN CODE and a part of the message; the spec begins in line 6.
func TestSmackErrors(t *testing.T) {
	text := func(lines string) string { return "  layers:\n    - rules: |\n        " + lines + "\n" }
	list := func(rule string) string { return "  layers:\n    - list: [" + rule + "]\n" }
	template := func(line string) string {
		return "  variables: {v: [a, b]}\n  layers:\n    - templates:\n        - rules: |\n            " + line + "\n"
	}
	settings := func(s string) string { return "  layers: [{rules: A B r}]\n  settings: {" + s + "}\n" }
	long := strings.Repeat("L", 256)
	many := make([]string, 1001)
	for i := range many {
		many[i] = fmt.Sprint("v", i)
	}
	for _, c := range []struct {
		spec string
		want []string
	}{
		{text("a/b X r"), []string{`8:10 bad-label '/' (0x2f)`}},
		{text("A a\"b r"), []string{`8:12 bad-label '"' (0x22)`}},
		{text("A a'b r"), []string{`8:12 bad-label ' (0x27)`}},
		{text(`A a\b r`), []string{`8:12 bad-label '\' (0x5c)`}},
		{text("é X r"), []string{`8:9 bad-label byte 0xc3`}},
		{text("éé à r"), []string{`8:9 bad-label byte 0xc3`}},
		{text("-x X r"), []string{`8:9 bad-label options of the kernel`}},
		{text(long + " X r"), []string{`8:9 bad-label 256 bytes`}},
		{text("A B waxbeans"), []string{`8:17 bad-access 'e' (0x65)`}},
		{text("A B 7"), []string{`8:13 bad-access '7' (0x37)`}},
		{text("A B"), []string{`8:12 bad-rule 2 of 3 columns`}},
		{text("A B r w x"), []string{`8:17 bad-rule a fifth column`}},
		{text("A B r # why"), []string{`8:15 bad-rule`}},
		{text("A B\n        r"), []string{`8:12 bad-rule`, `9:10 bad-rule 1 of 3 columns`}},
		{text("A B r\n\n          C/ D r\n        A B z"), []string{`10:12 bad-label`, `11:13 bad-access`}},
		{text("A " + strings.Repeat("B ", 2048)), []string{`8:4104 too-large 4098 bytes`}},
		{"  layers:\n    - rules: \"A B r\\nA/ B r\"\n", []string{`7:14 bad-label line 2 of the text`}},
		{"  layers:\n    - rules: >\n        A B r\n        C D r\n", []string{`7:14 bad-access line 1 of the text`}},
		{list("{subject: A, object: B}"), []string{`7:14 missing-key access`}},
		{list("{object: B, access: r}"), []string{`7:14 missing-key subject`}},
		{list("{subject: A, access: r}"), []string{`7:14 missing-key object`}},
		{list("{subject: A, object: B, access: r, deny: w}"), []string{`7:14 bad-value one or the other`}},
		{list("{subject: A b, object: B, access: r}"), []string{`7:24 bad-label space (0x20)`}},
		{list("{subject: A, object: \"\", access: r}"), []string{`7:14 missing-key object`}},
		{list("{subject: A, object: \"B\\n\", access: r}"), []string{`7:35 bad-label`}},
		{list("{subject: A, object: B, access: q, allow: r}"), []string{`7:14 bad-value`, `7:46 bad-access`}},
		{list("{subject: *, object: B, access: r}"), []string{`7:25 syntax * and & cannot begin`}},
		{"  layers:\n    - list:\n        - subject: A\n          access: -\n", []string{`9:19 syntax needs quotes`}},
		{list("{subject: ~, object: B, access: r}"), []string{`7:24 wrong-type no value`}},
		{list("{subject: A, object: B, right: r}"), []string{`7:38 unknown-key right`}},
		{"  layers: [{list: [{subject: A, object: B, access: [r]}]}]\n", []string{`6:52 wrong-type`}},
		{template("${v} ${w} r"), []string{`10:18 unknown-variable`}},
		{template("${v B r"), []string{`10:13 bad-template not closed`}},
		{template("A $B r"), []string{`10:15 bad-template lone $`}},
		{template("A ${v}/x r"), []string{`10:15 bad-label with v=a`}},
		{template("A B ${v}z"), []string{`10:17 bad-access with v=a`}},
		{template("A B"), []string{`10:16 bad-rule 2 of 3`}},
		{template("A B r # x"), []string{`10:19 bad-rule`}},
		{template("A B r w x"), []string{`10:21 bad-rule a fifth`}},
		{"  layers: [{templates: [{name: A B, rules: \" \"}]}]\n", []string{`6:25 missing-key rules`, `6:32 bad-name`}},
		{"  variables: {v: [a b, a/, a, a], \"9\": [x]}\n  layers: [{templates: [{for: {v: x}, rules: A B r}]}]\n", []string{`6:19 bad-label`, `6:24 bad-label`, `6:31 bad-value twice`, `6:40 bad-name`, `7:35 duplicate-name`}},
		{"  variables: {v: []}\n  layers: [{rules: A B r}]\n", []string{`6:18 bad-value no member`}},
		{
			"  variables: {v: [" + strings.Join(many, ", ") + "]}\n  layers:\n    - templates:\n        - for: {w: [" + strings.Join(many, ", ") + "]}\n          rules: |\n            ${v} ${w} r\n",
			[]string{`11:13 too-large at most 1000000 rules`},
		},
		{"  layers: []\n", []string{`6:3 missing-key at least one`}},
		{"  labelBudget: 5\n", []string{`6:3 missing-key layers`}},
		{"  layers: [{handles: q, rules: A B r}]\n", []string{`6:22 bad-access`}},
		{"  layers: [{handles: \"-\", rules: A B r}]\n", []string{`6:22 handles-nothing`}},
		{"  layers: [{handles: \"\", rules: A B r}]\n", []string{`6:22 handles-nothing leave handles out`}},
		{"  layers: [{handles: rl, rules: A B r}]\n", []string{`6:22 bad-value l without w`}},
		{"  layers: [{handles: r, rules: A B rw}]\n", []string{`6:32 not-handled does not handle w`}},
		{"  layers: [{handles: r, list: [{subject: A, object: B, access: x}]}]\n", []string{`6:32 not-handled`}},
		{"  layers: [{name: a, rules: A B r}, {name: a, rules: A B r}, {name: B}]\n", []string{`6:44 duplicate-name`, `6:69 bad-name`}},
		{settings("onlycap: []"), []string{`7:23 bad-value clearOnlycap`}},
		{settings("onlycap: [-typo, /x, A, A]"), []string{`7:24 bad-label`, `7:31 bad-label`, `7:38 bad-value twice`}},
		{settings("onlycap: [A], clearOnlycap: true"), []string{`7:42 bad-value set and cleared`}},
		{settings("unconfined: a/b"), []string{`7:26 bad-label`}},
		{settings("ambient: \"\""), []string{`7:23 bad-label empty`}},
		{settings("syslog: -"), []string{`7:22 syntax`}},
		{settings("syslog: \"-\""), []string{`7:22 bad-label`}},
		{settings("doi: 0"), []string{`7:19 bad-value`}},
		{settings("doi: 4294967296"), []string{`7:19 wrong-type`}},
		{settings("direct: 256"), []string{`7:22 bad-value`}},
		{settings("mapped: -1"), []string{`7:22 wrong-type`}},
		{settings("ptrace: 3, logging: 4"), []string{`7:22 bad-value`, `7:34 bad-value`}},
		{settings("netlabel: [{address: 300.1.1.1, label: X}]"), []string{`7:25 bad-value 0 to 255`}},
		{settings("netlabel: [{address: 10.0.0.0/33, label: X}]"), []string{`7:25 bad-value mask`}},
		{settings("netlabel: [{address: 10.0.0.1, label: -DELETE}]"), []string{`7:25 bad-value no option`}},
		{settings("netlabel: [{address: \"::1\", label: X}]"), []string{`7:25 bad-value ipv6host`}},
		{settings("netlabel: [{address: 10.0.0.1, label: a/b}, {address: 10.1.0.0/8, label: A}, {address: 10.0.0.0/8, label: A}]"), []string{`7:25 bad-label`, `7:91 bad-value entry already`}},
		{settings("ipv6host: [{address: \"fe80::1/10\", label: X}, {address: \"2000::/3\", label: X}]"), []string{`7:60 bad-value multiple of 16`}},
		{settings("ipv6host: [{address: 10.0.0.1, label: X}]"), []string{`7:25 bad-value netlabel`}},
		{settings("cipso: [{label: TS, level: 256}]"), []string{`7:22 bad-value level 256`}},
		{settings("cipso: [{label: TS, level: 1, categories: [0]}]"), []string{`7:22 bad-value category 0`}},
		{settings("cipso: [{label: TS, level: 1}, {label: TS, level: 2}, {level: 3}]"), []string{`7:45 bad-value twice`, `7:68 bad-label empty`}},
		{settings("relabelSelf: [a/b]"), []string{`7:28 bad-label`}},
		{settings("cipsos: []"), []string{`7:14 unknown-key`}},
	} {
		_, err := Parse("p.yaml", []byte(smackHead+c.spec))
		var e *Errors
		if !errors.As(err, &e) {
			t.Errorf("%s: got %v", clip(c.spec), err)
			continue
		}
		var got []string
		for _, f := range e.Findings() {
			got = append(got, fmt.Sprintf("%d:%d %s %s", f.GetLine(), f.GetColumn(), f.GetCode(), f.GetMessage()))
		}
		ok := len(got) == len(c.want)
		for i := 0; ok && i < len(got); i++ {
			place, rest, _ := strings.Cut(c.want[i], " ")
			code, part, _ := strings.Cut(rest, " ")
			ok = strings.HasPrefix(got[i], place+" "+code+" ") && strings.Contains(got[i], part)
		}
		if !ok {
			t.Errorf("%.200s:\ngot  %q\nwant %q", c.spec, got, c.want)
		}
	}
}

func TestSmackFileErrors(t *testing.T) {
	for text, want := range map[string]string{
		smackHead + "  layers:\n    - rules: \"A \x00 r\"\n":                            "control character 0x00",
		smackHead + "  layers:\n    - rules: |\n        A B\x7f r\n":                    "control character 0x7f",
		smackHead + "  layers:\n    - rules: |\n        A B\xa0 r\n":                    "byte 0xa0 is not UTF-8",
		"apiVersion: policyd/v1\nkind: SmackPolicy\nmetadata: {name: p}\n":              "spec is missing",
		"apiVersion: policyd/v1\nkind: SmackPolicy\nspec: {layers: [{rules: A B r}]}\n": "metadata.name is missing",
		"apiVersion: policyd/v1\nkind: SmackPolice\nmetadata: {name: p}\n":              `did you mean "SmackPolicy"?`,
	} {
		_, err := Parse("p.yaml", []byte(text))
		if !errors.Is(err, errs.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %s", text, err, want)
		}
	}
	// Lines may end in CR LF, and the file may begin with a byte order mark: both are YAML's.
	d, err := Parse("p.yaml", []byte("\ufeff"+strings.ReplaceAll(smackHead+"  layers:\n    - rules: |\n        A B r\n        C D w\n", "\n", "\r\n")))
	if err != nil {
		t.Fatal(err)
	}
	if c, err := CompileSmack(d[0].Resource.GetSmackPolicy(), d[0]); err != nil || rowsOf(c) != "A B r\nC D w\n" {
		t.Errorf("got %v, %v", c, err)
	}
}

// TestSmackWithoutText holds that a message gives the same as its text, with
// fields for places.
func TestSmackWithoutText(t *testing.T) {
	d := smackDocument(t, "  layers:\n    - rules: |\n        A B r\n        A B r\n      list: [{subject: A, object: B, access: r}]\n")
	with, err1 := CompileSmack(d.Resource.GetSmackPolicy(), d)
	without, err2 := CompileSmack(d.Resource.GetSmackPolicy(), nil)
	if err1 != nil || err2 != nil || !bytes.Equal(with.Policy.Encode(), without.Policy.Encode()) {
		t.Fatalf("%v, %v", err1, err2)
	}
	var got []string
	for _, f := range slices.Concat(with.Warnings, without.Warnings) {
		got = append(got, fmt.Sprintf("%d %s %s", f.GetLine(), f.GetField(), f.GetMessage()))
	}
	want := []string{
		"9 spec.layers[0].rules the rule A B r stands at p.yaml:8 already",
		"10 spec.layers[0].list[0] the rule A B r stands at p.yaml:9 already",
		"0 spec.layers[0].rules line 2 of the text: the rule A B r stands at line 1 of spec.layers[0].rules already",
		"0 spec.layers[0].list[0] the rule A B r stands at line 2 of spec.layers[0].rules already",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

func TestSmackOrigins(t *testing.T) {
	c := compileSmackText(t, "  layers:\n    - rules: |\n        # first\n        A B rw\n      list:\n        - {subject: A, object: B, allow: a, deny: w}\n    - name: top\n      templates:\n        - for: {x: [A, C]}\n          rules: |\n            ${x} B r\n")
	want := []SmackOrigin{
		{0, "A B rw", "p.yaml", 9, 9, "spec.layers[0].rules"},
		{0, "A B a w", "p.yaml", 11, 11, "spec.layers[0].list[0]"},
		{1, "A B r", "p.yaml", 16, 13, "spec.layers[1].templates[0].rules"},
	}
	if got := c.Origins("A", "B"); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v", got)
	}
	if got := c.Origins("A", "Z"); got != nil {
		t.Errorf("got %+v", got)
	}
	d := smackDocument(t, "  layers:\n    - rules: |\n        A B rw\n")
	v := &apiv1.Version{Resource: d.Resource, Source: d.Source, SourceName: "x.yaml", SourceLine: 11}
	stored, err := CompileSmackVersion(v)
	if err != nil || stored.Origins("A", "B")[0].Line != 18 || stored.Origins("A", "B")[0].File != "x.yaml" {
		t.Errorf("%v, %+v", err, stored)
	}
	v.Source = ""
	if stored, err = CompileSmackVersion(v); err != nil || stored.Origins("A", "B")[0].Field != "spec.layers[0].rules" {
		t.Errorf("%v, %+v", err, stored)
	}
}

func TestSmackLint(t *testing.T) {
	for _, c := range []struct{ spec, want string }{
		{"  layers:\n    - rules: |\n        A B r\n", ""},
		{"  layers:\n    - rules: |\n        A B r\n        A B w\n", "9 duplicate"},
		{"  layers:\n    - rules: |\n        A B rw w\n", "8 allow-and-deny"},
		{"  layers:\n    - rules: |\n        A B - -\n        A C r\n", ""},
		{"  layers:\n    - rules: |\n        A B r\n        # foo rwx\n", "9 comment"},
		{"  layers:\n    - rules: |\n        * X r\n        X X r\n        X * w\n        X _ rx\n        ^ X r\n        @ X r\n        X _ rl\n", "8 dead,9 dead,10 dead,11 dead,12 dead,13 dead,14 duplicate,14 built-in-label"},
		{"  layers:\n    - rules: |\n        X * rwt\n", "8 partly-dead"},
		{"  layers:\n    - rules: |\n        X _ w\n", "8 built-in-label"},
		{"  layers:\n    - rules: |\n        " + strings.Repeat("A", 255) + " B r\n", "8 long-line"},
		{"  layers:\n    - rules: |\n        Systen A r\n        System A r\n        System B r\n        System C r\n", "8 near-label"},
		{"  labelBudget: 2\n  layers:\n    - rules: |\n        A B r\n        A C r\n", "8 label-budget"},
		{"  variables: {v: [A], w: [B]}\n  layers:\n    - templates:\n        - for: {x: [C], y: [D]}\n          rules: ${v} ${x} r\n", "6 unused-variable,9 unused-variable"},
	} {
		d := smackDocument(t, c.spec)
		var got []string
		for _, f := range Lint(d, nil) {
			if f.GetSeverity() != apiv1.Finding_SEVERITY_WARNING {
				t.Errorf("%v is no warning", f)
			}
			got = append(got, fmt.Sprintf("%d %s", f.GetLine(), f.GetCode()))
		}
		if strings.Join(got, ",") != c.want {
			t.Errorf("%s: got %s, want %s", c.spec, strings.Join(got, ","), c.want)
		}
	}
}

// TestSmackFormat holds that a text of rules stays as it is, in a block of its own.
func TestSmackFormat(t *testing.T) {
	for _, rules := range []string{
		"A B r\n", "A B r\nC D w\n", "A B r\nC D w", "  A B r\nC D w\n", "\n  A B r\n", "\tA B r\nB C r\n", "A B r\n\n\n# x\n\n", "A  B\tr  \n  \nC D w\n",
		"\n\nA B r\n", "# a: b\n- B r\n", "A B r\r\nC D r\r\n", "é\n",
	} {
		res := &apiv1.Resource{Kind: &apiv1.Resource_SmackPolicy{SmackPolicy: &apiv1.SmackPolicy{
			Metadata: &apiv1.Metadata{Name: "p"},
			Spec: &apiv1.SmackSpec{
				Layers: []*apiv1.SmackLayer{
					{Rules: rules, Handles: "rwl"},
					{Name: "t", List: []*apiv1.SmackRule{{Subject: "#", Object: "*", Access: "-"}}, Templates: []*apiv1.SmackTemplate{{Rules: rules, For: map[string]*apiv1.StringList{"v": {Values: []string{"~"}}}}}},
				},
				Settings: &apiv1.SmackSettings{Ptrace: new(uint32), Unconfined: new(string), Cipso: []*apiv1.SmackCipso{{Label: "A", Categories: []uint32{1}}}},
			},
		}}}
		text, err := ToYAML(res)
		if err != nil {
			t.Fatal(err)
		}
		seg := splitFile("", text, &Errors{})
		got := (&decoder{reporter{errors: &Errors{}}}).document(seg[0].load(&Errors{}))
		if ContentDigest(res, nil) != ContentDigest(got, nil) {
			t.Errorf("%q became\n%s", rules, text)
		}
	}
	const spec = `  layers:
    - rules: | # why
        # first
        A B r

          C   D w
    # of the second
    - name: b
      rules: "A B r\nC D w\n"
`
	const want = `  layers:
    - rules: | # why
        # first
        A B r

          C   D w
    # of the second
    - name: b
      rules: |
        A B r
        C D w
`
	got, err := Format([]byte(smackHead + spec))
	if err != nil || string(got) != smackHead+want {
		t.Errorf("%v\n%s", err, got)
	}
}

func TestSmackDeterministic(t *testing.T) {
	spec := "  variables: {a: [x, y, z], b: [p, q]}\n  layers:\n    - templates: [{rules: \"${a} ${b} rw\\n${b} ${a} r\"}]\n    - rules: \"x p r\\ny q rw\\n\"\n"
	want := compileSmackText(t, spec).Policy.Encode()
	for range 5 {
		if got := compileSmackText(t, spec).Policy.Encode(); !bytes.Equal(got, want) {
			t.Fatal("the same policy gave other bytes")
		}
	}
	if p, err := smack.Decode(want); err != nil || p.Name != "p" || len(p.Layers) != 2 || p.Layers[0].Name != "layer-1" {
		t.Errorf("got %v, %v", p, err)
	}
}
