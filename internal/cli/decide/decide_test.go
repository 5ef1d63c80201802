package decide

import (
	"errors"
	"os"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/enforce/profile"
)

func TestLive(t *testing.T) {
	dir := tree(t)
	p := build(t, []profile.Layer{layer("host", everything, profile.NetBindTCP), layer("app", read|profile.FSExecute|profile.FSWriteFile, 0)}, []rule{
		{0, "/", profile.FSExecute, profile.Fail},
		{0, dir + "/alias", read | profile.FSWriteFile | profile.FSTruncate | profile.FSMakeReg, profile.Fail}, // a symbolic link to data
		{0, dir + "/other/hard", read | profile.FSRemoveFile, profile.Fail},                                    // one inode with secret; read_dir does not count on a file
		{0, dir + "/none", read, profile.Skip},
		{1, "/", read | profile.FSExecute, profile.Fail},
	}, profile.PortRow{First: 80, Last: 90, Access: []profile.Access{profile.NetBindTCP, 0}})
	d := newDecider(t, p, Options{Base: dir + "/other"})
	if !slices.Equal(d.Skipped, []string{dir + "/none"}) {
		t.Errorf("skipped %q", d.Skipped)
	}
	for _, c := range []struct{ line, errno, layers string }{
		{"open DIR/data/deep/file r", "", ""},
		{"open DIR/alias/deep/file r", "", ""},
		{"open DIR/alias/../data/./deep//file r", "", ""},
		{"open ../data/deep/file r", "", ""},
		{"open secret r", "", ""},
		{"open DIR/data/deep/file w", "EACCES", "app:write_file"},
		{"open DIR/data/deep/file rw", "EACCES", "app:write_file"},
		{"open DIR/data r", "", ""},
		{"open DIR/other rd", "EACCES", "host:read_dir"},
		{"open DIR/other/secret r", "", ""}, // by its other name
		{"open DIR/data/link r", "", ""},    // a link out of data, to secret
		{"open DIR/data/new w", "EACCES", "app:write_file"},
		{"open DIR/data/new rc", "", ""},
		{"open DIR/data/dangling rc", "EACCES", "host:make_reg"}, // makes other/new
		{"open DIR/other/new wc", "EACCES", "host:make_reg"},
		{"open DIR/other/tool p", "", ""},
		{"open /etc/passwd r", "EACCES", "host:read_file"},
		{"truncate DIR/data/link", "EACCES", "host:truncate"},
		{"truncate DIR/data/deep/file", "", ""},
		{"unlink DIR/other/hard", "EACCES", "host:remove_file"},
		{"mkdir DIR/data/n", "EACCES", "host:make_dir"},
		{"mknod DIR/data/n reg", "", ""},
		{"mknod DIR/data/link reg", "", ""}, // its place, not what it leads to
		{"symlink DIR/data/n", "EACCES", "host:make_sym"},
		{"rmdir DIR/data/deep", "EACCES", "host:remove_dir"},
		{"rename DIR/data/deep/file DIR/data/deep/n", "EACCES", "host:remove_file"},
		{"link DIR/data/deep/file DIR/data/deep/n", "", ""},
		{"link DIR/data/deep/file DIR/data/n", "EXDEV", "host:refer app:refer"},
		{"exec DIR/data/interp", "", ""},
		{"exec DIR/other/tool", "EACCES", "host:read_file"},
		{"bind tcp 80", "", ""},
		{"bind tcp 91", "EACCES", "host:bind_tcp"},
		{"connect tcp 443", "", ""}, // no layer handles it
		{"bind udp 53", "", ""},
		{"signal out", "", ""},
		{"mount", "EPERM", "host: app:"},
		{"stat /etc/shadow", "", ""},
		{"chmod none", "", ""},
	} {
		t.Run(c.line, func(t *testing.T) {
			v := ask(t, d, strings.ReplaceAll(c.line, "DIR", dir))
			if v.Errno != c.errno || summary(v.Layers) != c.layers {
				t.Errorf("%s %s by %q, want %s by %q", v.Verdict, v.Errno, summary(v.Layers), c.errno, c.layers)
			}
		})
	}
	v := ask(t, d, "open "+dir+"/alias/deep/file r")
	if r := v.DecidedBy; len(r) != 2 || r[0].Rule != dir+"/alias" || r[0].File != "p.yaml" || r[0].Line == 0 || r[1].Rule != "/" || r[1].Layer != "app" {
		t.Errorf("granted by %+v", r)
	}
	if l := v.Looks[0]; l.Real != dir+"/data/deep/file" || l.What != "file" {
		t.Errorf("look %+v", l)
	}
	v = ask(t, d, "open "+dir+"/data/new w")
	if r := v.DecidedBy; len(r) != 1 || r[0].Rule != "/" || r[0].Layer != "app" || !slices.Contains(r[0].Rights, "read_file") {
		t.Errorf("denied by %+v", r)
	}
	for line, want := range map[string][]Rule{
		"mount": {
			{Layer: "host", Rights: []string{}, File: "p.yaml", Line: 5, Column: 3, Field: "spec.layers[0]"},
			{Layer: "app", Rights: []string{}, File: "p.yaml", Line: 6, Column: 3, Field: "spec.layers[1]"},
		},
		"bind tcp 79": {{Layer: "host", Rights: []string{}, File: "p.yaml", Line: 5, Column: 3, Field: "spec.layers[0]"}},
		"bind tcp 80": {{Layer: "host", Rights: []string{"bind_tcp"}, Rule: "80-90", File: "p.yaml", Line: 100, Column: 7, Field: "spec.layers[0].paths[0]"}},
	} {
		if got := ask(t, d, line).DecidedBy; !reflect.DeepEqual(got, want) {
			t.Errorf("%s: decided by %+v, want %+v", line, got, want)
		}
	}
}

// Layers have their places with a kernel that lacks one of them too, and only their names without a text.
func TestLayerPlaces(t *testing.T) {
	p := build(t, []profile.Layer{{Name: "scope", Scope: profile.ScopeSignal}, layer("net", 0, profile.NetBindTCP)}, nil)
	p.Degrade = true
	for _, c := range []struct {
		name   string
		abi    int
		places []*apiv1.LayerPlace
		want   Rule
	}{
		{"both layers", 6, layersPlaced(p), Rule{Layer: "net", Rights: []string{}, File: "p.yaml", Line: 6, Column: 3, Field: "spec.layers[1]"}},
		{"one of them", 5, layersPlaced(p), Rule{Layer: "net", Rights: []string{}, File: "p.yaml", Line: 6, Column: 3, Field: "spec.layers[1]"}},
		{"no text", 6, nil, Rule{Layer: "net", Rights: []string{}}},
	} {
		d, err := New(p, nil, Options{ABI: c.abi, Lexical: true, LayerPlaces: c.places})
		if err != nil {
			t.Fatal(err)
		}
		if got := ask(t, d, "bind tcp 80").DecidedBy; !reflect.DeepEqual(got, []Rule{c.want}) {
			t.Errorf("%s: decided by %+v, want %+v", c.name, got, c.want)
		}
	}
	if _, err := New(p, nil, Options{ABI: 6, Lexical: true, LayerPlaces: layersPlaced(p)[:1]}); err == nil {
		t.Error("one place of two layers was taken")
	}
}

func TestLexical(t *testing.T) {
	p := build(t, []profile.Layer{layer("l", everything, 0)}, []rule{
		{0, "/srv", read, profile.Fail},
		{0, "/srv/in", profile.FSMakeReg | profile.FSRemoveFile | profile.FSRefer | profile.FSWriteFile, profile.Fail},
		{0, "/srv/out", profile.FSMakeReg | profile.FSMakeDir | profile.FSRemoveDir | profile.FSRefer, profile.Fail},
		{0, "/dev/tty", profile.FSReadFile | profile.FSIoctlDev, profile.Fail},
		{0, "/run/s", profile.FSResolveUnix, profile.Fail},
	})
	d := newDecider(t, p, Options{Lexical: true, Errata: []int{}})
	for line, want := range map[string]string{
		"open /srv/x r":                 "",
		"open /srv r":                   "", // a directory: there are rules beneath
		"open /dev r":                   "EACCES l:read_dir",
		"open /dev/ r":                  "EACCES l:read_dir",
		"open /srv/ r":                  "",
		"open /srv/x/../../etc/x r":     "EACCES l:read_file",
		"open /srv/in/x w":              "",
		"open /srv/in/x rwt":            "EACCES l:truncate",
		"open /srv/in/x wc":             "",
		"exec /srv/x":                   "EACCES l:execute",
		"rename /srv/in/x /srv/out/x":   "",
		"rename /srv/out/x /srv/in/x":   "EACCES l:remove_file",
		"rename /srv/out/x/ /srv/out/y": "",
		"link /srv/out/x /srv/in/x":     "EXDEV l:write_file", // it would gain that
		"exchange /srv/in/x /srv/out/x": "EACCES l:remove_file",
		"ioctl-dev /dev/tty":            "",
		"ioctl-dev /dev/tty w":          "EACCES l:write_file",
		"connect-unix /run/s":           "",
		"connect-unix /run/t":           "EACCES l:resolve_unix",
		"rmdir /srv/out/x":              "",
		"unlink /srv/out/x":             "EACCES l:remove_file",
	} {
		v := ask(t, d, line)
		if got := strings.TrimSpace(v.Errno + " " + summary(v.Layers)); got != want {
			t.Errorf("%s: %q, want %q", line, got, want)
		}
		if !strings.Contains(codes(v), noteLexical) {
			t.Errorf("%s: notes %s", line, codes(v))
		}
	}
}

// The right to use ioctl(2) is found when the device is opened.
func TestIoctlNamesItsRule(t *testing.T) {
	p := build(t, []profile.Layer{layer("l", everything, 0)}, []rule{{0, "/dev", read, profile.Fail}, {0, "/dev/tty", profile.FSIoctlDev, profile.Fail}})
	v := ask(t, newDecider(t, p, Options{Lexical: true}), "ioctl-dev /dev/tty")
	if r := v.DecidedBy; len(r) != 2 || r[0].Rule != "/dev/tty" || r[0].Rights[0] != "ioctl_dev" || r[1].Rule != "/dev" {
		t.Errorf("%+v", v)
	}
	v = ask(t, newDecider(t, p, Options{Lexical: true}), "ioctl-dev /dev/null")
	if summary(v.Layers) != "l:ioctl_dev" || len(v.DecidedBy) != 1 || v.DecidedBy[0].Rule != "/dev" {
		t.Errorf("%+v", v)
	}
}

func TestExecLooksAtInterpreters(t *testing.T) {
	dir := tree(t)
	p := build(t, []profile.Layer{layer("l", read|profile.FSExecute, 0)}, []rule{{0, dir + "/other", read | profile.FSExecute, profile.Fail}})
	d := newDecider(t, p, Options{})
	v := ask(t, d, "exec "+dir+"/other/tool")
	if v.Verdict != Deny || len(v.Looks) != 2 || v.Looks[1].What != "interpreter" || v.Looks[1].Object != dir+"/data/interp" || len(v.DecidedBy) != 1 || v.DecidedBy[0].Rule != "" {
		t.Errorf("%+v", v)
	}
}

// A right the kernel does not know is not denied by it.
func TestOlderKernel(t *testing.T) {
	p := build(t, []profile.Layer{layer("old", 0, profile.NetBindUDP), layer("l", profile.FSReadFile, profile.NetBindUDP|profile.NetBindTCP)}, nil)
	p.Degrade = true
	d := newDecider(t, p, Options{ABI: 4})
	v := ask(t, d, "bind udp 53")
	if !v.Allowed() || len(d.Lost) == 0 || codes(v) != noteNotEnforced || !strings.Contains(v.Notes[0].Text, "ABI 10") {
		t.Errorf("%+v, lost %v", v, d.Lost)
	}
	if v := ask(t, d, "bind tcp 53"); summary(v.Layers) != "l:bind_tcp" {
		t.Errorf("%+v", v)
	}
	p.Degrade = false
	if _, err := New(p, nil, Options{ABI: 4}); !errors.Is(err, ErrNotEnforceable) || !strings.Contains(err.Error(), "bind_udp") {
		t.Errorf("required, but: %v", err)
	}
	// linux 5.13 moves nothing between directories.
	p = build(t, []profile.Layer{layer("l", profile.FSReadFile|profile.FSMakeReg, 0)}, nil)
	d = newDecider(t, p, Options{ABI: 1, Lexical: true})
	for line, want := range map[string]string{"link /a/x /b/x": "EXDEV l:refer", "link /a/x /a/y": "EACCES l:make_reg"} {
		if v := ask(t, d, line); v.Errno+" "+summary(v.Layers) != want {
			t.Errorf("%s: %s %s, want %s", line, v.Errno, summary(v.Layers), want)
		}
	}
	// It asks for no other right then, and nothing can be gained.
	p = build(t, []profile.Layer{layer("l", profile.FSReadFile|profile.FSMakeReg, 0)}, []rule{{0, "/b", profile.FSReadFile, profile.Fail}})
	v = ask(t, newDecider(t, p, Options{ABI: 1, Lexical: true}), "link /a/x /b/x")
	told := slices.IndexFunc(v.Notes, func(n Note) bool { return n.Code == noteNoRefer })
	if strings.Contains(codes(v), noteGain) || summary(v.Layers) != "l:refer" || len(v.Looks) != 2 || told < 0 || !strings.Contains(v.Notes[told].Text, "ABI 1") {
		t.Errorf("%+v", v)
	}
	for _, l := range v.Looks {
		if !slices.Equal(l.Rights, []string{"refer"}) {
			t.Errorf("%s asks for %v", l.What, l.Rights)
		}
	}
}

// Layers stand in the order of the policy, and rights in that of their table,
// whichever of the kernel's looks met them first.
func TestOrderOfLayers(t *testing.T) {
	const move = profile.FSMakeReg | profile.FSRemoveFile | profile.FSRefer
	p := build(t, []profile.Layer{layer("host", move, 0), layer("app", move, 0)}, []rule{
		{0, "/a", move, profile.Fail},
		{1, "/b", profile.FSRefer, profile.Fail},
	})
	v := ask(t, newDecider(t, p, Options{Lexical: true}), "rename /a/x /b/x")
	if got := summary(v.Layers); got != "host:make_reg,refer app:remove_file,make_reg,refer" {
		t.Errorf("layers %s", got)
	}
	var by []string
	for _, r := range v.DecidedBy {
		by = append(by, r.Layer)
	}
	if !slices.IsSortedFunc(by, func(a, b string) int { return strings.Compare(b, a) }) || !slices.Contains(by, "host") || !slices.Contains(by, "app") {
		t.Errorf("decided by %+v", v.DecidedBy)
	}
}

func TestNothingStarts(t *testing.T) {
	p := build(t, []profile.Layer{layer("l", profile.FSReadFile, 0)}, []rule{{0, "/nonexistent/x", profile.FSReadFile, profile.Fail}, {0, "/nonexistent/y", profile.FSReadFile, profile.Fail}})
	_, err := New(p, nil, Options{ABI: 7})
	if !errors.Is(err, ErrNotEnforceable) || !strings.Contains(err.Error(), "/nonexistent/x") || !strings.Contains(err.Error(), "/nonexistent/y") {
		t.Errorf("%v", err)
	}
	for _, abi := range []int{-1, 0, profile.MaxABI + 1} {
		if _, err := New(p, nil, Options{ABI: abi}); err == nil {
			t.Errorf("ABI %d is taken", abi)
		}
	}
}

// A parameter's path may not lead out of the folder it must lie in.
func TestWithin(t *testing.T) {
	dir := tree(t)
	for path, ok := range map[string]bool{"/data/deep": true, "/data/link": false} {
		b := profile.NewBuilder([]profile.Layer{layer("l", everything, 0)})
		b.AddPath(0, dir+path, read, false, profile.Fail)
		b.KeepWithin(dir+path, len(dir+"/data"))
		p, err := b.Build()
		if err != nil {
			t.Fatal(err)
		}
		_, err = New(p, nil, Options{ABI: profile.MaxABI})
		if (err == nil) != ok || err != nil && (!errors.Is(err, ErrNotEnforceable) || !strings.Contains(err.Error(), "must lie within")) {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// What the kernel refuses before it asks Landlock is no verdict.
func TestNotAsked(t *testing.T) {
	dir := tree(t)
	if err := syscall.Mkfifo(dir+"/fifo", 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("loop", dir+"/loop"); err != nil {
		t.Fatal(err)
	}
	d := newDecider(t, build(t, []profile.Layer{layer("l", profile.FSReadFile, 0)}, nil), Options{})
	for line, is := range map[string]error{
		"open /etc w":                  syscall.EISDIR,
		"open DIR/data/interp rd":      syscall.ENOTDIR,
		"open DIR/data/interp/x r":     syscall.ENOTDIR,
		"open DIR/loop r":              syscall.ELOOP,
		"open relative r":              ErrQuestion,
		"exec /etc":                    syscall.EACCES,
		"exec DIR/fifo":                syscall.EACCES,
		"exec /nonexistent/x":          os.ErrNotExist,
		"truncate /etc":                syscall.EISDIR,
		"truncate DIR/fifo":            syscall.EINVAL,
		"connect-unix DIR/data/interp": syscall.ECONNREFUSED,
		"rename DIR/none DIR/n":        syscall.ENOENT,
		"rename DIR/fifo DIR/none/n":   syscall.ENOENT,
		"exchange DIR/fifo DIR/none":   syscall.ENOENT,
		"rename DIR/fifo /proc/fifo":   syscall.EXDEV,
		"rename / DIR/x":               syscall.EBUSY,
		"rename DIR/data DIR/data/new": syscall.EINVAL,
		"rename DIR/data/deep DIR":     syscall.ENOTEMPTY,
		"exchange DIR/data/deep DIR":   syscall.EINVAL,
		"open DIR rt":                  syscall.EISDIR,
		"mkdir /":                      ErrNotAsked,
	} {
		q, err := ParseLine(strings.ReplaceAll(line, "DIR", dir))
		if err == nil {
			_, err = d.Answer(q)
		}
		if !errors.Is(err, is) {
			t.Errorf("%s: %v, want %v", line, err, is)
		}
	}
	if _, err := d.Answer(Question{}); !errors.Is(err, ErrQuestion) {
		t.Errorf("no question: %v", err)
	}
}

// What this user may not look at is not guessed.
func TestNotSeen(t *testing.T) {
	dir := tree(t)
	if err := os.Chmod(dir+"/other", 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Chmod(dir+"/other", 0o755) })
	if os.Getuid() == 0 { // who may look at everything: not on this thread then
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		if _, err := unix.SetfsuidRetUid(65534); err != nil {
			t.Fatal(err)
		}
		defer func() { _, _ = unix.SetfsuidRetUid(0) }()
	}
	p := build(t, []profile.Layer{layer("l", everything, 0)}, []rule{{0, dir + "/other/secret", read, profile.Skip}})
	if _, err := New(p, nil, Options{ABI: 7}); !errors.Is(err, ErrNotSeen) {
		t.Errorf("a rule: %v", err)
	}
	p = build(t, []profile.Layer{layer("l", everything, 0)}, nil)
	q, err := ParseLine("open " + dir + "/data/link r")
	if err != nil {
		t.Fatal(err)
	}
	if v, err := newDecider(t, p, Options{}).Answer(q); !errors.Is(err, ErrNotSeen) {
		t.Errorf("a question: %+v, %v", v, err)
	}
}

// A decider is shared: run with -race.
func TestConcurrent(t *testing.T) {
	dir := tree(t)
	p := build(t, []profile.Layer{layer("l", everything, profile.NetBindTCP)}, []rule{{0, dir, read, profile.Fail}})
	d := newDecider(t, p, Options{})
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for _, line := range []string{"open DIR/data/link r", "rename DIR/data/interp DIR/other/x", "bind tcp 80", "exec DIR/other/tool", "mount"} {
				q, err := ParseLine(strings.ReplaceAll(line, "DIR", dir))
				if err == nil {
					_, err = d.Explain(q)
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
}

func BenchmarkLexical(b *testing.B) {
	builder := profile.NewBuilder([]profile.Layer{layer("host", everything, 0), layer("app", everything, 0)})
	for _, path := range []string{"/usr", "/etc", "/srv/web", "/srv/web/log"} {
		builder.AddPath(0, path, read, false, profile.Fail)
	}
	builder.AddPath(1, "/", read, false, profile.Fail)
	p, err := builder.Build()
	if err != nil {
		b.Fatal(err)
	}
	d, err := New(p, nil, Options{ABI: profile.MaxABI, Lexical: true})
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		q, err := ParseLine("open /srv/web/log/today/access r")
		if err != nil {
			b.Fatal(err)
		}
		if v, err := d.Answer(q); err != nil || v.Verdict != Allow {
			b.Fatal(v, err)
		}
	}
}
