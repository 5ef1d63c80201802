package exchange

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"policyd.dev/policyd/enforce/profile"
	"policyd.dev/policyd/internal/policy"
)

// The pair of files of the format's own example of composition.
const (
	system = `abi = 5
[[variable]]
name = "rw"
literal = ["/tmp", "/var/tmp"]
[[path_beneath]]
allowed_access = ["abi.read_execute"]
parent = ["/bin", "/lib", "/usr", "/dev", "/proc", "/etc"]
[[path_beneath]]
allowed_access = ["abi.read_write"]
parent = ["${rw}"]
`
	home = `abi = 4
[[variable]]
name = "rw"
literal = ["/home/user/tmp"]
[[ruleset]]
handled_access_fs = ["abi.all"]
[[path_beneath]]
allowed_access = ["abi.read_execute"]
parent = ["/home/user/bin"]
`
)

func twoFiles() []File { return []File{{"s1.toml", []byte(system)}, {"s2.toml", []byte(home)}} }

func TestComposeUnion(t *testing.T) {
	for _, order := range [][]File{twoFiles(), {twoFiles()[1], twoFiles()[0]}} {
		im := read(t, "landlockconfig", Options{Compose: ComposeUnion}, order...)
		p := compiled(t, im)
		if len(p.Layers) != 1 || p.ABI != 4 {
			t.Fatalf("%d layers, abi %d; want 1 layer of abi 4", len(p.Layers), p.ABI)
		}
		if want := profile.Handled(profile.FS, 4); p.Layers[0].FS != want || p.Layers[0].Net != 0 {
			t.Errorf("handled fs %#x net %#x, want fs %#x: ioctl_dev is only in one file", p.Layers[0].FS, p.Layers[0].Net, want)
		}
		for _, path := range []string{"/bin/sh", "/etc/passwd", "/home/user/bin/x"} {
			wantPath(t, p, path, profile.FSExecute|profile.FSReadFile, true)
			wantPath(t, p, path, profile.FSWriteFile, false)
			wantPath(t, p, path, profile.FSIoctlDev, true) // not handled any more
		}
		for _, path := range []string{"/tmp/a", "/var/tmp/a", "/home/user/tmp/a"} {
			wantPath(t, p, path, profile.FSWriteFile|profile.FSTruncate|profile.FSMakeReg, true)
			wantPath(t, p, path, profile.FSExecute, false)
		}
		wantPath(t, p, "/home/user/other", profile.FSReadFile, false)
		if got := remarks(im); !strings.Contains(got, "s1.toml: warning: composing drops ioctl_dev") {
			t.Errorf("the loss is not told:\n%s", got)
		}
		rw := im.Policies[0].GetSpec().GetVariables()["rw"].GetValues()
		if len(rw) != 3 {
			t.Errorf("rw is %q", rw)
		}
	}
}

func TestComposeLayers(t *testing.T) {
	im := read(t, "landlockconfig", Options{Compose: ComposeLayers, Name: "both"}, twoFiles()...)
	p := compiled(t, im)
	if len(p.Layers) != 2 || p.Layers[0].Name != "s1" || p.Layers[1].Name != "s2" || p.Name != "both" {
		t.Fatalf("%+v", p.Layers)
	}
	if p.Layers[0].FS != profile.Handled(profile.FS, 5) || p.Layers[1].FS != profile.Handled(profile.FS, 4) {
		t.Errorf("handled %#x and %#x", p.Layers[0].FS, p.Layers[1].FS)
	}
	for _, path := range []string{"/bin/sh", "/tmp/a", "/home/user/bin/x", "/home/user/tmp/a"} { // each in one layer only
		wantPath(t, p, path, profile.FSReadFile, false)
	}
	if got := remarks(im); !strings.Contains(got, "variable rw has other values") || !strings.Contains(got, "which allows more than these layers do") {
		t.Errorf("remarks:\n%s", got)
	}
}

// Composing may leave nothing handled. That must not become a policy that allows everything.
func TestComposeNothing(t *testing.T) {
	fs := `{"ruleset": [{"handledAccessFs": ["execute"]}]}`
	net := `{"ruleset": [{"handledAccessNet": ["bind_tcp"]}]}`
	a := `{"pathBeneath": [{"allowedAccess": ["execute"], "parent": ["/a"]}]}`
	ab := `{"pathBeneath": [{"allowedAccess": ["read_file"], "parent": ["/a", "/b"]}]}`
	variable := `{"variable": [{"name": "x", "literal": ["/a"]}]}`
	for _, pair := range [][2]string{{fs, net}, {a, ab}, {variable, fs}} {
		files := []File{{"a.json", []byte(pair[0])}, {"b.json", []byte(pair[1])}}
		_, err := Read("landlockconfig", files, Options{Compose: ComposeUnion})
		if err == nil || !strings.Contains(err.Error(), "composing leaves nothing handled") {
			t.Errorf("%s + %s: %v", pair[0], pair[1], err)
		}
	}
	p := compiled(t, read(t, "landlockconfig", Options{Compose: ComposeLayers}, File{"a.json", []byte(fs)}, File{"b.json", []byte(net)}))
	wantPath(t, p, "/x", profile.FSExecute, false)
	wantPort(t, p, 80, profile.NetBindTCP, false)
	wantPort(t, p, 80, profile.NetConnectTCP, true)
	p = compiled(t, read(t, "landlockconfig", Options{Compose: ComposeLayers}, File{"a.json", []byte(variable)}, File{"b.json", []byte(net)}))
	if len(p.Layers) != 1 {
		t.Errorf("%d layers", len(p.Layers))
	}
	for _, text := range []string{variable, `{"abi": 3, "ruleset": [{"handledAccessNet": ["abi.all"]}]}`, `{"abi": 3, "netPort": [{"allowedAccess": ["abi.all"], "port": [1]}]}`} {
		_, err := Read("landlockconfig", []File{{"a.json", []byte(text)}}, Options{})
		if err == nil || !strings.Contains(err.Error(), codeHandlesNothing) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// Our own texts in the shapes of the format's six examples.
var shapes = map[string]string{
	"inferred.toml": `abi = 5
# handled is what the rules grant
[[path_beneath]]
allowed_access = ["abi.read_execute"]
parent = [".", "/bin", "/usr", "/etc",]
[[path_beneath]]
allowed_access = ["abi.read_write"]
parent = ["/scratch"]
`,
	"variables.toml": `abi = 5
[[variable]]
name = "scratch"
literal = ["/scratch", "/var/scratch"]
[[variable]]
name = "homes"
literal = ["/root", "/home"]
[[variable]]
name = "conf"
literal = ["/etc"]
[[path_beneath]]
allowed_access = ["abi.read_execute"]
parent = [".", "/bin", "${conf}", "/opt/${conf}/$$x$"]
[[path_beneath]]
allowed_access = ["abi.read_write"]
parent = ["${scratch}", "${homes}/${scratch}/${homes}"]
`,
	"scoped.json": `{"abi": 6, "ruleset": [{"handledAccessNet": ["abi.all"], "scoped": ["abi.all"]}]}`,
	"ports.json": `{"abi": 5, "ruleset": [{"handledAccessFs": ["abi.all"], "handledAccessNet": ["bind_tcp"]}],
 "pathBeneath": [{"allowedAccess": ["abi.read_execute"], "parent": [".", "/bin", "/lib"]},
  {"allowedAccess": ["abi.read_write"], "parent": ["/scratch"]}],
 "netPort": [{"allowedAccess": ["bind_tcp"], "port": [80, 443, 443, 0, 65535]}]}`,
	"ports.toml": `abi = 4
ruleset = [{handled_access_fs = ["abi.all"]}, {handled_access_net = ["connect_tcp"]}]
path_beneath = [{allowed_access = ["abi.read_execute"], parent = ["/bin", "/bin/"]}]
[[net_port]]
allowed_access = ["bind_tcp", "connect_tcp"]
port = [0x50, 1_024]
`,
	"spelled.json": `{"ruleset": [{"handledAccessFs": ["execute", "write_file", "read_file", "read_dir", "remove_dir", "remove_file", "make_char",
  "make_dir", "make_reg", "make_sock", "make_fifo", "make_block", "make_sym", "refer", "truncate", "ioctl_dev"]}],
 "pathBeneath": [{"allowedAccess": ["execute", "read_file", "read_dir", "refer"], "parent": ["/bin"]},
  {"allowedAccess": ["write_file", "truncate"], "parent": ["/scratch", "/bin"]}]}`,
	"s1.toml": system,
	"s2.toml": home,
}

// sameConfig leaves out the abi, which only expands groups, and the order.
var sameConfig = cmp.Options{
	cmpopts.IgnoreUnexported(Config{}, ConfigPath{}), cmpopts.IgnoreFields(Config{}, "Name", "ABI"),
	cmp.AllowUnexported(template{}), cmpopts.SortSlices(func(a, b ConfigPath) bool { return a.Parent.String() < b.Parent.String() }),
	cmpopts.EquateEmpty(),
}

// parseConfig reads a file as it stands.
func parseConfig(t *testing.T, f File) *Config {
	t.Helper()
	r := &report{}
	c := r.config(f, false)
	if err := r.err(); err != nil {
		t.Fatalf("%v\n%s", err, f.Data)
	}
	return c
}

// throughPolicy imports a file, prints the policy, reads that and exports it.
func throughPolicy(t *testing.T, f File, o Options) *Export {
	t.Helper()
	im := read(t, "landlockconfig", o, f)
	text, err := im.Text("x")
	if err != nil {
		t.Fatal(err)
	}
	docs, err := policy.Parse("x", text)
	if err != nil {
		t.Fatal(err)
	}
	p := docs[0].Resource.GetLandlockPolicy()
	c, err := policy.Compile(p, policy.CompileOptions{})
	if err != nil {
		t.Fatal(err)
	}
	e, err := ExportConfig(p, c.Profile, nil)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func TestRoundTrip(t *testing.T) {
	for name, text := range shapes {
		t.Run(name, func(t *testing.T) {
			want := parseConfig(t, File{name, []byte(text)})
			for i := range want.Paths { // --base . stands for /srv
				if lit := want.Paths[i].Parent.literals; lit[0] == "." {
					lit[0] = "/srv"
				} else if lit[0] == "/bin/" {
					want.Paths = want.Paths[:i]
					break
				}
			}
			e := throughPolicy(t, File{name, []byte(text)}, Options{Base: "/srv"})
			if len(e.Configs) != 1 || len(e.Losses) != 1 || !strings.Contains(e.Losses[0], "enforcement: required") {
				t.Fatalf("%d files, losses %q", len(e.Configs), e.Losses)
			}
			for _, f := range []File{{"x.json", e.Configs[0].JSON()}, {"x.toml", e.Configs[0].TOML("a\nb")}} {
				if diff := cmp.Diff(want, parseConfig(t, f), sameConfig...); diff != "" {
					t.Errorf("%s after export (-want +got):\n%s\n%s", f.Name, diff, f.Data)
				}
			}
		})
	}
}

func TestConfigErrors(t *testing.T) {
	const port = `{"abi":4,"netPort":[{"allowedAccess":["bind_tcp"],"port":[%s]}]}`
	for _, tc := range []struct{ name, text, want string }{
		{"a.json", fmt.Sprintf(port, "65536"), `a.json:1:59: error: port 65536 is not within 0 to 65535`},
		{"a.json", fmt.Sprintf(port, "-1"), `1:59: error: port -1`},
		{"a.json", fmt.Sprintf(port, "80.0"), `1:59: error: port 80.0`},
		{"a.json", fmt.Sprintf(port, `"80"`), `1:59: error: a member of port: want a number, not a text`},
		{"a.json", fmt.Sprintf(port, ``), `1:58: error: port is an empty list`},
		{"a.json", `{"abi": 0, "ruleset": [{"scoped": ["signal"]}]}`, `1:9: error: abi: want a whole number from 1`},
		{"a.json", `{"abi": 5}`, `says nothing`},
		{"a.json", `{}`, `says nothing`},
		{"a.json", `[]`, `1:1: error: the file: want a mapping, not a list`},
		{"a.json", "{\n  \"abi\": 5,\n  \"abi\": 6}", `a.json:3:3: error: key "abi" stands twice, first in line 2`},
		{"a.json", `{"pathbeneath": []}`, `1:2: error: the file: unknown key "pathbeneath"`},
		{"a.json", `{"path_beneath": []}`, `unknown key "path_beneath"`},
		{"a.json", `{"ruleset": [{}]}`, `1:14: error: ruleset: one of`},
		{"a.json", `{"ruleset": [{"handledAccessFs": ["execute"], "x": 1}]}`, `1:47: error: ruleset: unknown key "x"`},
		{"a.json", `{"ruleset": []}`, `1:13: error: ruleset is an empty list`},
		{"a.json", `{"ruleset": [{"handledAccessFs": ["abi.all"]}]}`, `1:35: error: abi.all needs the file to say its abi`},
		{"a.json", `{"abi": 9, "ruleset": [{"handledAccessFs": ["resolve_unix"]}]}`, `1:45: error: handledAccessFs: landlockconfig has no fs right "resolve_unix"`},
		{"a.json", `{"abi": 9, "ruleset": [{"scoped": ["abi.read_write"]}]}`, `no group "abi.read_write" of scope rights`},
		{"a.json", `{"ruleset": [{"handledAccessNet": ["execute"]}]}`, `no net right "execute"`},
		{"a.json", `{"ruleset": [{"handledAccessFs": "execute"}]}`, `1:34: error: handledAccessFs: want a list, not a text`},
		{"a.json", `{"ruleset": [{"handledAccessFs": [null]}]}`, `want a text, not something else`},
		{"a.json", `{"pathBeneath": [{"allowedAccess": [], "parent": ["/a"]}]}`, `1:36: error: the rule grants nothing; it does not deny either`},
		{"a.json", `{"pathBeneath": [{"allowedAccess": ["execute"], "parent": []}]}`, `parent is an empty list`},
		{"a.json", `{"pathBeneath": [{"allowedAccess": ["execute"]}]}`, `1:18: error: pathBeneath: parent is missing`},
		{"a.json", `{"pathBeneath": [{"parent": ["/a"]}]}`, `allowedAccess is missing`},
		{"a.json", `{"pathBeneath": [{"allowedAccess": ["execute"], "parent": ["a"]}]}`, `1:60: error: path "a" is relative`},
		{"a.json", `{"pathBeneath": [{"allowedAccess": ["execute"], "parent": [""]}]}`, `an empty path`},
		{"a.json", `{"pathBeneath": [{"allowedAccess": ["execute"], "parent": ["/a/../b"]}]}`, `has a ..`},
		{"a.json", `{"pathBeneath": [{"allowedAccess": ["execute"], "parent": ["/a${x"]}]}`, `1:60: error: a ${ that is not closed [bad-template]`},
		{"a.json", `{"pathBeneath": [{"allowedAccess": ["execute"], "parent": ["${0}"]}]}`, `${0}: a variable's name`},
		{"a.json", `{"pathBeneath": [{"allowedAccess": ["execute"], "parent": ["${x}"]}]}`, `1:60: error: unknown variable "x"`},
		{"a.json", `{"variable": [{"name": "a-b"}]}`, `variable "a-b": a name is`},
		{"a.json", `{"variable": [{"literal": ["x"]}]}`, `name is missing`},
		{"a.json", `{"variable": [{"name": "a", "literal": []}]}`, `literal is an empty list`},
		{"a.json", `{"variable": [{"name": "a", "literal": ["/x/../y"]}], "pathBeneath": [{"allowedAccess": ["execute"], "parent": ["${a}"]}]}`, `has a ..`},
		{"a.json", "{\"abi\": 5,\n\n x}", `a.json:3:2: error: not JSON`},
		{"a.json", `{"abi": 5} {}`, `not JSON`},
		{"a.json", ``, `not JSON`},
		{"a.json", `{"variable": [{"name": "a", "literal": ["\ud800"]}]}`, `1:41: error: a text with half of a character`},
		{"a.json", "{\"\xff\": 1}", `byte 0xff is not UTF-8`},
		{"a.json", `{"a":` + strings.Repeat("[", 100) + strings.Repeat("]", 100) + `}`, `nested more than`},
		{"a.toml", "abi = 5\nabi = 6\n", `a.toml:2:1: error: not TOML: key abi is already defined [repeated-key]`},
		{"a.toml", "abi = 5\n[[net_port]]\nallowed_access = [\"bind_tcp\"]\nport = [1, 65536]\n", `a.toml:4:12: error: port 65536`},
		{"a.toml", "[[net_port]]\nallowedAccess = [\"bind_tcp\"]\nport = [1]\n", `a.toml:2:1: error: net_port: unknown key "allowedAccess"`},
		{"a.toml", "[path_beneath]\nparent = [\"/\"]\n", `path_beneath: want a list, not a mapping`},
		{"a.toml", "abi = 5.0\n", `abi: want a whole number`},
		{"a.toml", "abi = 2026-01-01\n", `abi: want a whole number`},
		{"a.toml", "abi = [1\n", `not TOML`},
		{"a.toml", "[[variable]]\nname = \"a\"\n[[variable.literal]]\nx = 1\n", `a member of literal: want a text`},
	} {
		im, err := Read("landlockconfig", []File{{tc.name, []byte(tc.text)}}, Options{})
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s\ngot  %v\nwant %s (%v)", tc.text, err, tc.want, im)
		}
	}
}

func TestConfigRemarks(t *testing.T) {
	for _, tc := range []struct{ text, want string }{
		{`{"abi": 9, "ruleset": [{"handledAccessFs": ["abi.all"]}]}`, "knows Landlock up to ABI 6"},
		{`{"abi": 3, "ruleset": [{"scoped": ["signal"]}], "netPort": [{"allowedAccess": ["abi.all"], "port": [80]}]}`, "these rights are empty for abi 3"},
		{`{"variable": [{"name": "x"}], "pathBeneath": [{"allowedAccess": ["execute"], "parent": ["/a/${x}"]}]}`, "stands for no path and is left out"},
		{`{"pathBeneath": [{"allowedAccess": ["read_file"], "parent": ["/proc/self/maps"]}]}`, "/proc/self names the process that builds the rules"},
		{`{"pathBeneath": [{"allowedAccess": ["read_file"], "parent": ["/a"]}]}`, "missing: skip"},
		{`{"pathBeneath": [{"allowedAccess": ["read_file"], "parent": ["/a"]}]}`, "enforcement: degrade"},
	} {
		im := read(t, "landlockconfig", Options{}, File{"a.json", []byte(tc.text)})
		if got := remarks(im); !strings.Contains(got, tc.want) {
			t.Errorf("%s\ngot %s\nwant %s", tc.text, got, tc.want)
		}
		compiled(t, im)
	}
}

// A variable that policyd's language cannot hold is replaced by what it stands for.
func TestInlinedVariables(t *testing.T) {
	text := `{"variable": [{"name": "v", "literal": ["", "/x", "y$z"]}, {"name": "rel", "literal": ["r", "/abs"]}],
 "pathBeneath": [{"allowedAccess": ["read_file"], "parent": ["/a${v}", "${rel}/f"]}]}`
	p := compiled(t, read(t, "landlockconfig", Options{Base: "/base"}, File{"a.json", []byte(text)}))
	for _, path := range []string{"/a", "/a/x", "/ay$z", "/base/r/f", "/abs/f"} {
		wantPath(t, p, path, profile.FSReadFile, true)
	}
	wantPath(t, p, "/b", profile.FSReadFile, false)
}
