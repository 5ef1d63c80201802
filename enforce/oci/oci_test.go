package oci

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"policyd.dev/policyd/internal/errs"
)

var update = flag.Bool("update", false, "write the golden files")

var edit = Edit{Launcher: "/usr/bin/policyd-launch", Profile: "/var/lib/policyd/oci/profiles/sha256-12", Digest: "sha256:12", Version: "web@7"}

func inputs(t testing.TB) map[string][]byte {
	t.Helper()
	names, err := filepath.Glob("testdata/*.json")
	if err != nil || len(names) == 0 {
		t.Fatal("no inputs", err)
	}
	all := map[string][]byte{}
	for _, n := range names {
		b, err := os.ReadFile(n)
		if err != nil {
			t.Fatal(err)
		}
		all[n] = b
	}
	return all
}

func edited(text []byte, e Edit) ([]byte, error) {
	c, err := ReadConfig(text)
	if err != nil {
		return nil, err
	}
	return c.Edited(e)
}

func TestGolden(t *testing.T) {
	for name, text := range inputs(t) {
		got, err := edited(text, edit)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		golden := strings.TrimSuffix(name, ".json") + ".golden"
		if *update {
			if err := os.WriteFile(golden, got, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(golden)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s: got\n%s\nwant\n%s", name, got, want)
		}
		again, err := edited(got, edit)
		if err != nil || !bytes.Equal(again, got) {
			t.Errorf("%s: edited again: %v\n%s", name, err, again)
		}
		// Somebody read it and wrote it in his own order.
		other, err := json.MarshalIndent(decode(t, got), "", " ")
		if err != nil {
			t.Fatal(err)
		}
		newer := edit
		newer.Digest = "sha256:34"
		again, err = edited(other, newer)
		if err != nil || bytes.Contains(again, []byte("sha256:12\"")) || bytes.Count(again, []byte(LauncherPath)) != 2 {
			t.Errorf("%s: written anew: %v\n%s", name, err, again)
		}
	}
}

func TestWhichProfile(t *testing.T) {
	for _, tc := range []struct{ annotations, ref, err string }{
		{``, "", ""},
		{`"other":"x"`, "", ""},
		{`"policyd.dev/profile":"web@stable"`, "web@stable", ""},
		{`"policyd.dev/profile":"web","policyd.dev/profile/container.app":"app","io.kubernetes.cri.container-name":"app"`, "app", ""},
		{`"policyd.dev/profile":"web","policyd.dev/profile/container.app":"app","io.kubernetes.cri.container-name":"other"`, "web", ""},
		{`"policyd.dev/profile/container.app":"app","io.kubernetes.container.name":"app"`, "app", ""},
		{`"policyd.dev/profile/container.app":"app","io.kubernetes.container.name":"other"`, "", ""},
		{`"policyd.dev/profile/container.app":"app"`, "", "nothing tells the name"},
		{`"policyd.dev/profile":""`, "", "is empty"},
		{`"policyd.dev/profil":"web"`, "", "there is no annotation"},
		{`"policyd.dev/profile":7`, "", "annotation"},
		{`"policyd.dev/profile":"web","policyd.dev/profile":"loose"`, "", "twice"},
		{`"policyd.dev/version":"web@1"`, "", "without"},
		{`"policyd.dev/applied":"sha256:12","policyd.dev/profile":"web"`, "", "only policyd-runc sets"},
	} {
		c, err := ReadConfig([]byte(`{"process":{"args":["a"]},"mounts":[],"annotations":{` + tc.annotations + `}}`))
		if tc.err != "" {
			if err == nil || !errors.Is(err, errs.ErrInvalid) || !strings.Contains(err.Error(), tc.err) {
				t.Errorf("%s: %v, want %q", tc.annotations, err, tc.err)
			}
			continue
		}
		if err != nil || c.Ref != tc.ref {
			t.Errorf("%s: %v, %v; want %q", tc.annotations, c, err, tc.ref)
		}
	}
	for text, want := range map[string]Config{
		`"io.kubernetes.cri.image-name":"nginx:1","io.kubernetes.cri.sandbox-namespace":"edge"`: {Image: "nginx:1", Namespace: "edge"},
		`"io.kubernetes.cri-o.ImageName":"nginx:2","io.kubernetes.pod.namespace":"core"`:        {Image: "nginx:2", Namespace: "core"},
	} {
		c, err := ReadConfig([]byte(`{"annotations":{` + text + `}}`))
		if err != nil || c.Image != want.Image || c.Namespace != want.Namespace || len(c.Annotations) != 2 {
			t.Errorf("%s: %+v, %v", text, c, err)
		}
	}
	for _, key := range []string{"io.kubernetes.cri.container-type", "io.kubernetes.cri-o.ContainerType"} {
		c, err := ReadConfig([]byte(`{"annotations":{"policyd.dev/profile":"web","` + key + `":"sandbox"}}`))
		if err != nil || !c.Sandbox || c.Ref != "" {
			t.Errorf("%s: %+v, %v", key, c, err)
		}
	}
}

// A pod's annotations are handed on by the engine: those of the other engine are not its word.
func TestForeignEngine(t *testing.T) {
	for _, text := range []string{
		`"io.kubernetes.cri-o.ContainerType":"container","io.kubernetes.cri.container-type":"sandbox"`,
		`"io.kubernetes.cri-o.ContainerType":"container","io.kubernetes.cri.image-name":"trusted"`,
		`"io.kubernetes.cri-o.ImageName":"own","io.kubernetes.cri.sandbox-namespace":"trusted"`,
		`"io.kubernetes.cri-o.ContainerType":"container","io.kubernetes.cri.container-name":""`,
		`"io.kubernetes.cri.container-type":"container","io.kubernetes.cri-o.ContainerType":"sandbox"`,
	} {
		if c, err := ReadConfig([]byte(`{"annotations":{` + text + `}}`)); !errors.Is(err, errs.ErrInvalid) || !strings.Contains(err.Error(), "no engine sets both") {
			t.Errorf("%s: %+v, %v", text, c, err)
		}
	}
	c, err := ReadConfig([]byte(`{"annotations":{"io.kubernetes.cri-o.ContainerType":"container","io.kubernetes.cri-o.ImageName":"a","io.kubernetes.pod.namespace":"b","io.kubernetes.container.name":"c","io.kubernetes.pod.name":"d","io.kubernetes.cri-o.userns-mode":"auto"}}`))
	if err != nil || c.Image != "a" || c.Namespace != "b" || c.Container != "c" || c.Pod != "d" || c.Sandbox {
		t.Errorf("CRI-O: %+v, %v", c, err)
	}
}

// None of these may come out as something to start.
func TestRefused(t *testing.T) {
	const dev = `"mounts":[{"destination":"/dev","type":"tmpfs"}]`
	for name, text := range map[string]string{
		"empty":               ``,
		"no object":           `[]`,
		"cut off":             `{"process":{"args":["a"]},` + dev,
		"two values":          `{"process":{"args":["a"]},` + dev + `} {}`,
		"no process":          `{` + dev + `}`,
		"process null":        `{"process":null,` + dev + `}`,
		"process twice":       `{"process":{"args":["a"]},"process":{"args":["b"]},` + dev + `}`,
		"process, other case": `{"process":{"args":["a"]},"Process":{"args":["b"]},` + dev + `}`,
		"only other case":     `{"Process":{"args":["b"]},` + dev + `}`,
		"args twice":          `{"process":{"args":["a"],"arg\u0073":["b"]},` + dev + `}`,
		"process, NUL":        `{"process\u0000":{"args":["b"]},"process":{"args":["a"]},` + dev + `}`,
		"args, NUL":           `{"process":{"Args\u0000x":["b"],"args":["a"]},` + dev + `}`,
		"mounts, NUL":         `{"mounts\u0000x":[],"process":{"args":["a"]},` + dev + `}`,
		"annotations, NUL":    `{"annotations\u0000x":{},"process":{"args":["a"]},` + dev + `}`,
		"destination, NUL":    `{"process":{"args":["a"]},"mounts":[{"destination":"/dev","type":"tmpfs"},{"destination":"/dev\u0000x","type":"bind","source":"/dev"}]}`,
		"long s":              `{"process":{"args":["a"],"argſ":["b"]},` + dev + `}`,
		"no args":             `{"process":{},` + dev + `}`,
		"empty args":          `{"process":{"args":[]},` + dev + `}`,
		"args no array":       `{"process":{"args":"a"},` + dev + `}`,
		"no mounts":           `{"process":{"args":["a"]}}`,
		"no /dev":             `{"process":{"args":["a"]},"mounts":[{"destination":"/proc","type":"proc"}]}`,
		"/dev of the host":    `{"process":{"args":["a"]},"mounts":[{"destination":"/dev","type":"tmpfs"},{"destination":"//dev/.","type":"bind","source":"/dev"}]}`,
		"/dev, by option":     `{"process":{"args":["a"]},"mounts":[{"destination":"/dev","type":"tmpfs","source":"/dev","options":["nosuid","rbind"]}]}`,
		"/dev, by option too": `{"process":{"args":["a"]},"mounts":[{"destination":"/dev","type":"tmpfs","source":"/dev","options":["b\u0069nd\u0000"]}]}`,
		"/dev, no options":    `{"process":{"args":["a"]},"mounts":[{"destination":"/dev","type":"tmpfs","options":["nosuid",1]}]}`,
		"our place":           `{"process":{"args":["a"]},"mounts":[{"destination":"/dev","type":"tmpfs"},{"destination":"/dev/.policyd/launch","type":"bind"}]}`,
		"our folder":          `{"process":{"args":["a"]},"mounts":[{"destination":"/dev","type":"tmpfs"},{"destination":"dev/x/../.policyd","type":"bind"}]}`,
		"mount no object":     `{"process":{"args":["a"]},"mounts":[1]}`,
		"mounts twice":        `{"process":{"args":["a"]},` + dev + `,"Mounts":[]}`,
		"annotations no map":  `{"process":{"args":["a"]},` + dev + `,"annotations":[]}`,
	} {
		if got, err := edited([]byte(text), edit); err == nil {
			t.Errorf("%s: %s", name, got)
		}
	}
}

func TestEditProcess(t *testing.T) {
	got, err := EditProcess([]byte(`{ "cwd":"/", "args": [ "id", "-u" ], "new":1 }`), Launch{Digest: "sha256:12"})
	want := `{ "cwd":"/", "args": [ "/dev/.policyd/launch","exec","--file","/dev/.policyd/profile","--digest","sha256:12","--","id", "-u" ], "new":1 }`
	if err != nil || string(got) != want {
		t.Fatalf("%s, %v", got, err)
	}
	if again, err := EditProcess(got, Launch{Digest: "sha256:12"}); err != nil || string(again) != want {
		t.Errorf("again: %s, %v", again, err)
	}
	if other, err := EditProcess(got, Launch{Digest: "sha256:34"}); err != nil || strings.Count(string(other), LauncherPath) != 2 {
		t.Errorf("under another: %s, %v", other, err)
	}
	for _, bad := range []string{``, `{}`, `{"args":[]}`, `{"args":null}`, `{"args":["a"],"Args":["b"]}`, `{"args\u0000":["b"],"args":["a"]}`, `{"args":{}}`} {
		if got, err := EditProcess([]byte(bad), Launch{Digest: "sha256:12"}); err == nil {
			t.Errorf("%s: %s", bad, got)
		}
	}
}

func TestStateLaunch(t *testing.T) {
	for text, want := range map[string]string{
		`{"id":"a","annotations":{"policyd.dev/applied":"sha256:12"}}`: "sha256:12",
		`{"id":"a","annotations":{"x":"y"}}`:                           "",
		`{"id":"a"}`:                                                   "",
	} {
		if got, err := StateLaunch([]byte(text)); err != nil || got.Digest != want {
			t.Errorf("%s: %q, %v", text, got, err)
		}
	}
	if _, err := StateLaunch([]byte(`{"id":`)); err == nil {
		t.Error("half a state is one")
	}
}

// FuzzConfig: what is edited has every field it had, with its bytes, is the same
// when edited again, and starts the launcher before the program.
func FuzzConfig(f *testing.F) {
	for _, b := range inputs(f) {
		f.Add(b)
		if e, err := edited(b, edit); err == nil {
			f.Add(e)
		}
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		c, err := ReadConfig(text)
		if err != nil {
			return
		}
		got, err := c.Edited(edit)
		if err != nil {
			return
		}
		again, err := edited(got, edit)
		if err != nil || !bytes.Equal(again, got) {
			t.Fatalf("edited again: %v\n%s\n%s", err, again, got)
		}
		back, err := ReadConfig(got)
		if err != nil {
			t.Fatal(err)
		}
		undone := back.Text()
		if !maps.Equal(back.Annotations, c.Annotations) {
			t.Fatalf("annotations %q, and %q after the edit was taken out", c.Annotations, back.Annotations)
		}
		before, after, full := decode(t, c.Text()), decode(t, undone), decode(t, got)
		if before["annotations"] == nil {
			delete(before, "annotations")
			delete(after, "annotations")
		}
		if !reflect.DeepEqual(before, after) {
			t.Fatalf("a field is lost:\n%s\n%s", c.Text(), undone)
		}
		var args []string
		for _, a := range full["process"].(map[string]any)["args"].([]any) {
			s, _ := a.(string)
			args = append(args, s)
		}
		if want := Prefix(edit.Digest); len(args) <= len(want) || !slices.Equal(args[:len(want)], want) {
			t.Fatalf("arguments %q", args)
		}
		// Only insertions: the text without them is there in one order.
		rest := got
		for _, r := range bytes.Split(c.Text(), []byte("null")) {
			for _, b := range r {
				i := bytes.IndexByte(rest, b)
				if i < 0 {
					t.Fatalf("bytes are lost:\n%s\n%s", c.Text(), got)
				}
				rest = rest[i+1:]
			}
		}
	})
}

func decode(t *testing.T, b []byte) map[string]any {
	t.Helper()
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.UseNumber()
	var v map[string]any
	if err := dec.Decode(&v); err != nil {
		t.Fatalf("%v\n%s", err, b)
	}
	return v
}

// FuzzProcess: the process file of an exec keeps every field with its bytes, starts the launcher before the program, and
// stays as it is when it is edited again.
func FuzzProcess(f *testing.F) {
	for _, s := range []string{
		`{"args":["ls"],"cwd":"/","new":{"args":[]}}`, `{ "a" : [ "}" ], "args":["\u0061\"",""] }`, `{"args":["/dev/.policyd/launch"]}`, "{\"terminal\":true,\r\n\"args\":[\"a\",\"b\"]}",
	} {
		f.Add([]byte(s))
	}
	launch := Launch{Digest: "sha256:12"}
	f.Fuzz(func(t *testing.T, text []byte) {
		got, err := EditProcess(text, launch)
		if err != nil {
			return
		}
		if again, err := EditProcess(got, launch); err != nil || !bytes.Equal(again, got) {
			t.Fatalf("edited again: %v\n%s\n%s", err, again, got)
		}
		full := decode(t, got)
		args := full["args"].([]any)
		want := launch.Prefix()
		if len(args) <= len(want) {
			t.Fatalf("arguments %q", args)
		}
		for i, w := range want {
			if args[i] != w {
				t.Fatalf("arguments %q", args)
			}
		}
		if bytes.Equal(got, text) {
			return // it had them
		}
		full["args"] = args[len(want):]
		if before := decode(t, text); !reflect.DeepEqual(before, full) {
			t.Fatalf("a field is lost:\n%s\n%s", text, got)
		}
		// One insertion, and the bytes on both sides of it are those before.
		inserted := len(got) - len(text)
		at := 0
		for at < len(text) && text[at] == got[at] {
			at++
		}
		for at > 0 && !bytes.Equal(got[at+inserted:], text[at:]) {
			at--
		}
		if !bytes.Equal(got[:at], text[:at]) || !bytes.Equal(got[at+inserted:], text[at:]) {
			t.Fatalf("bytes are changed:\n%s\n%s", text, got)
		}
	})
}
