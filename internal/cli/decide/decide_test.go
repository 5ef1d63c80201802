package decide

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/enforce/profile"
)

// tree makes a folder with a file, a script, links, and gives its real path.
func tree(t *testing.T) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.MkdirAll(dir+"/data/deep", 0o755))
	must(os.MkdirAll(dir+"/other", 0o755))
	must(os.WriteFile(dir+"/data/deep/file", []byte("x"), 0o644))
	must(os.WriteFile(dir+"/other/secret", []byte("x"), 0o644))
	must(os.WriteFile(dir+"/other/tool", []byte("#! "+dir+"/data/interp -x\n"), 0o755))
	must(os.WriteFile(dir+"/data/interp", []byte("plain"), 0o755))
	must(os.Symlink(dir+"/other/secret", dir+"/data/link"))
	must(os.Symlink("data", dir+"/alias"))
	must(os.Link(dir+"/other/secret", dir+"/other/hard"))
	return dir
}

type rule struct {
	layer  int
	path   string
	access profile.Access
	skip   profile.Missing
}

func build(t *testing.T, layers []profile.Layer, rules []rule, ports ...profile.PortRow) *profile.Profile {
	t.Helper()
	b := profile.NewBuilder(layers)
	for _, r := range rules {
		b.AddPath(r.layer, r.path, r.access, false, r.skip)
	}
	for _, p := range ports {
		for l, a := range p.Access {
			if a != 0 {
				b.AddPorts(l, p.First, p.Last, a, false)
			}
		}
	}
	p, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	p.ABI = 10
	return p
}

const read = profile.FSReadFile | profile.FSReadDir

func layer(name string, fs, net profile.Access) profile.Layer {
	return profile.Layer{Name: name, FS: fs, Net: net}
}

func ask(t *testing.T, d *Decider, words ...string) *Verdict {
	t.Helper()
	q, err := Parse(words)
	if err != nil {
		t.Fatal(err)
	}
	v, err := q(d)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func TestVerdicts(t *testing.T) {
	dir := tree(t)
	all := profile.Handled(profile.FS, 10)
	p := build(t, []profile.Layer{layer("host", all, profile.NetBindTCP), layer("app", read|profile.FSExecute|profile.FSWriteFile, 0)}, []rule{
		{0, "/", profile.FSExecute, profile.Fail},
		{0, dir + "/alias", read | profile.FSWriteFile, profile.Fail}, // a symbolic link to data
		{0, dir + "/other/hard", read, profile.Fail},                  // one inode with secret; read_dir does not count on a file
		{0, dir + "/none", read, profile.Skip},
		{1, "/", read | profile.FSExecute, profile.Fail},
	}, profile.PortRow{First: 80, Last: 90, Access: []profile.Access{profile.NetBindTCP, 0}})
	var origins []*apiv1.Origin
	for i, r := range p.Paths {
		for l, a := range r.Access {
			if a != 0 {
				origins = append(origins, &apiv1.Origin{Table: apiv1.Origin_TABLE_PATHS, Row: uint32(i), Layer: uint32(l), Access: uint32(a), File: "p.yaml", Line: uint32(10 + i), Field: r.Path})
			}
		}
	}
	d, err := New(p, origins, 10)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(d.Skipped, []string{dir + "/none"}) {
		t.Errorf("skipped %q", d.Skipped)
	}
	for _, c := range []struct {
		words  string
		denied string // "layer: rights, ..." of the last check; "" is allowed
	}{
		{"open DIR/data/deep/file r", ""},
		{"open DIR/alias/deep/file r", ""},
		{"open DIR/data/deep/file w", "app: write_file"},
		{"open DIR/data/deep/file rw", "app: write_file"},
		{"open DIR/data r", ""},
		{"open DIR/other r", "host: read_dir"},
		{"open DIR/other/secret r", ""}, // by its other name
		{"open DIR/data/link r", ""},    // a link out of data, to secret
		{"open DIR/data/new w", "app: write_file"},
		{"open /etc/passwd r", "host: read_file"},
		{"exec DIR/data/interp", ""},
		{"exec DIR/other/tool", "host: read_file"},
		{"bind tcp 80", ""},
		{"bind tcp 91", "host: bind_tcp"},
		{"connect tcp 443", ""}, // no layer handles it
		{"bind udp 53", ""},
	} {
		words := strings.Fields(strings.ReplaceAll(c.words, "DIR", dir))
		t.Run(c.words, func(t *testing.T) {
			v := ask(t, d, words...)
			last := v.Checks[len(v.Checks)-1]
			var got []string
			for _, x := range last.Denied {
				got = append(got, x.Layer+": "+strings.Join(x.Missing, ","))
			}
			if strings.Join(got, "; ") != c.denied {
				t.Errorf("denied by %q, want %q", got, c.denied)
			}
			if v.Allowed != (c.denied == "") || (v.Errno == "EACCES") != (c.denied != "") {
				t.Errorf("allowed %v, errno %q", v.Allowed, v.Errno)
			}
		})
	}
	v := ask(t, d, "open", dir+"/alias/deep/file", "r")
	c := v.Checks[0]
	if c.Real != dir+"/data/deep/file" || len(c.Granted) != 2 || c.Granted[0].Rule != dir+"/alias" || c.Granted[0].File != "p.yaml" || c.Granted[0].Line == 0 || c.Granted[1].Rule != "/" || c.Granted[1].Layer != "app" {
		t.Errorf("granted %+v", c)
	}
}

func TestExecLooksAtInterpreters(t *testing.T) {
	dir := tree(t)
	p := build(t, []profile.Layer{layer("l", read|profile.FSExecute, 0)}, []rule{{0, dir + "/other", read | profile.FSExecute, profile.Fail}})
	d, err := New(p, nil, 7)
	if err != nil {
		t.Fatal(err)
	}
	v := ask(t, d, "exec", dir+"/other/tool")
	if v.Allowed || len(v.Checks) != 2 || v.Checks[1].What != "interpreter" || v.Checks[1].Object != dir+"/data/interp" {
		t.Errorf("%+v", v)
	}
}

// A right the kernel does not know is not denied by it.
func TestOlderKernel(t *testing.T) {
	p := build(t, []profile.Layer{layer("l", profile.FSReadFile, profile.NetBindUDP|profile.NetBindTCP)}, nil)
	p.Degrade = true
	d, err := New(p, nil, 4)
	if err != nil {
		t.Fatal(err)
	}
	if v := ask(t, d, "bind", "udp", "53"); !v.Allowed || len(d.Lost) == 0 {
		t.Errorf("%+v, lost %v", v, d.Lost)
	}
	if v := ask(t, d, "bind", "tcp", "53"); v.Allowed {
		t.Errorf("%+v", v)
	}
	p.Degrade = false
	if _, err := New(p, nil, 4); !errors.Is(err, ErrNotEnforceable) || !strings.Contains(err.Error(), "bind_udp") {
		t.Errorf("required, but: %v", err)
	}
}

func TestNothingStarts(t *testing.T) {
	p := build(t, []profile.Layer{layer("l", profile.FSReadFile, 0)}, []rule{{0, "/nonexistent/x", profile.FSReadFile, profile.Fail}, {0, "/nonexistent/y", profile.FSReadFile, profile.Fail}})
	_, err := New(p, nil, 7)
	if !errors.Is(err, ErrNotEnforceable) || !strings.Contains(err.Error(), "/nonexistent/x") || !strings.Contains(err.Error(), "/nonexistent/y") {
		t.Errorf("%v", err)
	}
}

func TestBadQuestions(t *testing.T) {
	for _, q := range []string{"", "open", "open /x", "open /x rwx", "open /x r y", "exec", "bind tcp", "bind sctp 5", "bind tcp 65536", "bind tcp -1", "connect udp x", "stat /x"} {
		if _, err := Parse(strings.Fields(q)); !errors.Is(err, ErrQuestion) {
			t.Errorf("%q: %v", q, err)
		}
	}
	d, err := New(build(t, []profile.Layer{layer("l", profile.FSReadFile, 0)}, nil), nil, 7)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		words string
		is    error
	}{{"open /etc w", syscall.EISDIR}, {"exec /etc", syscall.EISDIR}, {"exec /nonexistent/x", os.ErrNotExist}, {"open /nonexistent/x/y r", os.ErrNotExist}} {
		q, err := Parse(strings.Fields(c.words))
		if err == nil {
			_, err = q(d)
		}
		if !errors.Is(err, c.is) {
			t.Errorf("%s: %v", c.words, err)
		}
	}
}
