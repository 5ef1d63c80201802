package profile

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Validate holds every rule that makes a profile one a kernel of its ABI
// accepts, and the only way to say what it says: names and paths in bounds and
// clean, masks within what the layer handles, rows sorted, unique and not
// empty. [Decode] and [Builder.Build] give nothing that fails it.
func (p *Profile) Validate() error {
	if p.Name != "" {
		if err := checkName("profile", p.Name); err != nil {
			return err
		}
	}
	if p.ABI < 1 || p.ABI > MaxABI {
		return fmt.Errorf("%w: abi %d is not within 1 to %d", ErrInvalid, p.ABI, MaxABI)
	}
	if err := p.checkSizes(); err != nil {
		return err
	}
	if err := p.checkLayers(); err != nil {
		return err
	}
	if err := p.checkPaths(); err != nil {
		return err
	}
	return p.checkPorts()
}

func (p *Profile) checkSizes() error {
	switch {
	case len(p.Layers) == 0:
		return fmt.Errorf("%w: no layers", ErrInvalid)
	case len(p.Layers) > MaxLayers:
		return fmt.Errorf("%w: %d layers, at most %d", ErrLimit, len(p.Layers), MaxLayers)
	case len(p.Paths) > MaxPathRows:
		return fmt.Errorf("%w: %d paths, at most %d", ErrLimit, len(p.Paths), MaxPathRows)
	case len(p.Ports) > MaxPortRows:
		return fmt.Errorf("%w: %d port ranges, at most %d", ErrLimit, len(p.Ports), MaxPortRows)
	case (len(p.Paths)+len(p.Ports))*len(p.Layers) > MaxMasks:
		return fmt.Errorf("%w: %d rows in %d layers, at most %d masks", ErrLimit, len(p.Paths)+len(p.Ports), len(p.Layers), MaxMasks)
	}
	return nil
}

func (p *Profile) checkLayers() error {
	seen := make(map[string]bool, len(p.Layers))
	for i := range p.Layers {
		l := &p.Layers[i]
		if err := checkName("layer", l.Name); err != nil {
			return err
		}
		if seen[l.Name] {
			return fmt.Errorf("%w: two layers named %q", ErrInvalid, l.Name)
		}
		seen[l.Name] = true
		if l.FS|l.Net|l.Scope == 0 {
			return fmt.Errorf("%w: layer %q handles nothing", ErrInvalid, l.Name)
		}
		for _, k := range [...]Kind{FS, Net, Scope} {
			if extra := l.handled(k) &^ Handled(k, p.ABI); extra != 0 {
				return fmt.Errorf("%w: layer %q handles %s %s, unknown at abi %d", ErrInvalid, l.Name, k, k.Format(extra), p.ABI)
			}
			if extra := l.quiet(k) &^ l.handled(k); extra != 0 {
				return fmt.Errorf("%w: layer %q is quiet on %s %s which it does not handle", ErrInvalid, l.Name, k, k.Format(extra))
			}
		}
		if l.QuietFS|l.QuietNet|l.QuietScope != 0 && p.ABI < abiQuiet {
			return fmt.Errorf("%w: layer %q is quiet on something, which needs abi %d, not %d", ErrInvalid, l.Name, abiQuiet, p.ABI)
		}
		if extra := l.Log &^ logFlagsKnown(p.ABI); extra != 0 {
			return fmt.Errorf("%w: layer %q has log flags %v, unknown at abi %d", ErrInvalid, l.Name, extra.Names(), p.ABI)
		}
	}
	return nil
}

func (p *Profile) checkPaths() error {
	for i := range p.Paths {
		r := &p.Paths[i]
		if err := checkPath(r.Path); err != nil {
			return err
		}
		if i > 0 && p.Paths[i-1].Path >= r.Path {
			return fmt.Errorf("%w: path %.80q is out of order", ErrInvalid, r.Path)
		}
		if !r.withinIsFolder() {
			return fmt.Errorf("%w: path %.80q: its first %d bytes name no folder above it", ErrInvalid, r.Path, r.Within)
		}
		if r.Missing > Skip {
			return fmt.Errorf("%w: path %.80q: missing is %d", ErrInvalid, r.Path, r.Missing)
		}
		if err := p.checkMasks(FS, r.Access); err != nil {
			return fmt.Errorf("path %.80q: %w", r.Path, err)
		}
	}
	return nil
}

// withinIsFolder tells whether Within ends where a component of the path does. "/" would say nothing.
func (r *PathRow) withinIsFolder() bool {
	return r.Within == 0 || r.Within > 1 && (r.Within == len(r.Path) || r.Within < len(r.Path) && r.Path[r.Within] == '/')
}

func (p *Profile) checkPorts() error {
	for i := range p.Ports {
		r := &p.Ports[i]
		if r.First > r.Last {
			return fmt.Errorf("%w: ports %d-%d: the range is empty", ErrInvalid, r.First, r.Last)
		}
		if i > 0 && p.Ports[i-1].Last >= r.First {
			return fmt.Errorf("%w: ports %d-%d are out of order", ErrInvalid, r.First, r.Last)
		}
		if i > 0 && r.continues(&p.Ports[i-1]) {
			return fmt.Errorf("%w: ports %d-%d belong to the row before", ErrInvalid, r.First, r.Last)
		}
		if err := p.checkMasks(Net, r.Access); err != nil {
			return fmt.Errorf("ports %d-%d: %w", r.First, r.Last, err)
		}
	}
	return nil
}

func (p *Profile) checkMasks(kind Kind, masks []Access) error {
	if len(masks) != len(p.Layers) {
		return fmt.Errorf("%w: %d masks for %d layers", ErrInvalid, len(masks), len(p.Layers))
	}
	var any Access
	for l, m := range masks {
		any |= m
		if extra := m &^ QuietRule &^ p.Layers[l].handled(kind); extra != 0 {
			return fmt.Errorf("%w: layer %q does not handle %s", ErrInvalid, p.Layers[l].Name, kind.Format(extra))
		}
		// EINVAL from landlock_add_rule; here by kind, since a quiet rule
		// without a mask of its kind says nothing.
		if m&QuietRule != 0 && p.Layers[l].quiet(kind) == 0 {
			return fmt.Errorf("%w: a quiet rule, but layer %q has no quiet %s mask", ErrInvalid, p.Layers[l].Name, kind)
		}
	}
	if any == 0 {
		return fmt.Errorf("%w: a row that grants nothing", ErrInvalid)
	}
	return nil
}

func checkName(what, name string) error {
	if len(name) > MaxName {
		return fmt.Errorf("%w: %s name of %d bytes, at most %d", ErrLimit, what, len(name), MaxName)
	}
	if name == "" || !utf8.ValidString(name) || strings.ContainsFunc(name, unicode.IsControl) {
		return fmt.Errorf("%w: %s name %q", ErrInvalid, what, name)
	}
	return nil
}

// checkPath wants an absolute path in its one clean spelling: no empty
// component, no "." or "..", no slash at the end but for "/", no NUL.
func checkPath(path string) error {
	if len(path) > MaxPath {
		return fmt.Errorf("%w: path %.40q... of %d bytes, at most %d", ErrLimit, path, len(path), MaxPath)
	}
	if isClean(path) {
		return nil
	}
	if len(path) > 0 && path[0] == '/' {
		for c := range strings.SplitSeq(path, "/") {
			if len(c) > MaxName {
				return fmt.Errorf("%w: path %.80q has a component of %d bytes, at most %d", ErrLimit, path, len(c), MaxName)
			}
		}
	}
	return fmt.Errorf("%w: path %.80q is not absolute and clean", ErrInvalid, path)
}

// isClean is checkPath without the reason, for the decisions. One pass.
func isClean(path string) bool {
	if len(path) == 0 || path[0] != '/' {
		return false
	}
	if len(path) == 1 {
		return true
	}
	start := 1
	for i := 1; i <= len(path); i++ {
		if i < len(path) && path[i] != '/' {
			if path[i] == 0 {
				return false
			}
			continue
		}
		switch n := i - start; {
		case n == 0, n > MaxName,
			n == 1 && path[start] == '.',
			n == 2 && path[start] == '.' && path[start+1] == '.':
			return false
		}
		start = i + 1
	}
	return true
}
