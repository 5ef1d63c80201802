package policy

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/enforce/profile"
)

// TestRoot stands for the folder of a PolicyTest's tree.
const TestRoot = "${root}"

// testErrnos are what Landlock denies with (hook_file_open, hook_sb_mount, hook_path_rename and others of security/landlock/fs.c).
var testErrnos = []string{"EACCES", "EPERM", "EXDEV"}

// TestObject is what an entry of a tree makes: the key that holds its path ("dir", "file", ...), and the path
// beneath the tree's folder, clean and without a slash before it; "." is the folder itself.
func TestObject(e *apiv1.TestEntry) (kind, path string, err error) {
	for _, o := range []struct{ kind, path string }{
		{"dir", e.GetDir()},
		{"file", e.GetFile()},
		{"symlink", e.GetSymlink()},
		{"fifo", e.GetFifo()},
		{"socket", e.GetSocket()},
		{"char", e.GetChar()},
		{"block", e.GetBlock()},
		{"link", e.GetLink()},
	} {
		switch {
		case o.path == "":
		case kind != "":
			return "", "", fmt.Errorf("%s and %s: an entry is one of them", kind, o.kind)
		default:
			kind, path = o.kind, o.path
		}
	}
	if kind == "" {
		return "", "", fmt.Errorf("an entry is one of dir, file, symlink, fifo, socket, char, block, link")
	}
	path, err = cleanPath("/" + strings.TrimPrefix(path, "/"))
	if path = strings.TrimPrefix(path, "/"); path == "" {
		path = "."
	}
	if err == nil && path == "." && kind != "dir" {
		err = fmt.Errorf("the folder of the tree cannot be a %s", kind)
	}
	return kind, path, err
}

// TestFinding is an error in a PolicyTest that only its reader can see: at a key of its expectation i, or of its spec
// when i is negative.
func (d *Document) TestFinding(i int, key, message string) *apiv1.Finding {
	p := (*place)(nil).key("spec")
	list := p.key("expect")
	at := list.at(i)
	if i < 0 {
		at = p
	}
	here := at.key(key)
	f := d.origin.finding(codeBadValue, &here, message)
	f.Severity = apiv1.Finding_SEVERITY_ERROR
	return f
}

// TestLine is the line of expectation i of a PolicyTest, or of its name when i is negative; 0 when the document has
// no text.
func (d *Document) TestLine(i int) uint32 {
	if d.origin.seg == nil {
		return 0
	}
	p, metadata := (*place)(nil).key("spec"), (*place)(nil).key("metadata")
	list := p.key("expect")
	at := list.at(i)
	if i < 0 {
		at = metadata.key("name")
	}
	return d.origin.finding("", &at, "").GetLine()
}

// test checks the body of a PolicyTest. The words of operations are for whoever performs them.
func (r *reporter) test(spec *apiv1.PolicyTestSpec) {
	p := (*place)(nil).key("spec")
	if spec == nil {
		r.addf(codeMissingKey, nil, "spec is missing")
		return
	}
	r.testPolicy(spec, &p)
	if spec.GetAbi() > profile.MaxABI {
		at := p.key("abi")
		r.addf(codeBadABI, &at, "abi %d is not known; this policyd knows 1 to %d", spec.GetAbi(), profile.MaxABI)
	}
	tree := p.key("tree")
	if n := len(spec.GetTree()); n > MaxTestEntries {
		r.addf(codeTooLarge, &tree, "%d entries, at most %d", n, MaxTestEntries)
		return
	}
	seen := map[string]bool{}
	for i, e := range spec.GetTree() {
		at := tree.at(i)
		r.testEntry(e, seen, &at)
	}
	expect := p.key("expect")
	switch n := len(spec.GetExpect()); {
	case n == 0:
		r.addf(codeMissingKey, &p, "expect is missing: at least one")
	case n > MaxExpectations:
		r.addf(codeTooLarge, &expect, "%d expectations, at most %d", n, MaxExpectations)
		return
	}
	for i, e := range spec.GetExpect() {
		at := expect.at(i)
		r.expectation(e, spec, &at)
	}
}

// testPolicy checks which policy is tested, and with what.
func (r *reporter) testPolicy(spec *apiv1.PolicyTestSpec, p *place) {
	at := p.key("policy")
	name, selector, selected := strings.Cut(spec.GetPolicy(), "@")
	switch {
	case spec.GetPolicy() != "" && !isName(name):
		r.addf(codeBadName, &at, "policy %q: %s; a version may follow: web@3, web@stable, web@sha256:...", clip(spec.GetPolicy()), nameRule)
	case selected && selector == "":
		r.addf(codeBadValue, &at, "policy %q: no version behind the @", clip(spec.GetPolicy()))
	case selected && len(spec.GetPolicyFile()) > 0:
		r.addf(codeBadValue, &at, "policy %q: files have no versions", clip(spec.GetPolicy()))
	}
	files := p.key("policyFile")
	for i, f := range spec.GetPolicyFile() {
		if f == "" || strings.ContainsFunc(f, unicode.IsControl) || len(f) > MaxPathBytes {
			here := files.at(i)
			r.addf(codeBadPath, &here, "%q is no name of a file", clip(f))
		}
	}
	set := p.key("set")
	if n := len(spec.GetSet()); n > MaxVariables {
		r.addf(codeTooLarge, &set, "%d values, at most %d", n, MaxVariables)
		return
	}
	for _, k := range slices.Sorted(maps.Keys(spec.GetSet())) {
		here := set.key(k)
		if !isVariableName(k) {
			r.addf(codeBadName, &here, "parameter %q: a name is letters, digits and _, and begins with no digit", clip(k))
		}
		r.testText(spec.GetSet()[k], spec, &here)
	}
}

// testText checks the use of ${root} in a text.
func (r *reporter) testText(s string, spec *apiv1.PolicyTestSpec, p *place) {
	if rest := strings.ReplaceAll(s, TestRoot, ""); strings.Contains(rest, "${") {
		r.addf(codeBadTemplate, p, "only %s is known here", TestRoot)
	}
	switch {
	case !strings.Contains(s, TestRoot):
	case spec.GetLexical():
		r.addf(codeBadTemplate, p, "a lexical test has no %s: its paths begin at /", TestRoot)
	case len(spec.GetTree()) == 0:
		r.addf(codeBadTemplate, p, "%s is the folder of tree, and there is no tree", TestRoot)
	}
}

var deviceNumber = regexp.MustCompile(`^[0-9]{1,4}:[0-9]{1,7}$`)

func (r *reporter) testEntry(e *apiv1.TestEntry, seen map[string]bool, p *place) {
	kind, path, err := TestObject(e)
	if err != nil {
		r.addf(codeBadValue, p, "%v", err)
		return
	}
	if seen[path] {
		r.addf(codeBadValue, p, "%s is in the tree twice", path)
	}
	seen[path] = true
	wrong := func(key, format string, args ...any) {
		here := p.key(key)
		r.addf(codeBadValue, &here, format, args...)
	}
	leads := kind == "symlink" || kind == "link"
	switch {
	case e.GetContent() != "" && kind != "file":
		wrong("content", "a %s has no content", kind)
	case leads && e.GetTo() == "":
		r.addf(codeMissingKey, p, "to is missing: where the %s leads", kind)
	case e.GetTo() != "" && !leads:
		wrong("to", "a %s leads nowhere", kind)
	case e.GetMode() != "" && leads:
		wrong("mode", "a %s has no mode of its own", kind)
	case e.GetDevice() != "" && kind != "char" && kind != "block":
		wrong("device", "a %s has no number of a device", kind)
	case e.GetDevice() != "" && !deviceNumber.MatchString(e.GetDevice()):
		wrong("device", "device %q is not MAJOR:MINOR", clip(e.GetDevice()))
	}
	if v, err := strconv.ParseUint(e.GetMode(), 8, 16); e.GetMode() != "" && (err != nil || v > 0o7777) {
		wrong("mode", "mode %q is not octal, 0000 to 7777", clip(e.GetMode()))
	}
	if strings.IndexByte(e.GetTo(), 0) >= 0 || len(e.GetTo()) > MaxPathBytes {
		wrong("to", "%q is no path", clip(e.GetTo()))
	}
}

func (r *reporter) expectation(e *apiv1.TestExpectation, spec *apiv1.PolicyTestSpec, p *place) {
	op, errno, layers, reason := p.key("op"), p.key("errno"), p.key("layer"), p.key("reason")
	if e.GetOp() == "" {
		r.addf(codeMissingKey, p, "op is missing: an operation, as policyctl check takes it")
	}
	if strings.ContainsFunc(e.GetOp(), unicode.IsControl) {
		r.addf(codeBadValue, &op, "an operation is one line")
	}
	r.testText(e.GetOp(), spec, &op)
	denied := e.GetVerdict() == apiv1.TestVerdict_TEST_VERDICT_DENY
	if e.GetVerdict() == apiv1.TestVerdict_TEST_VERDICT_UNSPECIFIED {
		r.addf(codeMissingKey, p, "verdict is missing: allow, deny or not_mediated")
	}
	switch s := e.GetErrno(); {
	case s == "":
	case !denied:
		r.addf(codeBadValue, &errno, "errno goes with verdict: deny")
	case !slices.Contains(testErrnos, s):
		r.addf(codeBadValue, &errno, "Landlock does not deny with %q%s", clip(s), suggest(s, testErrnos))
	}
	for i, name := range e.GetLayer() {
		here := layers.at(i)
		if !denied {
			r.addf(codeBadValue, &layers, "layer goes with verdict: deny")
			break
		}
		if !isName(name) {
			r.addf(codeBadName, &here, "layer %q: %s", clip(name), nameRule)
		}
	}
	if s := e.GetReason(); len(s) > MaxDescription || strings.ContainsFunc(s, unicode.IsControl) {
		r.addf(codeBadValue, &reason, "a reason is one line of at most %d bytes", MaxDescription)
	}
}
