package landlock

import (
	"errors"
	"fmt"
	"strings"

	ll "github.com/landlock-lsm/go-landlock/landlock/syscall"
	"golang.org/x/sys/unix"

	"policyd.dev/policyd/enforce/profile"
	"policyd.dev/policyd/internal/errs"
)

// Build makes the rulesets of a profile on this host, with one reference for
// the caller to Release. It fails closed: with an error nothing is left open,
// and the error names every culprit:
//
//   - rights and flags the kernel lacks: errs.ErrUnsupported, or the sentinel
//     of a kernel without Landlock. With enforcement: degrade they are listed in
//     Missing instead, and a layer that keeps nothing is left out;
//   - paths that are not there: errs.ErrPathMissing, unless missing: skip;
//   - paths that must not be granted, or that lead through a link which the
//     program itself may replace: errs.ErrPathRefused, skip or not;
//   - too many layers, or flattening asked for, where the two limits of
//     flattening are met and not accepted: errs.ErrFlatten;
//   - rules, but none that has any effect here, though not all were skipped:
//     errs.ErrInvalid. Skipping all is allowed: it leaves a program with less.
func Build(p *profile.Profile, sup Support) (*Rulesets, error) {
	r := &Rulesets{profile: p, abi: sup.ABI}
	r.refs.Store(1)
	p, err := r.reduce(p, sup)
	if err != nil {
		return nil, err
	}
	if len(p.Layers) == 0 {
		return r, nil
	}
	layered := p
	asked, fromPaths := len(p.Paths)+len(p.Ports), len(p.Ports) == 0
	if p.Flatten || len(p.Layers) > profile.MaxKernelLayers {
		if p, err = r.flatten(p); err != nil {
			return nil, err
		}
	}
	rules, err := r.build(p)
	if err == nil && rules == 0 && asked > 0 && !(fromPaths && len(r.Skipped) == asked) {
		err = fmt.Errorf("%w: no rule of the policy has an effect on this host: %s", errs.ErrInvalid, r.maskedText())
	}
	if err == nil {
		err = r.refuseOwnLinks(layered)
	}
	if err != nil {
		r.close()
		return nil, err
	}
	return r, nil
}

// reduce limits the profile to what the kernel can do, or says why it does not.
func (r *Rulesets) reduce(p *profile.Profile, sup Support) (*profile.Profile, error) {
	reduced, lost := p.Reduce(sup.ABI)
	if len(lost) == 0 {
		return p, nil
	}
	if p.Degrade {
		r.Missing = lost
		return reduced, nil
	}
	var names culprits
	for _, n := range lost {
		names.add(errors.New(n.String()))
	}
	if sup.State != Available {
		return nil, fmt.Errorf("%w (the policy requires: %s)", sup.Err, names.text())
	}
	return nil, fmt.Errorf("%w: it has Landlock ABI %d: %s", errs.ErrUnsupported, sup.ABI, names.text())
}

// build creates the layers' rulesets and adds all rules, and counts them.
func (r *Rulesets) build(p *profile.Profile) (rules int, err error) {
	for i := range p.Layers {
		l := &p.Layers[i]
		fd, err := ll.LandlockCreateRuleset(&ll.RulesetAttr{
			HandledAccessFS:  uint64(l.FS),
			HandledAccessNet: uint64(l.Net),
			Scoped:           uint64(l.Scope),
			QuietAccessFS:    uint64(l.QuietFS),
			QuietAccessNet:   uint64(l.QuietNet),
			QuietScoped:      uint64(l.QuietScope),
		}, 0)
		if err != nil {
			return 0, fmt.Errorf("layer %q: landlock_create_ruleset: %w", l.Name, err)
		}
		flags := uint32(l.Log)
		if r.abi >= abiNoNewPrivs {
			flags |= ll.FlagRestrictSelfNoNewPrivs
		}
		r.layers = append(r.layers, kernelLayer{fd, flags})
		r.Layers = append(r.Layers, l.Name)
	}
	paths, err := r.addPaths(p)
	if err != nil {
		return 0, err
	}
	ports, err := r.addPorts(p)
	return paths + ports, err
}

// addPaths opens every path once and adds its rule to every layer that has one.
// It goes on after a bad path, to name them all.
func (r *Rulesets) addPaths(p *profile.Profile) (rules int, err error) {
	var bad culprits
	for i := range p.Paths {
		row := &p.Paths[i]
		o, err := openRow(row)
		switch {
		case err == nil:
		case row.Missing == profile.Skip && errors.Is(err, errs.ErrPathMissing):
			r.skip(row.Path)
			continue
		default:
			bad.add(&errs.PathError{Path: row.Path, Err: err})
			continue
		}
		n, err := r.addPath(&o, row)
		unix.Close(o.fd)
		if err != nil {
			bad.add(&errs.PathError{Path: row.Path, Err: err})
		}
		rules += n
	}
	return rules, bad.err()
}

func (r *Rulesets) skip(path string) {
	r.Skipped = append(r.Skipped, path)
	r.looks = append(r.looks, look{path: path, missing: true})
}

func (r *Rulesets) addPath(o *object, row *profile.PathRow) (rules int, err error) {
	if r.Flattened {
		// The profile has real paths now, looked at when it was flattened.
		if seen := r.seen(o); !seen {
			return 0, fmt.Errorf("%q: %w: it was replaced while the policy was being flattened", row.Path, errs.ErrPathMissing)
		}
	} else {
		r.note(o, row.Access)
	}
	for l, access := range row.Access {
		flags := 0
		if access&profile.QuietRule != 0 {
			flags = ll.FlagAddRuleQuiet
		}
		access = o.usable(access) &^ profile.QuietRule
		if access == 0 && flags == 0 {
			continue
		}
		attr := ll.PathBeneathAttr{AllowedAccess: uint64(access), ParentFd: o.fd}
		if err := ll.LandlockAddPathBeneathRule(r.layers[l].fd, &attr, flags); err != nil {
			if errors.Is(err, unix.EBADFD) {
				err = fmt.Errorf("%w: it is on an internal file system of the kernel: %w", errs.ErrPathRefused, err)
			}
			return rules, fmt.Errorf("%q: layer %q: landlock_add_rule: %w", row.Path, r.Layers[l], err)
		}
		rules++
	}
	return rules, nil
}

// usable leaves out what only a directory can have (EINVAL on anything else).
func (o *object) usable(access profile.Access) profile.Access {
	if o.look.isDir() {
		return access
	}
	return access & (profile.FileRights(profile.MaxABI) | profile.QuietRule)
}

// note remembers what a path led to and what of its rule cannot be had there.
func (r *Rulesets) note(o *object, masks []profile.Access) {
	r.looks = append(r.looks, o.look)
	if o.real != o.look.path {
		r.Links = append(r.Links, Link{o.look.path, o.real})
	}
	var lost profile.Access
	for _, access := range masks {
		lost |= access &^ o.usable(access)
	}
	if lost != 0 {
		r.Masked = append(r.Masked, Masked{o.look.path, fileType(o.look.mode), lost})
	}
}

func (r *Rulesets) addPorts(p *profile.Profile) (rules int, err error) {
	for i := range p.Ports {
		row := &p.Ports[i]
		for l, access := range row.Access {
			flags := 0
			if access&profile.QuietRule != 0 {
				flags = ll.FlagAddRuleQuiet
			}
			access &^= profile.QuietRule
			if access == 0 && flags == 0 {
				continue
			}
			for port := int(row.First); port <= int(row.Last); port++ {
				attr := ll.NetPortAttr{AllowedAccess: uint64(access), Port: uint64(port)}
				if err := ll.LandlockAddNetPortRule(r.layers[l].fd, &attr, flags); err != nil {
					return rules, fmt.Errorf("port %d: layer %q: landlock_add_rule: %w", port, r.Layers[l], err)
				}
				rules++
			}
		}
	}
	return rules, nil
}

func (r *Rulesets) maskedText() string {
	var parts []string
	for _, m := range r.Masked {
		parts = append(parts, fmt.Sprintf("%q is a %s and cannot have %s", m.Path, m.Type, profile.FS.Format(m.Access)))
	}
	return strings.Join(parts, "; ")
}

// culprits collects errors, so that one answer names them all. Past a number
// nobody reads, it only counts.
type culprits struct {
	all  []error
	more int
}

const maxCulprits = 64

func (c *culprits) add(err error) {
	if len(c.all) == maxCulprits {
		c.more++
		return
	}
	c.all = append(c.all, err)
}

func (c *culprits) text() string {
	parts := make([]string, 0, len(c.all)+1)
	for _, e := range c.all {
		parts = append(parts, e.Error())
	}
	if c.more > 0 {
		parts = append(parts, fmt.Sprintf("and %d more", c.more))
	}
	return strings.Join(parts, "; ")
}

func (c *culprits) err() error {
	if len(c.all) == 0 {
		return nil
	}
	return &multiError{c.text(), c.all}
}

// multiError is several errors on one line; errors.Is finds each.
type multiError struct {
	text string
	all  []error
}

func (m *multiError) Error() string   { return m.text }
func (m *multiError) Unwrap() []error { return m.all }
