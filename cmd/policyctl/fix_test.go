package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/internal/cli/decide"
	"policyd.dev/policyd/internal/cli/preflight"
	"policyd.dev/policyd/internal/policy"
)

// With the proposed rules the operation is allowed, and with any of their rights
// left out it is not.
func TestFixIsEnoughAndLeast(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range []string{"/a", "/b"} {
		if err := os.Mkdir(dir+d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(dir+"/a/file", nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(dir+"/script", []byte("#!"+dir+"/a/file\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("a/file", dir+"/link"); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ question, want string }{
		{"bind tcp 8080", "app:bind_tcp@8080 net:bind_tcp@8080"},
		{"connect tcp 443", "app:connect_tcp@443"},
		{"open DIR/a/file r", "app:read_file@DIR/a/file"},
		{"open DIR/link rwt", "app:write_file,read_file,truncate@DIR/a/file"},
		{"open DIR/a/new w", "app:write_file@DIR/a"},
		{"open DIR/a/new wc", "app:make_reg,write_file@DIR/a"},
		{"open DIR/no/new w", ""},
		{"open DIR/a rd", "app:read_dir@DIR/a"},
		{"unlink DIR/a/file", "app:remove_file@DIR/a"},
		{"mkdir DIR/b/x", "app:make_dir@DIR/b"},
		{"rename DIR/a/file DIR/a/other", "app:remove_file,make_reg@DIR/a"},
		{"rename DIR/a/file DIR/b/file", ""},                                       // layer net refuses it without handling refer
		{"link DIR/a/file DIR/b/file", "app:refer@DIR/a app:make_reg,refer@DIR/b"}, // without it
		{"exec DIR/script", "app:execute,read_file@DIR/script app:execute,read_file@DIR/a/file"},
		{"signal out", ""},
		{"mount", ""},
		{"stat /etc", ""},
	} {
		t.Run(c.question, func(t *testing.T) {
			p := &apiv1.LandlockPolicy{Metadata: &apiv1.Metadata{Name: "p"}, Spec: &apiv1.LandlockSpec{Abi: 7, Layers: []*apiv1.Layer{
				{Name: "app", Scope: []string{"signal"}},
				{Name: "net", Handles: &apiv1.Handles{Net: []string{"bind_tcp"}}},
			}}}
			if strings.Contains(c.want, "refer") {
				p.Spec.Layers = p.Spec.Layers[:1]
			}
			question := strings.ReplaceAll(c.question, "DIR", dir)
			rules := proposed(t, p, question)
			var got []string
			for _, r := range rules {
				for _, x := range r.Paths {
					got = append(got, fmt.Sprintf("%s:%s@%s", r.Layer, strings.Join(x.Allow, ","), strings.ReplaceAll(x.At[0], dir, "DIR")))
				}
				for _, x := range r.Ports {
					got = append(got, fmt.Sprintf("%s:%s@%d", r.Layer, strings.Join(x.Allow, ","), x.Port))
				}
			}
			if strings.Join(got, " ") != c.want {
				t.Fatalf("fix %q, want %q", strings.Join(got, " "), c.want)
			}
			if c.want == "" {
				return
			}
			layers := map[string]*apiv1.Layer{}
			for _, l := range p.Spec.Layers {
				layers[l.Name] = l
			}
			for _, r := range rules {
				for _, x := range r.Paths {
					layers[r.Layer].Paths = append(layers[r.Layer].Paths, &apiv1.PathRule{Allow: x.Allow, At: x.At})
				}
				for _, x := range r.Ports {
					layers[r.Layer].Ports = append(layers[r.Layer].Ports, &apiv1.PortRule{Allow: x.Allow, Port: []string{fmt.Sprint(x.Port)}})
				}
			}
			if v := explained(t, p, question); !v.Allowed() {
				t.Errorf("with the rules it is still refused: %+v", v.Layers)
			}
			for _, l := range layers {
				for _, x := range l.Paths {
					if all := x.Allow; len(all) > 1 {
						x.Allow = all[1:]
						if explained(t, p, question).Allowed() {
							t.Errorf("%s on %s is not needed", all[0], x.At)
						}
						x.Allow = all
					}
				}
			}
		})
	}
}

var fixOptions = decide.Options{ABI: 7, Errata: decide.AllErrata()}

func proposed(t *testing.T, p *apiv1.LandlockPolicy, question string) []preflight.Rules {
	t.Helper()
	out, err := policy.Compile(p, policy.CompileOptions{})
	if err != nil {
		t.Fatal(err)
	}
	q, err := decide.ParseLine(question)
	if err != nil {
		t.Fatal(err)
	}
	return fix(out.Profile, fixOptions, q)
}

func explained(t *testing.T, p *apiv1.LandlockPolicy, question string) *decide.Answer {
	t.Helper()
	out, err := policy.Compile(p, policy.CompileOptions{})
	if err != nil {
		t.Fatal(err)
	}
	dec, err := decide.New(out.Profile, out.Origins, fixOptions)
	if err != nil {
		t.Fatal(err)
	}
	q, err := decide.ParseLine(question)
	if err != nil {
		t.Fatal(err)
	}
	v, err := dec.Explain(q)
	if err != nil {
		t.Fatal(err)
	}
	return v
}
