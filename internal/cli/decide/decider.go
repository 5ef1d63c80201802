package decide

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/enforce/profile"
)

var (
	// ErrNotEnforceable is returned where nothing would start under the profile.
	ErrNotEnforceable = errors.New("nothing starts under this policy here")

	// ErrNotSeen is returned where this process may not look at a path that
	// matters. [Options.Lexical] needs no look.
	ErrNotSeen = errors.New("may not be looked at by this user")

	// ErrNotAsked is returned where the kernel refuses an operation before
	// Landlock is asked. The error wraps the errno.
	ErrNotAsked = errors.New("refused whatever the policy says")
)

// Options say for which kernel and host to decide.
type Options struct {
	// ABI of the kernel decided for, from 1 to profile.MaxABI.
	ABI int
	// Errata are the numbers of the errata that kernel has mended
	// (landlock.Support.Errata); nil with Lexical is all.
	Errata []int
	// Lexical decides on the text alone: no look at this host.
	Lexical bool
	// Base is the folder relative paths begin at; "" refuses them.
	Base string
	// LayerPlaces are where the layers of the profile stand in the policy's
	// text, one each; nil: answers name layers alone.
	LayerPlaces []*apiv1.LayerPlace
}

// Decider decides by one profile. It may be used by several goroutines.
type Decider struct {
	given   *profile.Profile // as the policy says
	p       *profile.Profile // what the kernel enforces of it
	layers  []int            // of p: their indices in given
	rows    []int            // of p.Paths: their indices in given
	opt     Options
	origins map[originKey][]*apiv1.Origin
	places  []Rule            // by layer of p: its name and where it stands
	rules   map[inode][]bound // rows of p by what they stand for on this host
	flat    *Decider          // of the one layer the kernel gets, where that may differ

	// Skipped are the paths of rules that do not exist and may be missing.
	Skipped []string
	// Lost is what a kernel of the ABI does not enforce of the profile.
	Lost []profile.Need
}

type originKey struct {
	table apiv1.Origin_Table
	row   int // of the profile given
	layer int
}

// New makes a decider. origins may be nil: then nothing tells where rules
// stand. Unless lexical, it looks at the paths of the rules now, and rules stay
// with the inodes they have. Where a kernel of the ABI would refuse to start
// anything, the error wraps [ErrNotEnforceable] and names all reasons.
func New(p *profile.Profile, origins []*apiv1.Origin, o Options) (*Decider, error) {
	if o.ABI < 1 || o.ABI > profile.MaxABI {
		return nil, fmt.Errorf("ABI %d: want 1 to %d", o.ABI, profile.MaxABI)
	}
	if o.Lexical && o.Errata == nil {
		o.Errata = AllErrata()
	}
	if n := len(o.LayerPlaces); n > 0 && n != len(p.Layers) {
		return nil, fmt.Errorf("places of %d layers for a profile of %d", n, len(p.Layers))
	}
	d := &Decider{given: p, opt: o, origins: map[originKey][]*apiv1.Origin{}}
	for _, o := range origins {
		k := originKey{o.GetTable(), int(o.GetRow()), int(o.GetLayer())}
		d.origins[k] = append(d.origins[k], o)
	}
	d.p, d.Lost = p.Reduce(o.ABI)
	var reasons []string
	for _, n := range d.Lost {
		if n.Confines() && !p.Degrade {
			reasons = append(reasons, n.String())
		}
	}
	d.match()
	if !o.Lexical {
		bad, err := d.bind()
		if err != nil {
			return nil, err
		}
		reasons = append(reasons, bad...)
	}
	if len(reasons) == 0 {
		reasons = d.flatten()
	}
	if len(reasons) > 0 {
		return nil, fmt.Errorf("%w:\n%s", ErrNotEnforceable, strings.Join(reasons, "\n"))
	}
	d.placeLayers()
	return d, nil
}

// match finds the layers and rows of what is enforced in what was given; both
// are in the same order.
func (d *Decider) match() {
	i := 0
	for l := range d.p.Layers {
		for d.given.Layers[i].Name != d.p.Layers[l].Name {
			i++
		}
		d.layers = append(d.layers, i)
	}
	i = 0
	d.rows = make([]int, len(d.p.Paths))
	for r := range d.p.Paths {
		for d.given.Paths[i].Path != d.p.Paths[r].Path {
			i++
		}
		d.rows[r] = i
	}
}

// placeLayers takes the places of the layers that are enforced.
func (d *Decider) placeLayers() {
	d.places = make([]Rule, len(d.p.Layers))
	for l, given := range d.layers {
		r := Rule{Layer: d.p.Layers[l].Name, Rights: []string{}}
		if len(d.opt.LayerPlaces) > 0 {
			p := d.opt.LayerPlaces[given]
			r.File, r.Line, r.Column, r.Field = p.GetFile(), p.GetLine(), p.GetColumn(), p.GetField()
		}
		d.places[l] = r
	}
}

// bind looks where the rules' paths lead now. It gives the reasons for which
// nothing would start.
func (d *Decider) bind() (reasons []string, err error) {
	var unseen []string
	d.rules = make(map[inode][]bound, len(d.p.Paths))
	for i := range d.p.Paths {
		row := &d.p.Paths[i]
		o, err := lookAt(row.Path, true)
		if err == nil && row.Within > 0 {
			err = staysWithin(row.Path, row.Path[:row.Within])
		}
		if err == nil {
			err = d.bindRow(i, row.Path, o)
		}
		switch {
		case err == nil:
		case row.Missing == profile.Skip && isMissing(err):
			d.Skipped = append(d.Skipped, row.Path)
		case errors.Is(err, fs.ErrPermission):
			unseen = append(unseen, row.Path)
		default:
			reasons = append(reasons, fmt.Sprintf("path of a rule: %v", err))
		}
	}
	if len(unseen) > 0 {
		return nil, fmt.Errorf("rules on %s: %w", strings.Join(unseen, ", "), ErrNotSeen)
	}
	return reasons, nil
}

// staysWithin refuses a path of a parameter that symbolic links lead out of the
// folder whoever wrote the policy put it in.
func staysWithin(path, folder string) error {
	p, err := resolve(path, true)
	if err != nil {
		return err
	}
	f, err := resolve(folder, true)
	if err != nil {
		return err
	}
	if p.real != f.real && !strings.HasPrefix(p.real, strings.TrimSuffix(f.real, "/")+"/") {
		return fmt.Errorf("%s leads to %s, out of %s, which a parameter must lie within", path, p.real, folder)
	}
	return nil
}

// mended tells whether the kernel has an erratum mended.
func (d *Decider) mended(erratum int) bool { return slices.Contains(d.opt.Errata, erratum) }

// The errata of Landlock that matter here.
const (
	errataTCP      = 1 // only TCP sockets are taken for TCP
	errataWhiteout = 4 // a whiteout is made as a regular file
)

// AllErrata gives the numbers of all errata this package knows.
func AllErrata() []int { return []int{1, 2, 3, 4} }
