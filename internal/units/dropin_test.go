package units

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"policyd.dev/policyd/enforce/profile"
	record "policyd.dev/policyd/enforce/unit"
	"policyd.dev/policyd/internal/errs"
)

var update = flag.Bool("update", false, "write the golden drop-ins")

// service makes a service of the text of its file, and of what systemd shows of it.
func service(t *testing.T, name, text, show string) *Service {
	t.Helper()
	settings, err := ParseFile(name, text)
	if err != nil {
		t.Fatal(err)
	}
	s := &Service{Unit: &Unit{ID: name, props: map[string][]string{}}, Name: name, Commands: map[string][]Command{}}
	for line := range strings.Lines(show) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		s.props[key] = append(s.props[key], value)
	}
	for _, key := range execKeys {
		if s.Commands[key], err = Commands(settings, key); err != nil {
			t.Fatal(err)
		}
	}
	s.Identifier = lastOf(settings, "SyslogIdentifier")
	return s
}

// launcher is a program that every user can execute.
const launcher = "/usr/bin/env"

var dropIns = []struct {
	name, text, show string
	a                Attachment
	user, runtime    bool
	notes            []string // parts of each
}{
	{name: "simple.service", text: "[Service]\nExecStart=/usr/sbin/nginx -g 'daemon off;'\nExecReload=/bin/kill -HUP $MAINPID\n", show: "IgnoreSIGPIPE=yes\n", notes: []string{"no_new_privs", "ExecReload="}},
	{name: "lines.service", text: "[Service]\nExecStart=-@/bin/a$b name %i $X ; +/bin/c\nExecStart=:/bin/d $Y\n", show: "Type=exec\nNoNewPrivileges=yes\n", a: Attachment{Set: map[string]string{"dir": "/srv/a b%"}}, notes: []string{"Type=exec"}},
	{name: "root@.service", text: "[Service]\nExecStartPre=/bin/pre\nExecStart=/bin/x\nExecStart=!/bin/y\n", a: Attachment{All: true}, show: "RootDirectory=/srv/root\nRootDirectoryStartOnly=yes\nNoNewPrivileges=yes\n", notes: []string{"inside the service's root"}},
	{name: `dash\x2ded.service`, text: "[Service]\nExecStart=x 1\n", show: "ExecSearchPath=/opt/bin /usr/bin\nTemporaryFileSystem=/var:ro\nSystemCallFilter=read write\nNoExecPaths=/\nNoNewPrivileges=yes\nAppArmorProfile=web\n", runtime: true, notes: []string{"AppArmorProfile=web"}},
	{name: "all.service", text: "[Service]\nExecStartPre=/bin/pre\nExecStart=/bin/x\nExecStop=-/bin/stop\n", show: "SmackProcessLabel=Old\nNoNewPrivileges=yes\n", a: Attachment{All: true, Label: "Web"}, notes: []string{"SmackProcessLabel=Old"}},
	{name: "mine.service", text: "[Service]\nExecStart=%h/bin/x\n", show: "DefaultDependencies=no\nNoNewPrivileges=yes\n", a: Attachment{Socket: "/run/user/1000/p.sock"}, user: true, notes: []string{"DefaultDependencies=no"}},
}

func TestDropIns(t *testing.T) {
	for _, tc := range dropIns {
		a := tc.a
		a.Unit, a.Policy = tc.name, "web@stable"
		s := service(t, tc.name, tc.text, tc.show)
		text, notes, err := Text(a, s, Files{Launcher: launcher, Profile: "/var/lib/policyd-units/" + tc.name + ".profile"}, tc.runtime, tc.user)
		if err != nil {
			t.Errorf("%s: %v", tc.name, err)
			continue
		}
		if len(notes) != len(tc.notes) {
			t.Errorf("%s: notes %q", tc.name, notes)
		}
		for i := range min(len(notes), len(tc.notes)) {
			if !strings.Contains(notes[i], tc.notes[i]) {
				t.Errorf("%s: note %q; want %q", tc.name, notes[i], tc.notes[i])
			}
		}
		golden := filepath.Join("testdata", strings.ReplaceAll(tc.name, `\`, "_")+".conf")
		if *update {
			if err := os.MkdirAll("testdata", 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(golden, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(golden)
		if err != nil || text != string(want) {
			t.Errorf("%s (-update writes it): %v\n%s", golden, err, text)
		}
		back, err := ReadDropIn(text)
		if err != nil || back.Unit != a.Unit || back.Policy != a.Policy || back.Source != s.Source(a.All) || back.All != a.All || back.Label != a.Label {
			t.Errorf("%s is read as %+v, %v", tc.name, back, err)
		}
		for _, changed := range []string{text + "#", strings.Replace(text, "web", "wob", 1), strings.Replace(text, markSum, "# ", 1), strings.Replace(text, "--unit", "--Unit", 1), "", "[Service]\n"} {
			if _, err := ReadDropIn(changed); !errors.Is(err, ErrChangedByHand) {
				t.Errorf("%s changed: %v\n%s", tc.name, err, changed)
			}
		}
	}
}

// What cannot be kept as it was is refused.
func TestRefused(t *testing.T) {
	const simple = "[Service]\nExecStart=/bin/x\n"
	for name, tc := range map[string]struct {
		text, show, says string
		a                Attachment
		user             bool
	}{
		"hidden profile":     {simple, "InaccessiblePaths=-/var/lib", "hides /var/lib/policyd-units", Attachment{}, false},
		"hidden launcher":    {simple, "InaccessiblePaths=/usr/bin/env", "hides /usr/bin/env", Attachment{}, false},
		"filter":             {simple, "SystemCallFilter=~landlock_restrict_self:1 ptrace", "landlock_restrict_self", Attachment{}, false},
		"label and +":        {"[Service]\nExecStart=/bin/x\nExecStart=+/bin/y\n", "", "prefix +", Attachment{Label: "Web"}, false},
		"label of a user":    {simple, "", "a user's systemd", Attachment{Label: "Web"}, true},
		"a user's root":      {simple, "RootDirectory=/srv", "a user's service", Attachment{}, true},
		"+ in a root":        {"[Service]\nExecStart=/bin/x\nExecStart=+/bin/y\n", "RootImage=/x.raw", "no /proc", Attachment{}, false},
		"label, all, + stop": {"[Service]\nExecStart=/bin/x\nExecStop=+/bin/y\n", "", "ExecStop", Attachment{Label: "Web", All: true}, false},
	} {
		s := service(t, "x.service", tc.text, tc.show)
		_, _, err := Text(tc.a, s, Files{Launcher: launcher, Profile: "/var/lib/policyd-units/x.service.profile"}, false, tc.user)
		if !errors.Is(err, errs.ErrInvalid) || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: %v; want %q", name, err, tc.says)
		}
	}
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(dir+"/launch", nil, 0o755); err != nil {
		t.Fatal(err)
	}
	_, _, err := Text(Attachment{}, service(t, "x.service", simple, ""), Files{Launcher: dir + "/launch", Profile: "/x"}, false, false)
	if err == nil || !strings.Contains(err.Error(), "cannot execute") {
		t.Errorf("a launcher for root alone: %v", err)
	}
}

func TestServiceName(t *testing.T) {
	for in, want := range map[string]string{"nginx": "nginx.service", "foo@.service": "foo@.service", "foo@a-b": "foo@a-b.service", "org.x.Y": "org.x.Y.service", "/etc/systemd/system/a.service": "a.service", `a\x2db`: `a\x2db.service`} {
		if got, err := ServiceName(in); err != nil || got != want {
			t.Errorf("%q: %q, %v; want %q", in, got, err, want)
		}
	}
	for _, in := range []string{"", "a b", "a.socket", "x.timer", "policyd.service", "a/../b c", "$x", strings.Repeat("x", 250), "a%b"} {
		if got, err := ServiceName(in); !errors.Is(err, errs.ErrInvalid) {
			t.Errorf("%q: %q, %v", in, got, err)
		}
	}
}

func TestAttachable(t *testing.T) {
	for name, tc := range map[string]struct{ show, says string }{
		"not found": {"LoadState=not-found", "no such unit"},
		"masked":    {"LoadState=masked\nFragmentPath=/dev/null", "unmask"},
		"error":     {"LoadState=error\nFragmentPath=/x\nLoadError=org.x \"bad\"", "cannot load it"},
		"generated": {"LoadState=loaded\nFragmentPath=/run/systemd/generator.late/x.service\nSourcePath=/etc/init.d/x", "/etc/init.d/x"},
		"transient": {"LoadState=loaded\nFragmentPath=/run/systemd/transient/x.service\nTransient=yes", "policyctl exec"},
		"no file":   {"LoadState=loaded", "no file"},
		// foo-.service.d has the drop-ins of foo-bar.service, too.
		"prefix":          {"Id=foo-.service\nLoadState=loaded\nFragmentPath=/x", "begins with foo-"},
		"prefix template": {"Id=foo-@policyd-attach.service\nLoadState=loaded\nFragmentPath=/x", "begins with foo-"},
	} {
		u := service(t, "x.service", "", tc.show).Unit
		if id := u.Get("Id"); id != "" {
			u.ID = id
		}
		if err := attachable("x.service", u); err == nil || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: %v; want %q", name, err, tc.says)
		}
	}
}

func TestEffective(t *testing.T) {
	const line = `/l unit --unit "a\\x2db" --profile "/p %%$$ c" --program /bin/x -- /bin/x` + "\n"
	const text = "[Service]\nExecStart=\nExecStart=-" + line + "ExecStart=" + line
	of := func(unit, file string) string {
		return "ExecStart={ path=/l ; argv[]=/l unit --unit " + unit + " --profile " + file + " --program /bin/x -- /bin/x ; ignore_errors=no }\n"
	}
	ours := of(`a\x2db`, "/p %$ c")
	for name, tc := range map[string]struct {
		show string
		ok   bool
	}{
		"ours":      {ours + ours, true},
		"one":       {ours, false},
		"none":      {"", false},
		"another's": {ours + "ExecStart={ path=/bin/x ; argv[]=/bin/x }\n", false},
		// A template's, which comes before that of an instance in /run.
		"another unit's":     {ours + of("a@", "/p %$ c"), false},
		"another profile":    {ours + of(`a\x2db`, "/q"), false},
		"printed in escapes": {ours + of(`a\\x2db`, "/p %$ c"), true}, // as of systemd 254
		"added":              {ours + ours + "ExecStart={ path=/bin/x ; argv[]=/bin/x }\n", false},
	} {
		if err := service(t, "x.service", "", tc.show).Effective(text); (err == nil) != tc.ok || err != nil && !errors.Is(err, ErrNotEffective) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func testRecord(t *testing.T, policy string) *record.Record {
	t.Helper()
	b := profile.NewBuilder([]profile.Layer{{Name: policy, FS: profile.Handled(profile.FS, 1)}})
	b.AddPath(0, "/usr", profile.FSReadFile, false, profile.Fail)
	p, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	enc := p.Encode()
	return &record.Record{Unit: "x.service", Policy: policy, ProfileDigest: profile.Digest(enc), Profile: enc}
}

// What a process runs under is the profile that was there when it was started.
func TestHistory(t *testing.T) {
	dir := t.TempDir()
	p := &Place{State: dir + "/state", Run: dir + "/run", Persistent: dir + "/etc", Runtime: dir + "/rt"}
	at := func(since string) *Unit {
		return service(t, "x.service", "", "ExecMainStartTimestampMonotonic="+since+"\n").Unit
	}
	running := func(since string) string {
		c, ok := p.Running("x.service", false, at(since))
		if !ok {
			return "?"
		}
		return c.Policy
	}
	const early, late = "1", "9000000000000000000"
	if got := running(late); got != "?" {
		t.Errorf("without a profile: %s", got)
	}
	if err := p.WriteProfile(testRecord(t, "web@1"), false); err != nil {
		t.Fatal(err)
	}
	if a, b := running(early), running(late); a != "?" || b != "web@1" {
		t.Errorf("after attach: %s, %s", a, b)
	}
	// A reboot takes the history.
	if err := os.RemoveAll(p.Run); err != nil {
		t.Fatal(err)
	}
	if a, b := running(early), running("0"); a != "web@1" || b != "?" {
		t.Errorf("after a reboot: %s, %s", a, b)
	}
	if err := p.WriteProfile(testRecord(t, "web@2"), false); err != nil {
		t.Fatal(err)
	}
	if a, b := running(early), running(late); a != "web@1" || b != "web@2" {
		t.Errorf("after an update: %s, %s", a, b)
	}
	// It ended while it was writing: nothing is said to run under what may not be there.
	all, err := p.history("x.service")
	if err != nil {
		t.Fatal(err)
	}
	if err := p.keep("x.service", append(all, Change{never, "web@3", ""})); err != nil {
		t.Fatal(err)
	}
	if got := running(late); got != "web@2" {
		t.Errorf("after a crash: %s", got)
	}
	if err := os.Chmod(p.State, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := p.WriteProfile(testRecord(t, "web@4"), false); !errors.Is(err, errs.ErrInvalid) {
		t.Errorf("a folder that anybody writes: %v", err)
	}
	if os.Geteuid() == 0 {
		if err := errors.Join(os.Chmod(p.State, 0o755), os.Chown(p.State, 65534, -1)); err != nil {
			t.Fatal(err)
		}
		if err := p.WriteProfile(testRecord(t, "web@4"), false); !errors.Is(err, errs.ErrInvalid) {
			t.Errorf("a folder of somebody else's: %v", err)
		}
	}
}

func TestFind(t *testing.T) {
	dir := t.TempDir()
	p := &Place{State: dir + "/state", Run: dir + "/run", Persistent: dir + "/etc", Runtime: dir + "/rt"}
	if d, err := p.Find("simple.service"); d != nil || err != nil {
		t.Errorf("%+v, %v", d, err)
	}
	golden, err := os.ReadFile("testdata/simple.service.conf")
	if err != nil {
		t.Fatal(err)
	}
	put := func(path, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	put(p.DropIn("simple.service", true), string(golden))
	put(p.DropIn("other.service", false), string(golden))
	d, err := p.Find("simple.service")
	if err != nil || !d.Runtime || d.Changed != nil || d.Policy != "web@stable" {
		t.Errorf("%+v, %v", d, err)
	}
	for name, was := range map[string]*Present{"simple.service": d, "none.service": nil} {
		if err := p.Unchanged(name, was); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	put(p.Copy("simple.service", true), string(golden))
	put(p.DropIn("simple.service", true), string(golden)+"# mine\n")
	for name, was := range map[string]*Present{"simple.service": d, "other.service": nil, "none.service": d} {
		if err := p.Unchanged(name, was); err == nil || !strings.Contains(err.Error(), "by somebody else") {
			t.Errorf("%s was attached, replaced or detached meanwhile: %v", name, err)
		}
	}
	if d, err = p.Find("simple.service"); err != nil || !errors.Is(d.Changed, ErrChangedByHand) || !strings.Contains(d.Diff, "+# mine") {
		t.Errorf("changed by hand: %+v, %v", d, err)
	}
	all, err := p.All()
	if err != nil || len(all) != 2 || all[0].Unit != "other.service" || !errors.Is(all[0].Changed, ErrChangedByHand) {
		t.Errorf("%+v, %v; a drop-in of another unit was copied by hand", all, err)
	}
}
