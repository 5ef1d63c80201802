package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"policyd.dev/policyd/internal/fleet"
)

// scriptFleetKeys is `fleetkeys`: settings of a fleet in fleet.yaml whose etcd
// does not answer, with keys content (two of two must sign: content, bob) and
// rollout in files of these names.
func scriptFleetKeys(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 0 {
		ts.Fatalf("usage: fleetkeys")
	}
	public := map[string]string{}
	for _, name := range []string{"content", "bob", "rollout"} {
		private, verifier, err := fleet.NewKey(name)
		ts.Check(err)
		ts.Check(fleet.WriteKey(ts.MkAbs(name+".key"), private))
		public[name] = verifier
	}
	ts.Check(os.WriteFile(ts.MkAbs("fleet.yaml"), []byte("name: prod\nendpoints: [http://127.0.0.1:1]\nchannel: stable\n"+
		"contentKeys:\n  threshold: 2\n  keys: ["+public["content"]+", "+public["bob"]+"]\n  signWith: ["+ts.MkAbs("content.key")+"]\n"+
		"rolloutKeys:\n  threshold: 1\n  keys: ["+public["rollout"]+"]\n"), 0o600))
}

func TestBar(t *testing.T) {
	for _, tc := range []struct {
		share  float64
		stages []float64
		want   string
	}{
		{0, []float64{50, 100}, "[-----|----]"},
		{50, []float64{50, 100}, "[#####-----]"},
		{20, []float64{20, 50, 80, 100}, "[##---|--|-]"},
		{100, []float64{1, 100}, "[##########]"},
		{0.5, []float64{0.5, 100}, "[----------]"},
	} {
		if got := bar(tc.share, tc.stages, 10); got != tc.want {
			t.Errorf("%v of %v: %s, want %s", tc.share, tc.stages, got, tc.want)
		}
	}
}

func TestStagesOf(t *testing.T) {
	got, err := stagesOf("1, 2.5,100%")
	if err != nil || len(got) != 3 || got[1] != 250 || got[2] != fleet.Full {
		t.Errorf("%v, %v", got, err)
	}
	for _, bad := range []string{"", "0,100", "1,1,100", "5,1,100", "1,50", "1,,100", "x", "1,101"} {
		if got, err := stagesOf(bad); err == nil {
			t.Errorf("%q: %v", bad, got)
		}
	}
}

// Settings are read as strictly as policyd reads its own.
func TestFleetSettings(t *testing.T) {
	for text, want := range map[string]string{
		"name: prod\ncolour: red\n":         "colour",
		"endpoints: x\nname: [1]\n":         "fleet.yaml",
		"contentKeys: {threshold: two}\n":   "fleet.yaml",
		"name: a\nname: b\n":                "name",
		"contentKeys:\n  keys: {a: b}\n":    "fleet.yaml",
		"rolloutKeys:\n  private: secret\n": "private",
	} {
		if _, err := parseFleetSettings("fleet.yaml", []byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
	if s, err := parseFleetSettings("fleet.yaml", nil); err != nil || s.Name != "" {
		t.Errorf("an empty file: %+v, %v", s, err)
	}
	// What is saved is read again as it was.
	f := &fleetApp{app: &app{}, file: filepath.Join(t.TempDir(), "new", "fleet.yaml")}
	want := fleetSettings{Name: "prod", Endpoints: []string{"https://[::1]:2379"}, WithoutRBAC: true, ContentKeys: keyRole{Threshold: 2, Keys: []string{"a+1+x", "b+2+y"}}}
	if err := f.save(want); err != nil {
		t.Fatal(err)
	}
	if err := f.load(); err != nil {
		t.Fatal(err)
	}
	if got := f.settings.fleetSettings; got.Name != want.Name || got.Endpoints[0] != want.Endpoints[0] || !got.WithoutRBAC || got.ContentKeys.Keys[1] != "b+2+y" {
		t.Errorf("%+v", got)
	}
	if st, err := os.Stat(f.file); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", st, err)
	}
	// The command line stands over the file.
	f.flags = fleetSettings{Name: "lab", Endpoints: []string{"http://127.0.0.1:1"}}
	if err := f.load(); err != nil || f.Name != "lab" || len(f.Endpoints) != 1 || f.Endpoints[0] != "http://127.0.0.1:1" {
		t.Errorf("%v %+v", err, f.settings)
	}
}

func TestChangesBetween(t *testing.T) {
	before := []fleet.Entry{{Kind: "A", Name: "gone", Digest: "1"}, {Kind: "A", Name: "kept", Digest: "2"}, {Kind: "A", Name: "new-text", Digest: "3"}}
	after := []fleet.Entry{{Kind: "A", Name: "kept", Digest: "2"}, {Kind: "A", Name: "more", Digest: "4"}, {Kind: "A", Name: "new-text", Digest: "5"}}
	var got []string
	for _, c := range changesBetween(before, after) {
		got = append(got, c.Change+" "+c.Name)
	}
	if text := strings.Join(got, ", "); text != "added more, changed new-text, removed gone" {
		t.Error(text)
	}
}
