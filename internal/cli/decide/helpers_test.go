package decide

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
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
	must(os.Symlink("../other/new", dir+"/data/dangling"))
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
	return p
}

// placed gives each row of a profile an origin: line 10 and up for paths, 100
// and up for ports, column 7.
func placed(p *profile.Profile) []*apiv1.Origin {
	var origins []*apiv1.Origin
	add := func(table apiv1.Origin_Table, line uint32, masks []profile.Access, row int) {
		for l, a := range masks {
			if a != 0 {
				origins = append(origins, &apiv1.Origin{Table: table, Row: uint32(row), Layer: uint32(l), Access: uint32(a), File: "p.yaml", Line: line + uint32(row), Column: 7, Field: "spec.layers[0].paths[0]"})
			}
		}
	}
	for i := range p.Paths {
		add(apiv1.Origin_TABLE_PATHS, 10, p.Paths[i].Access, i)
	}
	for i := range p.Ports {
		add(apiv1.Origin_TABLE_PORTS, 100, p.Ports[i].Access, i)
	}
	return origins
}

// layersPlaced gives each layer of a profile a place: lines 5, 6 and so on.
func layersPlaced(p *profile.Profile) []*apiv1.LayerPlace {
	var places []*apiv1.LayerPlace
	for l := range p.Layers {
		places = append(places, &apiv1.LayerPlace{File: "p.yaml", Line: 5 + uint32(l), Column: 3, Field: fmt.Sprintf("spec.layers[%d]", l)})
	}
	return places
}

const read = profile.FSReadFile | profile.FSReadDir

var everything = profile.Handled(profile.FS, profile.MaxABI)

func layer(name string, fs, net profile.Access) profile.Layer {
	return profile.Layer{Name: name, FS: fs, Net: net}
}

func newDecider(t *testing.T, p *profile.Profile, o Options) *Decider {
	t.Helper()
	if o.ABI == 0 {
		o.ABI = profile.MaxABI
	}
	if o.Errata == nil {
		o.Errata = AllErrata()
	}
	o.LayerPlaces = layersPlaced(p)
	d, err := New(p, placed(p), o)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// ask has a line answered; DIR stands for a folder.
func ask(t *testing.T, d *Decider, line string) *Answer {
	t.Helper()
	q, err := ParseLine(line)
	if err != nil {
		t.Fatal(err)
	}
	v, err := d.Explain(q)
	if err != nil {
		t.Fatal(err)
	}
	consistent(t, v)
	return v
}

// consistent holds what must be true of any answer.
func consistent(t *testing.T, v *Answer) {
	t.Helper()
	if (v.Errno != "") != (v.Verdict == Deny) || (len(v.Layers) > 0) != (v.Verdict == Deny) {
		t.Errorf("%s: %s with errno %q, layers %v", v.Operation, v.Verdict, v.Errno, v.Layers)
	}
	if v.Verdict == Deny && len(v.DecidedBy) == 0 {
		t.Errorf("%s: denied without a reason", v.Operation)
	}
	if b, err := json.Marshal(v); err != nil || bytes.Contains(b, []byte(":null")) {
		t.Errorf("%s: %s, %v", v.Operation, b, err)
	}
	for _, l := range v.Looks {
		if n := len(l.Steps); n > 0 && summary(l.Steps[n-1].Unfulfilled) != summary(l.Layers) {
			t.Errorf("%s: the walk of %s ends with %v, the engine says %v", v.Operation, l.Real, l.Steps[n-1].Unfulfilled, l.Layers)
		}
	}
	for _, n := range v.Notes {
		if !known(n.Code) || n.Text == "" {
			t.Errorf("%s: note %q %q", v.Operation, n.Code, n.Text)
		}
	}
}

func known(code string) bool {
	for _, c := range NoteCodes() {
		if c.Code == code {
			return true
		}
	}
	return false
}

// summary is "layer:right,right layer:..." .
func summary(layers []Layer) string {
	var out []string
	for _, l := range layers {
		out = append(out, l.Name+":"+strings.Join(l.Missing, ","))
	}
	return strings.Join(out, " ")
}

func codes(v *Answer) string {
	var out []string
	for _, n := range v.Notes {
		out = append(out, n.Code)
	}
	return strings.Join(out, " ")
}
