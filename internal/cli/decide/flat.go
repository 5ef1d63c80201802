package decide

import (
	"fmt"
	"slices"

	"policyd.dev/policyd/enforce/profile"
)

// flatten prepares for a policy whose layers are made one before the kernel
// sees them. That is exact but for two things, which a policy must accept by
// name; if it does, the one layer is asked as well. It gives the reasons for
// which nothing would start.
func (d *Decider) flatten() (reasons []string) {
	p := d.p
	if len(p.Layers) < 2 || !p.Flatten && len(p.Layers) <= profile.MaxKernelLayers {
		return nil
	}
	var err error
	if !d.opt.Lexical {
		if p, err = d.onRealPaths(); err != nil {
			return []string{err.Error()}
		}
	}
	flat, err := profile.Flatten(p)
	if err == nil {
		err = flat.CheckRefer()
	}
	if err != nil {
		return []string{err.Error()}
	}
	if !p.AcceptReferFlatten && !p.AcceptSharedInode {
		return nil
	}
	one := *flat.Profile
	one.Flatten = false
	o := d.opt
	o.LayerPlaces = nil // the one layer stands nowhere
	if d.flat, err = New(&one, nil, o); err != nil {
		return []string{err.Error()}
	}
	return nil
}

// onRealPaths is d.p with the paths its rules lead to.
func (d *Decider) onRealPaths() (*profile.Profile, error) {
	b := profile.NewBuilder(d.p.Layers)
	for i := range d.p.Paths {
		f, err := resolve(d.p.Paths[i].Path, true)
		if err != nil {
			return nil, fmt.Errorf("path of a rule: %w", err)
		}
		for l := range d.p.Layers {
			a := d.mask(bound{row: i, file: f.kind != profile.Directory}, l)
			if f.exists() && a != 0 {
				b.AddPath(l, f.real, a&^profile.QuietRule, a&profile.QuietRule != 0, profile.Fail) // Build gives the error
			}
		}
	}
	p, err := b.Build()
	if err != nil {
		return nil, err
	}
	p.AcceptReferFlatten, p.AcceptSharedInode = d.p.AcceptReferFlatten, d.p.AcceptSharedInode
	return p, nil
}

// overrule gives what the flattened layer says where it differs from the layers.
func (x *inquiry) overrule(layered profile.Answer) (profile.Answer, error) {
	if x.d.flat == nil {
		return layered, nil
	}
	g, err := x.d.flat.ground(x.op.Path, x.op.NewPath)
	if err != nil {
		return layered, err
	}
	flat := g.p.Decide(x.op, x.facts)
	if flat.Verdict == layered.Verdict && flat.Errno == layered.Errno && flat.Created == layered.Created {
		return layered, nil
	}
	x.a.Notes = slices.DeleteFunc(x.a.Notes, func(n Note) bool { return n.Code == noteCreated })
	x.created(flat)
	x.a.note(noteFlattened, "the policy's layers are flattened into one, which answers %s where the layers answer %s, or for another reason; the policy accepts that by name", flat.Verdict, layered.Verdict)
	x.a.Verdict, x.a.Errno = flat.Verdict.String(), errnoName(flat.Errno)
	x.a.Layers, x.a.DecidedBy = []Layer{}, []Rule{}
	if flat.Verdict != profile.Deny {
		return flat, nil
	}
	m := &flat.Move
	missing := profile.Access(0)
	switch {
	case flat.Asked > 0:
		missing = flat.Questions[flat.Asked-1].Decision.Unfulfilled.At(0)
	default:
		for _, masks := range []profile.Masks{m.OldParent, m.NewParent, m.Gain, m.GainBack} {
			missing |= masks.At(0)
		}
	}
	x.a.Layers = append(x.a.Layers, Layer{profile.FlatLayer, names(profile.FS, missing)})
	x.a.DecidedBy = append(x.a.DecidedBy, Rule{Layer: profile.FlatLayer, Rights: []string{}})
	return flat, nil
}
