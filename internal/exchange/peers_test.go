package exchange

import (
	"strings"
	"testing"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/enforce/profile"
)

func TestLandrun(t *testing.T) {
	im := read(t, "landrun", Options{Name: "web"}, File{"cmd", []byte(`# a comment
/usr/bin/landrun --rox /usr,/bin --ro=/etc --rw '/srv/a b' --rwx /opt/x \
  --bind-tcp 80,443 --connect-tcp 53 --unix /run/db.sock --env A=b=c --env HOME \
  --log-enable-subprocesses --add-exec -- /usr/bin/nginx --ro /ignored
`)})
	p := compiled(t, im)
	l := p.Layers[0]
	if l.FS != profile.Handled(profile.FS, 9) || l.Net != 3 || l.Scope != 3 || p.Degrade || p.ABI != 9 || l.Log != profile.LogNewExecOn {
		t.Errorf("%+v", p)
	}
	wantPath(t, p, "/usr/x", profile.FSExecute|profile.FSReadFile|profile.FSReadDir, true)
	wantPath(t, p, "/usr/x", profile.FSWriteFile, false)
	wantPath(t, p, "/usr/x", profile.FSRefer, false)
	wantPath(t, p, "/etc/x", profile.FSReadFile, true)
	wantPath(t, p, "/etc/x", profile.FSExecute, false)
	wantPath(t, p, "/srv/a b/x", profile.FSWriteFile|profile.FSMakeReg|profile.FSRefer|profile.FSTruncate|profile.FSIoctlDev, true)
	wantPath(t, p, "/srv/a b/x", profile.FSExecute, false)
	wantPath(t, p, "/opt/x/y", profile.FSExecute|profile.FSWriteFile, true)
	wantPath(t, p, "/run/db.sock", profile.FSResolveUnix, true)
	wantPath(t, p, "/srv/a b/s", profile.FSResolveUnix, false)
	wantPath(t, p, "/usr/bin/nginx", profile.FSExecute, true)
	wantPath(t, p, "/ignored", profile.FSReadFile, false)
	wantPort(t, p, 443, profile.NetBindTCP, true)
	wantPort(t, p, 443, profile.NetConnectTCP, false)
	wantPort(t, p, 53, profile.NetConnectTCP, true)
	if env := im.Policies[0].GetSpec().GetProcess().GetEnvironment(); len(env) != 1 || env["A"] != "b=c" {
		t.Errorf("environment %v", env)
	}
	for _, row := range p.Paths {
		if row.Missing != profile.Fail {
			t.Errorf("%s may be missing", row.Path)
		}
	}
	old := compiled(t, read(t, "landrun", Options{ABI: 5}, File{"c", []byte("landrun --best-effort --ignore-missing --unrestricted-network --rox /usr ls")}))
	if l := old.Layers[0]; l.FS != profile.Handled(profile.FS, 5) || l.Net != 0 || l.Scope != 0 || !old.Degrade || old.Paths[0].Missing != profile.Skip {
		t.Errorf("%+v", old)
	}
	for _, tc := range []struct{ line, want string }{
		{"landrun --unrestricted-network ls", "restricts neither files nor ports"},
		{"landrun --ldd ls", "not granted: name them, or include std/base"},
		{"landrun --add-exec ls", "give its absolute path"},
		{"landrun --unrestricted-filesystem --ro /x --bind-tcp 1 ls", "--ro says nothing"},
		{"landrun --unrestricted-network --bind-tcp 1 --ro / ls", "--bind-tcp says nothing"},
	} {
		if got := remarks(read(t, "landrun", Options{}, File{"c", []byte(tc.line)})); !strings.Contains(got, tc.want) {
			t.Errorf("%s: %s, want %s", tc.line, got, tc.want)
		}
	}
}

func TestSetpriv(t *testing.T) {
	p := compiled(t, read(t, "setpriv", Options{}, File{"c", []byte(
		"setpriv --nnp --reuid 1000 --landlock-access fs:write-file,make-reg --landlock-access=net:bind-tcp " +
			"--landlock-rule path-beneath::/srv --landlock-rule path-beneath:make-reg:/tmp --landlock-rule net-port:bind-tcp:80 sh")}))
	if l := p.Layers[0]; l.FS != profile.FSWriteFile|profile.FSMakeReg || l.Net != profile.NetBindTCP || l.Scope != 0 {
		t.Errorf("%+v", l)
	}
	wantPath(t, p, "/srv/x", profile.FSWriteFile|profile.FSMakeReg, true)
	wantPath(t, p, "/tmp/x", profile.FSMakeReg, true)
	wantPath(t, p, "/tmp/x", profile.FSWriteFile, false)
	wantPath(t, p, "/any", profile.FSReadFile, true)
	wantPort(t, p, 80, profile.NetBindTCP, true)
	wantPort(t, p, 81, profile.NetBindTCP, false)
	p = compiled(t, read(t, "setpriv", Options{ABI: 6}, File{"c", []byte("setpriv --landlock-access fs --landlock-access net: --landlock-access scope ls")}))
	if l := p.Layers[0]; l.FS != profile.Handled(profile.FS, 6) || l.Net != 3 || l.Scope != 3 {
		t.Errorf("%+v", l)
	}
	// As in a bug report on renames: refer is handled though it is not named.
	im := read(t, "setpriv", Options{}, File{"c", []byte("setpriv --landlock-access fs:make-block,make-char cargo build")})
	if d := compiled(t, im).DecidePath("/x", profile.FSRefer); d.Allowed {
		t.Errorf("refer is allowed: %+v", d)
	}
}

func TestNomad(t *testing.T) {
	p := compiled(t, read(t, "nomad", Options{}, File{"n", []byte("# paths\nrx:/bin\n  \"rwc:/srv/data\",\nr:/etc/hosts\n")}))
	if p.Layers[0].FS != profile.Handled(profile.FS, 2) || p.Layers[0].Net != 0 {
		t.Errorf("%+v", p.Layers[0])
	}
	wantPath(t, p, "/bin/sh", profile.FSExecute|profile.FSReadFile|profile.FSReadDir, true)
	wantPath(t, p, "/bin/sh", profile.FSWriteFile, false)
	wantPath(t, p, "/srv/data/x", profile.FSWriteFile|profile.FSMakeReg|profile.FSMakeDir|profile.FSRefer|profile.FSReadDir, true)
	wantPath(t, p, "/srv/data/x", profile.FSRemoveFile, false)
	wantPath(t, p, "/srv/data/x", profile.FSMakeChar, false)
	wantPath(t, p, "/etc/shadow", profile.FSReadFile, false)
	wantPath(t, p, "/etc/shadow", profile.FSTruncate, true) // not handled
}

const podlockText = `apiVersion: podlock.kubewarden.io/v1alpha1
kind: LandlockProfile
metadata:
  name: web
  namespace: default
spec:
  profilesByContainer:
    nginx:
      "/usr/sbin/nginx":
        readExec: [/lib, /lib64]
        readOnly:
          - /usr/share/nginx
        readWrite: [/tmp]
`

func TestPodlock(t *testing.T) {
	im := read(t, "podlock", Options{}, File{"p.yaml", []byte(podlockText)})
	p := compiled(t, im)
	if p.Name != "web" || p.ABI != 3 || p.Layers[0].FS != profile.Handled(profile.FS, 3) || p.Layers[0].Net != 0 {
		t.Errorf("%+v", p)
	}
	wantPath(t, p, "/usr/sbin/nginx", profile.FSExecute|profile.FSReadFile, true)
	wantPath(t, p, "/lib/x", profile.FSExecute|profile.FSReadFile, true)
	wantPath(t, p, "/usr/share/nginx/x", profile.FSReadFile, true)
	wantPath(t, p, "/usr/share/nginx/x", profile.FSExecute, false)
	wantPath(t, p, "/tmp/x", profile.FSWriteFile|profile.FSTruncate|profile.FSMakeSock|profile.FSRefer, true)
	wantPath(t, p, "/tmp/x", profile.FSExecute, false)
	more := podlockText + "      \"/usr/bin/sh\": {readWriteExec: [/tmp]}\n    side:\n      \"/bin/sh\": {}\n      \"/usr/bin/sh\": {}\n"
	var names []string
	for _, p := range read(t, "podlock", Options{}, File{"p.yaml", []byte(more)}).Policies {
		names = append(names, p.GetMetadata().GetName())
	}
	if got := strings.Join(names, " "); got != "web-nginx-nginx web-nginx-sh web-side-sh web-side-sh-2" {
		t.Errorf("names %s", got)
	}
	if _, err := Read("podlock", []File{{"p.yaml", []byte(more)}}, Options{Name: "one"}); err == nil || !strings.Contains(err.Error(), "4 policies come out") {
		t.Errorf("one name for four: %v", err)
	}
}

func TestSandboxer(t *testing.T) {
	p := compiled(t, read(t, "sandboxer", Options{Base: "/srv/base"}, File{"e", []byte(
		"LL_FS_RO=/bin:/lib LL_FS_RW=\"/dev/null:tmp\" LL_TCP_BIND=9418 \\\n LL_TCP_CONNECT='80:443' LL_SCOPED=a LL_FORCE_LOG=1 ./sandboxer bash -i")}))
	if l := p.Layers[0]; l.FS != profile.Handled(profile.FS, 6) || l.Net != 3 || l.Scope != profile.ScopeAbstractUnixSocket || l.Log != profile.LogNewExecOn {
		t.Errorf("%+v", l)
	}
	wantPath(t, p, "/bin/sh", profile.FSExecute|profile.FSReadFile, true)
	wantPath(t, p, "/bin/sh", profile.FSRefer, false)
	wantPath(t, p, "/srv/base/tmp/x", profile.Handled(profile.FS, 6), true)
	wantPort(t, p, 9418, profile.NetBindTCP, true)
	wantPort(t, p, 9418, profile.NetConnectTCP, false)
	wantPort(t, p, 443, profile.NetConnectTCP, true)
	// Not set is not handled, set and empty is an empty list.
	p = compiled(t, read(t, "sandboxer", Options{}, File{"e", []byte("export LL_FS_RO=/\nLL_FS_RW=\nLL_TCP_BIND=\n")}))
	wantPort(t, p, 1, profile.NetBindTCP, false)
	wantPort(t, p, 1, profile.NetConnectTCP, true)
	wantPath(t, p, "/x", profile.FSWriteFile, false)
	if p.Layers[0].Scope != 0 || p.Paths[0].Missing != profile.Skip {
		t.Errorf("%+v", p)
	}
}

func TestIsland(t *testing.T) {
	files := []File{
		{"home/web/profile.toml", []byte("workspace = false\n[[context]]\nwhen_beneath = \"/home/u/p\"\n[[env]]\nname = \"FOO\"\nliteral = \"bar\"\n")},
		{"home/web/landlock/a.toml", []byte(system)},
		{"home/web/landlock/b.toml", []byte(home)},
	}
	im := read(t, "island", Options{}, files...)
	p := compiled(t, im)
	if len(p.Layers) != 1 || p.Name != "web" || im.Policies[0].GetSpec().GetProcess().GetEnvironment()["FOO"] != "bar" {
		t.Errorf("%+v", p)
	}
	wantPath(t, p, "/home/user/bin/x", profile.FSExecute, true)
	if got := remarks(im); !strings.Contains(got, "profile.toml:3:16: warning: island chooses") || strings.Contains(got, "workspace") {
		t.Errorf("%s", got)
	}
	for _, tc := range []struct{ profile, want string }{
		{"workspace = 1", "workspace: want true or false"},
		{"x = 1", `unknown key "x"`},
		{"[[env]]\nname = \"A\"", "env: literal is missing"},
		{"[[env]]\nname = \"A\"\nliteral = \"1\"\n[[env]]\nname = \"A\"\nliteral = \"2\"", "A is set twice"},
		{"[[env]]\nname = \"A=\"\nliteral = \"1\"", "no name of an environment variable"},
	} {
		files[0].Data = []byte(tc.profile)
		if _, err := Read("island", files, Options{}); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v", tc.profile, err)
		}
	}
	if _, err := Read("island", files[1:], Options{}); err == nil {
		t.Error("a profile without profile.toml")
	}
}

func TestPeerErrors(t *testing.T) {
	pod := func(old, with string) string { return strings.Replace(podlockText, old, with, 1) }
	for _, tc := range []struct{ format, text, want string }{
		{"landrun", "landrun --bind-tcp 65536 ls", `c:1:20: error: port "65536" is not a number of 0 to 65535; landrun cuts it to its last 16 bits and grants port 0`},
		{"landrun", "landrun --bind-tcp 70000 ls", `grants port 4464`},
		{"landrun", "landrun --bind-tcp=-1 ls", `c:1:20: error: port "-1" is not a number of 0 to 65535; landrun cuts it to its last 16 bits and grants port 65535`},
		{"landrun", "landrun --bind-tcp 1x ls", `port "1x"`},
		{"landrun", "landrun --bind-tcp 080 ls", `port "080"`},
		{"landrun", "landrun --ro relative ls", `c:1:14: error: path "relative" is relative`},
		{"landrun", "landrun --ro /a,,/b ls", `an empty path`},
		{"landrun", "landrun --ro $HOME ls", `c:1:14: error: a shell acts on $ here`},
		{"landrun", `landrun --ro "$HOME" ls`, `c:1:15: error: a shell acts on $ here`},
		{"landrun", "landrun --ro ~/x ls", `a shell acts on ~`},
		{"landrun", "landrun --ro /x/* ls", `a shell acts on *`},
		{"landrun", "landrun --ro '/x ls", `c:1:14: error: a quote that is not closed`},
		{"landrun", `landrun --ro /x\`, `a backslash at the end`},
		{"landrun", "landrun --ro", `--ro needs a value`},
		{"landrun", "landrun --read /x", `c:1:9: error: unknown option --read`},
		{"landrun", "landrun --best-effort=maybe ls", `--best-effort takes no value`},
		{"landrun", "landrun ls; landrun ls", `a shell acts on ;`},
		{"landrun", "landrun ls\nlandrun ls", `c:2:1: error: a second command line`},
		{"landrun", "firejail ls", `begins with landrun`},
		{"landrun", "# nothing\n", `no command line`},
		{"landrun", "landrun --unrestricted-filesystem --unrestricted-network --unrestricted-scoped ls", `would not be confined at all`},
		{"landrun", "landrun --ro /a\x00b ls", `control character`},
		{"setpriv", "setpriv --nnp ls", `would not be confined at all`},
		{"setpriv", "setpriv --landlock-access fs ls", `c:1:27: error: fs stands for all rights of the running kernel`},
		{"setpriv", "setpriv --landlock-access fs:read ls", `setpriv takes it for read-file`},
		{"setpriv", "setpriv --landlock-access fs:read_file ls", `unknown fs right "read_file"`},
		{"setpriv", "setpriv --landlock-access disk:x ls", `want fs, net or scope`},
		{"setpriv", "setpriv --landlock-access fs:execute --landlock-rule path-beneath:read-file:/ ls", `no --landlock-access has read_file`},
		{"setpriv", "setpriv --landlock-access fs:execute --landlock-rule net-port:bind-tcp:1 ls", `needs a --landlock-access net`},
		{"setpriv", "setpriv --landlock-access net:bind-tcp --landlock-rule net-port::65536 ls", `port "65536"`},
		{"setpriv", "setpriv --landlock-access fs:execute --landlock-rule path-beneath:/ ls", `want path-beneath:RIGHTS:PATH`},
		{"setpriv", "setpriv --landlock-access fs:execute --landlock-rule path-beneath::rel ls", `relative`},
		{"setpriv", "setpriv --landlock ls", `unknown option --landlock`},
		{"nomad", "rx/bin", `c:1:1: error: "rx/bin": want MODES:PATH`},
		{"nomad", ":/bin", `want MODES:PATH`},
		{"nomad", "rz:/bin", `c:1:2: error: mode 'z'`},
		{"nomad", "rr:/bin", `c:1:2: error: mode 'r'`},
		{"nomad", "r:bin", `c:1:3: error: path "bin" is relative`},
		{"nomad", "r:/a\nx:/a/", `c:2:3: error: path /a stands twice, first in line 1`},
		{"nomad", "r:${NOMAD_TASK_DIR}", `nomad replaces`},
		{"nomad", "\"r:/a", `not closed`},
		{"nomad", "# x\n", `no path`},
		{"podlock", pod("kind: LandlockProfile", "kind: Pod"), `kind: want LandlockProfile`},
		{"podlock", pod("readOnly", "readonly"), `unknown key "readonly"`},
		{"podlock", pod("/tmp", "tmp"), `path "tmp" is relative`},
		{"podlock", pod("[/tmp]", "/tmp"), `readWrite: want a list`},
		{"podlock", pod(`"/usr/sbin/nginx"`, "nginx"), `binary "nginx" is no absolute path`},
		{"podlock", pod("[/lib, /lib64]", "&a [/lib]"), `anchors`},
		{"podlock", pod("readExec: [/lib, /lib64]", "readOnly: []"), `key "readOnly" stands twice`},
		{"podlock", pod("  profilesByContainer:", "  profiles:"), `unknown key "profiles"`},
		{"podlock", "", `no document`},
		{"podlock", "a: [", `not YAML`},
		{"sandboxer", "LL_FS_RO=/", `LL_FS_RW is missing`},
		{"sandboxer", "LL_FS_RO=/ LL_FS_RW= LL_TCP_BIND=65536 x", `c:1:34: error: port "65536"`},
		{"sandboxer", "LL_FS_RO=/ LL_FS_RO=/ LL_FS_RW=", `c:1:12: error: LL_FS_RO is set twice`},
		{"sandboxer", "LL_FS_RO=/a::/b LL_FS_RW=", `an empty path`},
		{"sandboxer", "LL_FS_RO=a LL_FS_RW=", `c:1:10: error: path "a" is relative`},
		{"sandboxer", "LL_FS_RO=/ LL_FS_RW= LL_UDP=1", `unknown variable LL_UDP`},
		{"sandboxer", "LL_FS_RO=/ LL_FS_RW= LL_SCOPED=a:a", `scope "a"`},
		{"sandboxer", "LL_FS_RO=/ LL_FS_RW= LL_FORCE_LOG=2", `want 1`},
		{"sandboxer", "sandboxer x", `want LL_NAME=VALUE`},
		{"sandboxer", "LL_FS_RO=\"$PATH\" LL_FS_RW=", `a shell acts on $`},
	} {
		_, err := Read(tc.format, []File{{"c", []byte(tc.text)}}, Options{})
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s %q\ngot  %v\nwant %s", tc.format, tc.text, err, tc.want)
		}
	}
}

func TestReadOptions(t *testing.T) {
	file := File{"a.json", []byte(`{"ruleset": [{"scoped": ["signal"]}]}`)}
	for _, tc := range []struct {
		format string
		files  int
		o      Options
		want   string
	}{
		{"apparmor", 1, Options{}, "unknown format"},
		{"vespa", 1, Options{}, "unknown format"}, // VESPA_LANDLOCK_PATHS=/dev,ro:/sys,ro: nothing is guessed of it
		{"landrun", 0, Options{}, "no file"},
		{"landrun", 2, Options{}, "2 files"},
		{"landlockconfig", 2, Options{}, "layer each"},
		{"landlockconfig", 1, Options{Base: "x"}, "not an absolute path"},
		{"landlockconfig", 1, Options{ABI: 12}, "abi 12"},
		{"landlockconfig", 1, Options{Name: "No Name"}, "is not valid"},
	} {
		files := []File{file, file}[:tc.files]
		if _, err := Read(tc.format, files, tc.o); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s %+v: %v, want %s", tc.format, tc.o, err, tc.want)
		}
	}
	// Two files of one name are two layers of two names.
	im := read(t, "landlockconfig", Options{Compose: ComposeLayers}, file, file)
	if layers := im.Policies[0].GetSpec().GetLayers(); len(layers) != 2 || layers[1].GetName() != "a-2" || layerOf(im.Policies[0]).GetName() != "a" {
		t.Errorf("%v", layers)
	}
	if s := layerOf(im.Policies[0]).GetScope(); len(s) != 1 || s[0] != "signal" {
		t.Errorf("scope %v", s)
	}
	if im.Policies[0].GetSpec().GetEnforcement() == apiv1.Enforcement_ENFORCEMENT_DEGRADE {
		t.Error("degrade was not asked for")
	}
}
