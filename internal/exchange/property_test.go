package exchange

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"policyd.dev/policyd/enforce/profile"
)

// model is landlockconfig's semantics, said again without the readers: sets of words, and paths looked up one by one.
type model struct {
	abi       int
	variables map[string][]string
	handled   [3]map[string]bool
	paths     []modelPath
	ports     []modelPort
}

type modelPath struct {
	rights  []string
	parents []string
}

type modelPort struct {
	rights []string
	ports  []int
}

var fsNames = strings.Fields("execute write_file read_file read_dir remove_dir remove_file make_char make_dir make_reg make_sock make_fifo make_block make_sym refer truncate ioctl_dev")

// expandWords replaces groups by what they stand for at an ABI.
func (m *model) expandWords(kind profile.Kind, words []string) map[string]bool {
	out := map[string]bool{}
	var all []string
	switch {
	case kind == profile.FS:
		all = fsNames[:13]
		if m.abi >= 2 {
			all = fsNames[:14]
		}
		if m.abi >= 3 {
			all = fsNames[:15]
		}
		if m.abi >= 5 {
			all = fsNames
		}
	case kind == profile.Net && m.abi >= 4:
		all = []string{"bind_tcp", "connect_tcp"}
	case kind == profile.Scope && m.abi >= 6:
		all = []string{"abstract_unix_socket", "signal"}
	}
	for _, w := range words {
		switch w {
		case "abi.all":
			for _, a := range all {
				out[a] = true
			}
		case "abi.read_write":
			for _, a := range all {
				out[a] = out[a] || a != "execute"
			}
		case "abi.read_execute":
			for _, a := range []string{"execute", "read_file", "read_dir"} {
				out[a] = true
			}
			out["refer"] = out["refer"] || m.abi >= 2
		default:
			out[w] = true
		}
	}
	maps.DeleteFunc(out, func(_ string, v bool) bool { return !v })
	return out
}

// grantsPath tells whether the rules grant a right on a path.
func (m *model) grantsPath(variables map[string][]string, path, right string) bool {
	for _, p := range m.paths {
		if !m.expandWords(profile.FS, p.rights)[right] {
			continue
		}
		for _, parent := range p.parents {
			for _, v := range variables["v"] {
				for _, w := range variables["w"] {
					full := strings.NewReplacer("${v}", v, "${w}", w, "$$", "$").Replace(parent)
					if full == "/" || path == full || strings.HasPrefix(path, full+"/") {
						return true
					}
				}
			}
		}
	}
	return false
}

func (m *model) grantsPort(port int, right string) bool {
	for _, p := range m.ports {
		if m.expandWords(profile.Net, p.rights)[right] && slices.Contains(p.ports, port) {
			return true
		}
	}
	return false
}

func some[T any](r *rand.Rand, from []T, atLeast int) []T {
	var out []T
	for range atLeast + r.IntN(3) {
		out = append(out, from[r.IntN(len(from))])
	}
	return out
}

func randomModel(r *rand.Rand) *model {
	m := &model{abi: 1 + r.IntN(7), variables: map[string][]string{"v": {"/x", "/y/z"}, "w": {"p", "q/r"}}}
	m.variables["v"] = m.variables["v"][r.IntN(2):]
	fs := append([]string{"abi.all", "abi.read_execute", "abi.read_write"}, fsNames...)
	net := []string{"abi.all", "bind_tcp", "connect_tcp"}
	scope := []string{"abi.all", "signal", "abstract_unix_socket"}
	parents := []string{"/a", "/a/b", "/", "${v}", "${v}/${w}", "/a/${w}", "/a/$${w}", "${v}${v}"}
	for kind, from := range [][]string{fs, net, scope} {
		m.handled[kind] = map[string]bool{}
		for _, w := range some(r, from, 0) {
			m.handled[kind][w] = true
		}
	}
	for range r.IntN(4) {
		m.paths = append(m.paths, modelPath{some(r, fs, 1), some(r, parents, 1)})
	}
	for range r.IntN(3) {
		m.ports = append(m.ports, modelPort{some(r, net, 1), some(r, []int{0, 80, 81, 65535}, 1)})
	}
	return m
}

// text writes the model in one of the two spellings.
func (m *model) text(toml bool) File {
	k := jsonKeys
	if toml {
		k = tomlKeys
	}
	list := func(words []string) string { return quotedList(words) }
	var parts []string
	add := func(key, value string) {
		if toml {
			parts = append(parts, key+" = "+value)
		} else {
			parts = append(parts, quoted(key)+": "+value)
		}
	}
	table := func(pairs ...string) string {
		var fields []string
		for i := 0; i < len(pairs); i += 2 {
			if pairs[i+1] == "" {
				continue
			}
			if toml {
				fields = append(fields, pairs[i]+" = "+pairs[i+1])
			} else {
				fields = append(fields, quoted(pairs[i])+": "+pairs[i+1])
			}
		}
		return "{" + strings.Join(fields, ", ") + "}"
	}
	add("abi", fmt.Sprint(m.abi))
	add(k.variable, "["+table("name", `"v"`, "literal", list(m.variables["v"]))+", "+table("name", `"w"`, "literal", list(m.variables["w"]))+"]")
	var rulesets []string
	for kind, key := range []string{k.handledFS, k.handledNet, "scoped"} {
		if words := slices.Sorted(maps.Keys(m.handled[kind])); len(words) > 0 {
			rulesets = append(rulesets, table(key, list(words)))
		}
	}
	if len(rulesets) > 0 {
		add(k.ruleset, "["+strings.Join(rulesets, ", ")+"]")
	}
	var paths, ports []string
	for _, p := range m.paths {
		paths = append(paths, table(k.allowed, list(p.rights), "parent", list(p.parents)))
	}
	for _, p := range m.ports {
		ports = append(ports, table(k.allowed, list(p.rights), "port", strings.ReplaceAll(fmt.Sprint(p.ports), " ", ", ")))
	}
	if len(paths) > 0 {
		add(k.pathBeneath, "["+strings.Join(paths, ", ")+"]")
	}
	if len(ports) > 0 {
		add(k.netPort, "["+strings.Join(ports, ", ")+"]")
	}
	if toml {
		return File{"m.toml", []byte(strings.Join(parts, "\n"))}
	}
	return File{"m.json", []byte("{" + strings.Join(parts, ",\n") + "}")}
}

// handles is the set of rights of a kind that the file handles: what it lists and what its rules grant.
func (m *model) handles(kind profile.Kind) map[string]bool {
	out := m.expandWords(kind, slices.Collect(maps.Keys(m.handled[kind])))
	if kind == profile.FS {
		for _, p := range m.paths {
			maps.Copy(out, m.expandWords(kind, p.rights))
		}
	}
	if kind == profile.Net {
		for _, p := range m.ports {
			maps.Copy(out, m.expandWords(kind, p.rights))
		}
	}
	return out
}

// layerModel is one file, or several composed.
type layerModel struct {
	handled   [3]map[string]bool
	variables map[string][]string
	files     []*model
}

func composed(files []*model) *layerModel {
	l := &layerModel{files: files, variables: map[string][]string{}}
	for _, f := range files {
		for name, values := range f.variables {
			l.variables[name] = append(l.variables[name], values...)
		}
	}
	for kind := range l.handled {
		l.handled[kind] = files[0].handles(profile.Kind(kind))
		for _, f := range files[1:] {
			other := f.handles(profile.Kind(kind))
			maps.DeleteFunc(l.handled[kind], func(k string, _ bool) bool { return !other[k] })
		}
	}
	return l
}

// allows is the answer of a layer.
func (l *layerModel) allows(kind profile.Kind, right string, grants func(*model) bool) bool {
	return !l.handled[kind][right] || slices.ContainsFunc(l.files, grants)
}

func allAllow(layers []*layerModel, f func(*layerModel) bool) bool {
	return !slices.ContainsFunc(layers, func(l *layerModel) bool { return !f(l) })
}

func (l *layerModel) restricts() bool {
	return len(l.handled[0])+len(l.handled[1])+len(l.handled[2]) > 0
}

func TestDecisionsEqualModel(t *testing.T) {
	const seed = 5
	r := rand.New(rand.NewPCG(seed, seed))
	asked, refused := 0, 0
	for i := range 400 {
		files := []*model{randomModel(r)}
		for range r.IntN(3) {
			files = append(files, randomModel(r))
		}
		o := Options{Compose: []string{ComposeUnion, ComposeLayers}[i%2]}
		var texts []File
		for j, f := range files {
			texts = append(texts, f.text(r.IntN(2) == 0))
			texts[j].Name = fmt.Sprint(j) + texts[j].Name
		}
		layers := []*layerModel{composed(files)}
		if o.Compose == ComposeLayers {
			layers = nil
			for _, f := range files {
				if l := composed([]*model{f}); l.restricts() {
					layers = append(layers, l)
				}
			}
		}
		im, err := Read("landlockconfig", texts, o)
		if restricts := len(layers) > 0 && layers[0].restricts(); !restricts {
			if err == nil {
				t.Fatalf("nothing is handled, and there is a policy: %s", texts)
			}
			refused++
			continue
		}
		if err != nil {
			t.Fatalf("%v\n%s", err, texts)
		}
		p := compiled(t, im)
		if len(p.Layers) != len(layers) {
			t.Fatalf("%d layers, want %d: %s", len(p.Layers), len(layers), texts)
		}
		asked += compareWithModel(t, p, layers, texts)
		if t.Failed() {
			return
		}
		if len(files) == 1 {
			e := throughPolicy(t, texts[0], Options{})
			again := compiled(t, read(t, "landlockconfig", Options{}, File{"x.json", e.Configs[0].JSON()}))
			compareWithModel(t, again, layers, texts)
		}
	}
	if asked < 50_000 || refused < 5 {
		t.Errorf("%d questions, %d refusals: too few to say something", asked, refused)
	}
}

func compareWithModel(t *testing.T, p *profile.Profile, layers []*layerModel, texts []File) (asked int) {
	t.Helper()
	for _, right := range fsNames {
		bit, _ := profile.RightByName(profile.FS, right)
		if right == "refer" {
			continue // always handled; below
		}
		for _, path := range []string{"/a", "/a/b/c", "/a/p", "/a/q/r/s", "/a/${w}/x", "/x", "/x/p", "/y", "/y/z/q/r", "/x/x/k", "/other"} {
			want := allAllow(layers, func(l *layerModel) bool {
				return l.allows(profile.FS, right, func(m *model) bool { return m.grantsPath(l.variables, path, right) })
			})
			if got := p.DecidePath(path, bit.Bit).Allowed; got != want {
				t.Errorf("%s on %s: %v, want %v\n%s", right, path, got, want, texts)
			}
			asked++
		}
	}
	for _, right := range []string{"bind_tcp", "connect_tcp"} {
		bit, _ := profile.RightByName(profile.Net, right)
		for _, port := range []int{0, 79, 80, 81, 65535} {
			want := allAllow(layers, func(l *layerModel) bool {
				return l.allows(profile.Net, right, func(m *model) bool { return m.grantsPort(port, right) })
			})
			if got := p.DecidePort(uint16(port), bit.Bit).Allowed; got != want {
				t.Errorf("%s on %d: %v, want %v\n%s", right, port, got, want, texts)
			}
			asked++
		}
	}
	for i, l := range layers {
		for kind, got := range [...]profile.Access{p.Layers[i].FS, p.Layers[i].Net, p.Layers[i].Scope} {
			want := slices.Sorted(maps.Keys(l.handled[kind]))
			have := profile.Kind(kind).Names(got)
			if slices.Sort(have); !slices.Equal(have, want) {
				t.Errorf("layer %d handles %v, want %v\n%s", i, have, want, texts)
			}
		}
	}
	return asked
}
