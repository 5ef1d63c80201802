package config

import (
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestEmptyIsDefault(t *testing.T) {
	for _, src := range []string{"", "# nothing\n", "{}\n"} {
		got, err := Parse("c.yaml", []byte(src), 1000)
		if err != nil {
			t.Fatalf("%q: %v", src, err)
		}
		if diff := cmp.Diff(Default(1000), got); diff != "" {
			t.Errorf("%q: %s", src, diff)
		}
	}
}

// The shipped example says it holds the defaults.
func TestExampleIsDefault(t *testing.T) {
	src, err := os.ReadFile("../../deploy/policyd.yaml")
	if err != nil {
		t.Fatal(err)
	}
	got, err := Parse("policyd.yaml", src, 0)
	if err != nil {
		t.Fatal(err)
	}
	want := Default(0)
	want.Socket.Path = "/run/policyd/policyd.sock"
	want.Socket.GID = 0
	want.Grants = DefaultGrants(0)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}

	// With its comments taken away it must parse too.
	enabled := regexp.MustCompile(`(?m)^#( *(?:- )?(?:tcp|listen|certificate|key|clientCA|role|groups|users|policies|certificates|launcher|fleet|name|node|endpoints|ca|channels?|contentKeys|rolloutKeys|threshold|keys|controller|rolloutKey):(?: .*)?)$`).ReplaceAllString(string(src), "$1")
	enabled = strings.NewReplacer("[wheel]", "[root]", "[alice]", "[root]").Replace(enabled)
	got, err = Parse("policyd.yaml", []byte(enabled), 0)
	if err != nil {
		t.Fatalf("%v\n%s", err, enabled)
	}
	if f := got.Fleet; f == nil || f.Name != "prod" || len(f.Content.Keys) != 1 || !f.Controller {
		t.Errorf("the fleet's section was not read: %+v", f)
	}
	if got.TCP == nil || got.Launcher == "" || len(got.Grants) != 4 {
		t.Errorf("commented keys were not read: %+v", got)
	}
}

// Every key of the file is in the reference and in the example.
func TestKeysAreDocumented(t *testing.T) {
	doc, err := os.ReadFile("../../docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	example, err := os.ReadFile("../../deploy/policyd.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var walk func(prefix string, typ reflect.Type)
	walk = func(prefix string, typ reflect.Type) {
		for i := range typ.NumField() {
			f := typ.Field(i)
			key := f.Tag.Get("yaml")
			ft := f.Type
			if ft.Kind() == reflect.Pointer {
				ft = ft.Elem()
			}
			switch {
			case ft.Kind() == reflect.Struct:
				walk(prefix+key+".", ft)
				continue
			case ft.Kind() == reflect.Slice && ft.Elem().Kind() == reflect.Struct:
				walk(prefix+key+"[].", ft.Elem())
			}
			if !strings.Contains(string(doc), "`"+prefix+key+"`") {
				t.Errorf("docs/configuration.md lacks %s%s", prefix, key)
			}
			if !strings.Contains(string(example), key+":") && key != "smackLabels" {
				t.Errorf("deploy/policyd.yaml lacks %s%s", prefix, key)
			}
		}
	}
	walk("", reflect.TypeFor[file]())
}

func TestWhole(t *testing.T) {
	got, err := Parse("c.yaml", []byte(`
socket: {path: /run/p.sock, mode: 0666, group: 0}
tcp: {listen: ":7443", certificate: /c, key: /k, clientCA: /a}
roles:
  - {role: admin, users: [root, 12], groups: [root, 7], smackLabels: [System], certificates: [ci], policies: ["web-*"], sandboxLabels: ["App-*"]}
limits: {sandboxes: 3, startsPerSecond: 0.5, startBurst: 1, connections: 2, messageSize: 64KiB, logSize: 65536, userLogSize: 0}
store: {keepVersions: 2, openTimeout: 1s}
log: {level: debug, format: json}
stopDeadline: 0s
launcher: /l
smack: {poolSize: 5}
containers: {records: /run/other}
bindings: {unmatched: fallback@stable}
metrics: {listen: "[::1]:9557"}
`), 0)
	if err != nil {
		t.Fatal(err)
	}
	want := &Config{
		Socket: Socket{Path: "/run/p.sock", Mode: 0o666, GID: 0},
		TCP:    &TCP{Listen: ":7443", Certificate: "/c", Key: "/k", ClientCA: "/a"},
		Grants: []Grant{{Role: RoleAdmin, Users: []uint32{0, 12}, Groups: []uint32{0, 7}, SmackLabels: []string{"System"}, Certificates: []string{"ci"}, Policies: []string{"web-*"}, SandboxLabels: []string{"App-*"}}},
		Limits: Limits{Sandboxes: 3, StartsPerSecond: 0.5, StartBurst: 1, Connections: 2, MessageBytes: 64 << 10, LogBytes: 65536},
		Store:  Store{KeepVersions: 2, OpenTimeout: time.Second},
		Log:    Log{Level: slog.LevelDebug, Format: "json"}, Launcher: "/l", LabelPool: 5, Records: "/run/other", Unmatched: "fallback@stable",
		Metrics: Metrics{Address: "[::1]:9557"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestMistakes(t *testing.T) {
	for _, tc := range []struct{ src, want string }{
		{"roles:\n  - {role: user, smackLabels: [a/b]}\n", `c.yaml:2:32: roles\[0\].smackLabels\[0\]: label "a/b": .*`},
		{"roles:\n  - {role: user, everyone: true, sandboxLabels: ['[']}\n", `c.yaml:2:50: roles\[0\].sandboxLabels\[0\]: "\[" is not a pattern`},
		{"bindings:\n  unmatched: allow@\n", `c.yaml:2:14: bindings.unmatched: "allow@" is neither refuse nor a policy`},
		{"bindings: {unmatched: \"\"}\n", `bindings.unmatched: "" is neither refuse nor a policy`},
		{"containers: {records: other}\n", `containers.records: "other" is not an absolute path`},
		{"smack: {poolSize: 0}\n", `smack.poolSize: 0 is not between 1 and 1000`},
		{"metrics:\n  listen: 0.0.0.0:9557\n", `c.yaml:2:11: metrics.listen: "0.0.0.0:9557": metrics are served without a password and without TLS`},
		{"metrics: {listen: \":9557\"}", `"" is not an address of the loopback interface`},
		{"metrics: {listen: \"192.0.2.1:9557\"}", `only on the loopback interface`},
		{"metrics: {listen: \"[::ffff:192.0.2.1]:9557\"}", `only on the loopback interface`},
		{"metrics: {listen: \"example.org:9557\"}", `"example.org" is not an address of the loopback interface`},
		{"metrics: {listen: \"127.0.0.1:http\"}", `"http" is not a port`},
		{"metrics: {listen: \"127.0.0.1:0\"}", `"0" is not a port`},
		{"metrics: {listen: \"127.0.0.1\"}", `is none of off, unix:///PATH`},
		{"metrics: {listen: \"unix:metrics.sock\"}", `the path is not absolute`},
		{"metrics: {listen: \"unix:@abstract\"}", `the path is not absolute`},
		{"limits:\n  connections: -1\n", `c.yaml:2:16: limits.connections: -1 is not between 0 and 1048576`},
		{"limits:\n  connections: many\n", `c.yaml:2:16: .*`},
		{"limits:\n  connections: 1.5\n", `c.yaml:2:16: .*`},
		{"sockets: {}", `c.yaml:1:1: .*sockets`},
		{"socket:\n  mode: \"0660\"\n  mod: 1\n", `c.yaml:3:3: .*mod`},
		{"log:\n  level: info\n  level: warn\n", `c.yaml:3:3: .*level`},
		{"log: [", `c.yaml:2:1: did not find`},
		{"a: b\n---\nc: d\n", `c.yaml: the configuration is one document, not 2`},
		{"socket: {path: \"@abstract\"}", `c.yaml:1:16: socket.path: "@abstract" is not an absolute path`},
		{"socket: {mode: \"9999\"}", `c.yaml:1:16: socket.mode: "9999" is not an octal mode`},
		{"socket: {mode: \"0060\"}", `socket.mode: mode 0060 keeps out the owner`},
		{"socket: {group: no-such-group}", `c.yaml:1:17: socket.group: group "no-such-group" does not exist`},
		{"tcp: {listen: here, certificate: c, key: /k, clientCA: /a}", `c.yaml:1:15: tcp.listen: "here" is not host:port`},
		{"tcp: {listen: \":1\", certificate: c, key: /k, clientCA: /a}", `c.yaml:1:34: tcp.certificate: "c" is not an absolute path`},
		{"roles:\n  - role: king\n    everyone: true\n", `c.yaml:2:11: roles\[0\].role: role "king" is not one of`},
		{"roles:\n  - role: none\n    everyone: true\n", `role "none" is not one of`},
		{"roles:\n  - role: user\n", `roles\[0\]: gives the role to nobody`},
		{"roles:\n  - role: user\n    users: [root, nobody-at-all]\n", `c.yaml:3:19: roles\[0\].users\[1\]: user "nobody-at-all" does not exist`},
		{"roles:\n  - role: user\n    users: [\"-1\"]\n", `user "-1" does not exist`},
		{"roles:\n  - role: user\n    users: [4294967295]\n", `user "4294967295" does not exist`},
		{"roles:\n  - role: user\n    everyone: true\n    policies: [\"[\"]\n", `roles\[0\].policies\[0\]: "\[" is not a pattern`},
		{"roles:\n  - role: user\n    certificates: [\"\"]\n", `certificates\[0\]: is empty`},
		{"limits: {sandboxes: -1}", `c.yaml:1:21: limits.sandboxes: -1 is not between`},
		{"limits: {sandboxes: many}", `c.yaml:1:21: .*many`},
		{"limits: {startsPerSecond: .nan}", `limits.startsPerSecond: NaN is not between`},
		{"limits: {messageSize: 1KiB}", `limits.messageSize: 1024 bytes are not between`},
		{"limits: {logSize: 1TB}", `limits.logSize: "1TB" is not a size`},
		{"limits: {logSize: 99999999999999GiB}", `is not a size`},
		{"store: {openTimeout: 5}", `store.openTimeout: "5" is not a time`},
		{"store: {keepVersions: 0}", `store.keepVersions: 0 is not between`},
		{"log: {level: loud}", `log.level: "loud" is not one of`},
		{"log: {format: xml}", `log.format: "xml" is not one of`},
		{"stopDeadline: -1s", `stopDeadline: "-1s" is not a time`},
		{"launcher: policyd-launch", `launcher: "policyd-launch" is not an absolute path`},
	} {
		cfg, err := Parse("c.yaml", []byte(tc.src), 0)
		if err == nil {
			t.Errorf("%q: taken as %+v", tc.src, cfg)
		} else if !regexp.MustCompile(tc.want).MatchString(err.Error()) {
			t.Errorf("%q:\n got %v\nwant %s", tc.src, err, tc.want)
		}
	}
	// All mistakes are told, not the first.
	_, err := Parse("c.yaml", []byte("log: {level: loud, format: xml}\nstopDeadline: x\n"), 0)
	if err == nil || strings.Count(err.Error(), "\n") != 2 {
		t.Errorf("want three mistakes: %v", err)
	}
}

func TestLoad(t *testing.T) {
	dir := t.TempDir()
	uid := os.Getuid()
	missing := filepath.Join(dir, "missing")
	if _, err := Load(missing, true, uid); err != nil {
		t.Errorf("optional: %v", err)
	}
	if _, err := Load(missing, false, uid); err == nil {
		t.Error("a file that was asked for is missing and that was taken")
	}
	path := filepath.Join(dir, "policyd.yaml")
	if err := os.WriteFile(path, []byte("log: {level: warn}\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if c, err := Load(path, false, uid); err != nil || c.Log.Level != slog.LevelWarn {
		t.Errorf("got %+v, %v", c, err)
	}
	if err := os.Chmod(path, 0o666); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(path, false, uid); err == nil || !strings.Contains(err.Error(), "can be written by everyone") {
		t.Errorf("a file everyone can write: %v", err)
	}
	if _, err := Load(dir, false, uid); err == nil {
		t.Error("a folder was taken")
	}
	if uid == 0 {
		if err := os.Chmod(path, 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(path, 1234, 0); err != nil {
			t.Fatal(err)
		}
		if _, err := Load(path, false, 0); err == nil {
			t.Error("root took a file of somebody else")
		}
	}
}

func FuzzParse(f *testing.F) {
	src, err := os.ReadFile("../../deploy/policyd.yaml")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(src)
	f.Add([]byte("roles: [{role: user, users: [*a]}]"))
	f.Add([]byte("a: &a [*a]"))
	f.Fuzz(func(t *testing.T, src []byte) {
		c, err := Parse("f", src, 1000)
		if err == nil && c.Socket.Mode&0o200 == 0 {
			t.Errorf("socket without an owner: %+v", c)
		}
	})
}

func TestUnmatchedIsRefusedUnlessNamed(t *testing.T) {
	for text, want := range map[string]string{"": "", "bindings: {}": "", "bindings: {unmatched: refuse}": "", "bindings: {unmatched: web}": "web", "bindings: {unmatched: web@3}": "web@3"} {
		if c, err := Parse("c.yaml", []byte(text), 0); err != nil || c.Unmatched != want {
			t.Errorf("%q: %v, %v", text, c, err)
		}
	}
}

func TestMetricsListener(t *testing.T) {
	for listen, want := range map[string]Metrics{
		"off":                            {},
		"127.0.0.1:9557":                 {Address: "127.0.0.1:9557"},
		"127.8.0.1:1":                    {Address: "127.8.0.1:1"},
		"localhost:9557":                 {Address: "127.0.0.1:9557"},
		"unix:///run/policyd/../m.sock":  {Path: "/run/m.sock"},
		"unix:/run/policyd/metrics.sock": {Path: "/run/policyd/metrics.sock"},
	} {
		if c, err := Parse("c.yaml", []byte("metrics: {listen: \""+listen+"\"}"), 0); err != nil || c.Metrics != want {
			t.Errorf("%q: %+v, %v", listen, c, err)
		}
	}
}
