package decide

import (
	"errors"
	"os"
	"testing"

	"policyd.dev/policyd/enforce/profile"
)

func TestFile(t *testing.T) {
	dir := tree(t)
	if err := os.WriteFile(dir+"/other/orphan", []byte("#!"+dir+"/nowhere\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	const exec = profile.FSExecute | profile.FSReadFile
	p := build(t, []profile.Layer{layer("host", everything, 0), layer("app", exec, 0)}, []rule{
		{0, "/", profile.FSExecute, profile.Fail},
		{0, dir + "/data", read, profile.Fail},
		{0, dir + "/other/hard", read, profile.Fail}, // one inode with secret
		{1, "/", exec, profile.Fail},
		{1, dir + "/none", exec, profile.Skip},
	})
	live := newDecider(t, p, Options{Base: dir + "/other"})
	text := newDecider(t, p, Options{Lexical: true})
	for _, c := range []struct {
		d      *Decider
		path   string
		rights profile.Access
		want   string
	}{
		{live, dir + "/data/deep/file", exec, ""},
		{live, dir + "/data/deep/file", exec | profile.FSWriteFile, "host:write_file"},
		{live, dir + "/alias/deep/file", profile.FSReadFile, ""},
		{live, dir + "/data/link", profile.FSReadFile, ""}, // leads out of data, to secret
		{live, dir + "/other/secret", profile.FSReadFile, ""},
		{live, "secret", profile.FSReadFile, ""},
		{live, dir + "/other/tool", exec, "host:read_file"}, // its interpreter, in data, is another question
		{live, dir + "/other/orphan", exec, "host:read_file"},
		{live, dir + "/other/orphan", profile.FSExecute, ""},
		{live, dir + "/other/missing", exec, "host:read_file"}, // as for a file of that name
		{live, dir + "/data/missing", exec, ""},
		{live, dir + "/data", profile.FSReadDir, ""},
		{live, dir + "/other", profile.FSReadDir, "host:read_dir"},
		{text, dir + "/data/deep/file", exec, ""},
		{text, dir + "/data/../other/secret", exec, "host:read_file"},
		{text, dir + "/data/link", exec, ""},
	} {
		got, err := c.d.File(c.path, c.rights)
		if err != nil || summary(got) != c.want {
			t.Errorf("%s on %s (lexical: %v): %v, %v, want %q", profile.FS.Format(c.rights), c.path, c.d.opt.Lexical, got, err, c.want)
		}
	}
	if _, err := text.File("secret", exec); !errors.Is(err, ErrQuestion) {
		t.Errorf("a relative path without a base: %v", err)
	}
	for _, rights := range []profile.Access{0, 1 << 30, exec | profile.QuietRule} {
		if got, err := live.File(dir+"/data/deep/file", rights); !errors.Is(err, ErrQuestion) {
			t.Errorf("rights %#x: %v, %v", rights, got, err)
		}
	}
	if _, err := live.File("a\x00b", exec); err == nil {
		t.Error("a path with a NUL is no question")
	}
}

// Rules of two layers on two names of one inode: the kernel joins them under layers, and not in the one layer that
// they are flattened into. A rule on the path in each of the layers named is enough.
func TestFileFlattened(t *testing.T) {
	dir := tree(t)
	layers := []profile.Layer{layer("host", read, 0), layer("app", read, 0), layer("other", profile.FSWriteFile, 0)}
	rules := []rule{
		{0, dir + "/other/secret", profile.FSReadFile, profile.Fail},
		{1, dir + "/other/hard", profile.FSReadFile, profile.Fail},
	}
	file := func(flat bool) string {
		t.Helper()
		p := build(t, layers, rules)
		p.Flatten, p.AcceptSharedInode = flat, flat
		d := newDecider(t, p, Options{})
		got, err := d.File(dir+"/other/secret", profile.FSReadFile)
		if err != nil {
			t.Fatal(err)
		}
		if v := ask(t, d, "open "+dir+"/other/secret r"); v.Allowed() != (len(got) == 0) {
			t.Errorf("flattened %v: open is %s, File says %v", flat, v.Verdict, got)
		}
		return summary(got)
	}
	if got := file(false); got != "" {
		t.Errorf("layers: %s", got)
	}
	if got := file(true); got != "host:read_file app:read_file" {
		t.Errorf("flattened: %q", got)
	}
	for l := range 2 {
		rules = append(rules, rule{l, dir + "/other/secret", profile.FSReadFile, profile.Fail})
	}
	if got := file(true); got != "" {
		t.Errorf("flattened, with a rule in each: %s", got)
	}
}
