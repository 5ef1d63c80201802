package exchange

import (
	"strings"
	"unicode/utf8"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/enforce/profile"
)

// sandboxerABI has what the sandboxer restricts; LL_FORCE_LOG needs one more.
const sandboxerABI = 6

// sandboxer reads the variables of the kernel's samples/landlock/sandboxer: NAME=VALUE on lines of their own, or before
// the sandboxer on a command line.
func (r *report) sandboxer(files []File, o Options) []*draft {
	s := newSource(files[0])
	lines, ok := r.words(s)
	if !ok {
		return nil
	}
	values := map[string]word{}
	for _, line := range lines {
		for i, w := range line {
			name, value, ok := strings.Cut(w.text, "=")
			if w.text == "export" && i == 0 {
				continue
			}
			if !ok || !strings.HasPrefix(name, "LL_") {
				if strings.HasPrefix(w.text, "LL_") || i == 0 {
					r.errorf(w.at, codeSyntax, "want LL_NAME=VALUE, not %q", clip(w.text))
				}
				break // the command
			}
			if _, twice := values[name]; twice {
				r.errorf(w.at, codeRepeatedKey, "%s is set twice", clip(name))
				continue
			}
			w.text, w.at.col = value, w.at.col+utf8.RuneCountInString(name)+1
			values[name] = w
			if !sandboxerNames[name] {
				r.errorf(w.at, codeUnknownKey, "unknown variable %s", clip(name))
			}
		}
	}
	return r.sandboxerPolicy(s, values, o)
}

var sandboxerNames = map[string]bool{
	"LL_FS_RO": true, "LL_FS_RW": true, "LL_TCP_BIND": true, "LL_TCP_CONNECT": true, "LL_SCOPED": true, "LL_FORCE_LOG": true,
}

func (r *report) sandboxerPolicy(s *source, values map[string]word, o Options) []*draft {
	l := &draftLayer{name: "sandboxer", fs: profile.Handled(profile.FS, sandboxerABI)}
	for _, name := range []string{"LL_FS_RO", "LL_FS_RW"} {
		if _, ok := values[name]; !ok {
			r.errorf(s.whole(), codeMissingKey, "%s is missing: the sandboxer wants it, empty for no path", name)
		}
	}
	for _, p := range []struct {
		name  string
		allow profile.Access
	}{{"LL_FS_RO", readRights | profile.FSExecute}, {"LL_FS_RW", l.fs}} {
		for _, w := range parts(values[p.name]) {
			if path, ok := r.literal(w.at, w.text, o.Base); ok {
				l.grant(path, p.allow, true)
			}
		}
	}
	for _, p := range []struct {
		name  string
		right profile.Access
	}{{"LL_TCP_BIND", profile.NetBindTCP}, {"LL_TCP_CONNECT", profile.NetConnectTCP}} {
		w, ok := values[p.name]
		if !ok {
			continue
		}
		l.net |= p.right
		for _, w := range parts(w) {
			if port, ok := r.port(w.at, w.text, nil); ok {
				l.grantPort(port, p.right)
			}
		}
	}
	for _, w := range parts(values["LL_SCOPED"]) {
		right := map[string]profile.Access{"a": profile.ScopeAbstractUnixSocket, "s": profile.ScopeSignal}[w.text]
		if right == 0 || l.scope&right != 0 {
			r.errorf(w.at, codeUnknownRight, "scope %q: want a and s, each at most once", clip(w.text))
		}
		l.scope |= right
	}
	d := &draft{name: defaultName, abi: sandboxerABI, layers: []*draftLayer{l}}
	if w, ok := values["LL_FORCE_LOG"]; ok && w.text != "" {
		if w.text != "1" {
			r.errorf(w.at, codeBadValue, "LL_FORCE_LOG is %q: want 1", clip(w.text))
		}
		l.log = &apiv1.Log{NewExecOn: true}
	}
	r.bestEffort(s.whole(), "the sandboxer")
	r.remarkf(s.whole(), "paths that do not exist are skipped (missing: skip), as the sandboxer does with a line on standard error")
	return []*draft{d}
}

// parts splits a value at its colons; an empty value has none.
func parts(w word) []word {
	if w.text == "" {
		return nil
	}
	var out []word
	at := w.at
	for text := range strings.SplitSeq(w.text, ":") {
		out = append(out, word{text, at})
		at.col += utf8.RuneCountInString(text) + 1
	}
	return out
}
