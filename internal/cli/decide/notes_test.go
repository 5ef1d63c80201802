package decide

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"policyd.dev/policyd/enforce/profile"
)

// Every note appears where its trap is, and not where it is not.
func TestNotes(t *testing.T) {
	dir := tree(t)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.WriteFile(dir+"/other/secretive", []byte("#!"+dir+"/other/secretive\n"), 0o311))
	must(os.Mkdir(dir+"/other/dir", 0o755))
	const modify = profile.FSWriteFile | profile.FSMakeReg | profile.FSRemoveFile | profile.FSRefer
	host := build(t, []profile.Layer{layer("l", everything&^profile.FSResolveUnix, profile.NetBindTCP|profile.NetConnectTCP|profile.NetBindUDP|profile.NetConnectSendUDP)}, []rule{
		{0, dir + "/data", read | modify | profile.FSTruncate | profile.FSExecute, profile.Fail},
		{0, dir + "/data/deep/file", read | modify, profile.Fail},
		{0, dir + "/data/gone", read, profile.Skip},
		{0, dir + "/other/hard", read | profile.FSRemoveFile, profile.Fail},
		{0, dir + "/other/dir", modify &^ profile.FSTruncate, profile.Fail},
	},
		profile.PortRow{First: 80, Last: 80, Access: []profile.Access{profile.NetBindTCP}},
		profile.PortRow{First: 8080, Last: 8080, Access: []profile.Access{profile.NetConnectTCP}})
	live := newDecider(t, host, Options{})
	text := newDecider(t, host, Options{Lexical: true})
	old := *host
	old.Degrade = true
	abi4 := newDecider(t, &old, Options{ABI: 4, Lexical: true})
	unix := newDecider(t, build(t, []profile.Layer{layer("l", everything, 0)}, nil), Options{})
	scope := newDecider(t, build(t, []profile.Layer{{Name: "s", Scope: profile.ScopeSignal}}, nil), Options{})
	stale := build(t, []profile.Layer{layer("l", everything, 0)}, []rule{{0, dir + "/other/tool", read, profile.Fail}, {0, dir + "/data/link", read, profile.Fail}})
	replaced := newDecider(t, stale, Options{})
	must(os.Rename(dir+"/other/tool", dir+"/other/kept"))
	must(os.WriteFile(dir+"/other/tool", nil, 0o644))

	const allow, deny = Allow, Deny
	seen := map[string]bool{}
	for _, c := range []struct {
		d             *Decider
		line, verdict string
		want          string // codes, all of them
	}{
		{live, "open DIR/data/x rc", allow, ""},
		{live, "open DIR/data/x r", allow, noteMissing},
		{live, "open DIR/data/gone/x r", allow, noteMissing + " " + noteSkippedRule},
		{live, "mkdir DIR/data/deep", deny, noteExists},
		{live, "unlink DIR/other/dir", deny, noteFileSystem},
		{live, "open DIR/alias/deep/x rc", allow, noteSymlink},
		{live, "open DIR/alias/interp p", NotMediated, noteOpenPath},
		{replaced, "open DIR/data/link r", allow, noteSymlink},
		{live, "open DIR/data/../other/dir/x rc", deny, noteCreated + " " + noteInherited},
		{live, "open DIR/other/secret r", allow, noteSharedInode},
		{live, "open DIR/data/deep/file r", allow, noteReplaceable},
		{live, "unlink DIR/other/hard", deny, noteFileRights},
		{live, "open DIR/other/dir/x wc", allow, noteNoTruncate},
		{replaced, "open DIR/other/kept r", allow, noteSharedInode},
		{replaced, "open DIR/other/tool r", deny, noteStaleRule + " " + noteInherited},
		{text, "open /x r", deny, noteAssumed + " " + noteLexical + " " + noteInherited},
		{live, "link DIR/other/secret DIR/data/x", deny, noteNoRefer + " " + noteGain},
		{live, "link DIR/data/interp DIR/other/dir/x", allow, ""},
		{live, "rename DIR/other/dir/none DIR/data/x", "", ""},
		{live, "exec DIR/data/interp", allow, noteInterpreter + " " + noteLibraries},
		{live, "connect-unix DIR/data/sock", allow, noteMissing + " " + noteNotHandled},
		{unix, "connect-unix DIR/data/sock", deny, noteMissing + " " + noteOwnSocket},
		{live, "ioctl-dev /dev/null", deny, noteInherited + " " + noteIoctl},
		{live, "ioctl-dev DIR/data/interp", allow, noteNotDevice},
		{live, "bind tcp 80", allow, ""},
		{live, "bind tcp 8080", deny, noteMPTCP + " " + noteListen + " " + noteConnectNotBind},
		{live, "connect tcp 80", deny, noteMPTCP + " " + noteBindNotConnect},
		{live, "bind tcp 0", deny, notePortZero + " " + noteMPTCP + " " + noteListen},
		{live, "send-udp 53", deny, noteUDPAutobind},
		{abi4, "send-udp 53", allow, noteNotEnforced + " " + noteNotEnforced},
		{live, "mount", deny, noteTopology},
		{scope, "mount", allow, noteNotHandled},
		{scope, "signal out", deny, ""},
		{scope, "signal in", allow, ""},
		{scope, "abstract-unix out", allow, noteNotHandled},
		{live, "stat /etc/shadow", NotMediated, noteNotMediated},
		{live, "chmod DIR/data/x", NotMediated, noteNotMediated},
	} {
		q, err := ParseLine(strings.ReplaceAll(c.line, "DIR", dir))
		must(err)
		v, err := c.d.Explain(q)
		if err != nil {
			if c.verdict != "" {
				t.Errorf("%s: %v", c.line, err)
			}
			continue
		}
		consistent(t, v)
		if v.Verdict != c.verdict || codes(v) != c.want {
			t.Errorf("%s: %s with notes %q, want %s with %q\n%v", c.line, v.Verdict, codes(v), c.verdict, c.want, v.Notes)
		}
		for _, n := range v.Notes {
			seen[n.Code] = true
		}
	}

	// What needs a scene of its own.
	more := func(d *Decider, line, verdict string, want ...string) *Answer {
		t.Helper()
		v := ask(t, d, strings.ReplaceAll(line, "DIR", dir))
		for _, code := range want {
			if !strings.Contains(" "+codes(v)+" ", " "+code+" ") {
				t.Errorf("%s: notes %q, want %s among them", line, codes(v), code)
			}
			seen[code] = true
		}
		if v.Verdict != verdict {
			t.Errorf("%s: %s, want %s: %+v", line, v.Verdict, verdict, v)
		}
		return v
	}
	data := newDecider(t, build(t, []profile.Layer{layer("l", read, 0)}, []rule{{0, dir + "/data", read, profile.Fail}}), Options{})
	v := more(data, "open DIR/data/link r", Deny, noteSymlink, noteSymlinkOut)
	if n := v.Notes[len(v.Notes)-2]; n.Code != noteSymlinkOut || !strings.Contains(n.Text, dir+"/other/secret") {
		t.Errorf("the target is not named: %v", v.Notes)
	}
	more(data, "rename DIR/data/interp DIR/other/x", Deny, noteNoRefer)
	moves := profile.FSMakeReg | profile.FSRemoveFile | profile.FSRefer
	gain := build(t, []profile.Layer{layer("one", moves|profile.FSWriteFile, 0), layer("two", moves|profile.FSWriteFile, 0)}, []rule{
		{0, "/a", moves, profile.Fail}, {0, "/b", moves | profile.FSWriteFile, profile.Fail}, {1, "/", moves, profile.Fail},
	})
	v = more(newDecider(t, gain, Options{Lexical: true}), "rename /a/x /b/x", Deny, noteGain)
	if v.Errno != "EXDEV" || summary(v.Layers) != "one:write_file" || len(v.DecidedBy) != 1 || v.DecidedBy[0].Rule != "/b" {
		t.Errorf("%+v", v)
	}
	gain.Flatten, gain.AcceptReferFlatten = true, true
	more(newDecider(t, gain, Options{Lexical: true}), "rename /a/x /b/x", Allow, noteFlattened)
	gain.AcceptReferFlatten = false
	if _, err := New(gain, nil, Options{Lexical: true, ABI: 7}); err == nil || !strings.Contains(err.Error(), "refer") {
		t.Errorf("flattening that weakens moves: %v", err)
	}
	if os.Getuid() != 0 {
		all := newDecider(t, build(t, []profile.Layer{layer("l", read|profile.FSExecute, 0)}, []rule{{0, "/", read | profile.FSExecute, profile.Fail}}), Options{})
		more(all, "exec DIR/other/secretive", Allow, noteInterpreter)
	}
	more(text, "exec DIR/data/interp", Allow, noteInterpreter)
	if err := os.Symlink("../../../../../../../../proc/thread-self/root", dir+"/data/own"); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/proc/self/status", "/dev/../proc/thread-self/comm", "DIR/data/own/etc"} {
		more(data, "open "+path+" r", Deny, noteOwnLink)
	}

	more(data, fmt.Sprintf("open /proc/%d/maps r", os.Getppid()), Deny, noteTraced)

	for _, c := range NoteCodes() {
		if !seen[c.Code] {
			t.Errorf("note %s was never seen", c.Code)
		}
	}
}

// The documentation's table is the code's.
func TestNoteTable(t *testing.T) {
	b, err := os.ReadFile("../../../docs/decisions.md")
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for _, c := range NoteCodes() {
		want = append(want, "| `"+c.Code+"` | "+c.Doc+" |")
	}
	_, table, _ := strings.Cut(string(b), "\n## Notes\n")
	lines := strings.Split(table, "\n")
	lines = slices.DeleteFunc(lines, func(l string) bool { return !regexp.MustCompile("^\\| `[a-z_]+` \\| ").MatchString(l) })
	if got, want := strings.Join(lines, "\n"), strings.Join(want, "\n"); got != want {
		t.Errorf("docs/decisions.md has\n%s\nwant\n%s", got, want)
	}
	for _, u := range Operations() {
		for _, want := range []string{"\n    " + u.String() + "\n", "\n| `" + u.Word + "` | " + u.Help + " |\n"} {
			if !strings.Contains(string(b), want) {
				t.Errorf("docs/decisions.md does not have %q", want)
			}
		}
	}
}
