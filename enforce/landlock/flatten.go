package landlock

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"policyd.dev/policyd/enforce/profile"
	"policyd.dev/policyd/internal/errs"
)

// flatten makes one layer of a profile. Flattening argues along the tree of
// real paths, so every path is resolved first; then the two limits are checked.
func (r *Rulesets) flatten(p *profile.Profile) (*profile.Profile, error) {
	r.Flattened = true
	real, seen, err := r.resolve(p)
	if err != nil {
		return nil, err
	}
	flat, err := profile.Flatten(real)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errs.ErrFlatten, err)
	}
	if err := flat.CheckRefer(); err != nil {
		return nil, fmt.Errorf("%w: %w (the policy may accept it by name: refer)", errs.ErrFlatten, err)
	}
	if !p.AcceptSharedInode {
		if err := checkShared(flat.PathBound, seen); err != nil {
			return nil, err
		}
	}
	r.LogLost = flat.LogLost
	return flat.Profile, nil
}

// resolve gives the profile with real paths in place of its own, and what is
// there by real path.
func (r *Rulesets) resolve(p *profile.Profile) (*profile.Profile, map[string]look, error) {
	b := profile.NewBuilder(p.Layers)
	seen := make(map[string]look, len(p.Paths))
	var bad culprits
	for i := range p.Paths {
		row := &p.Paths[i]
		o, err := openRow(row)
		if err != nil {
			if row.Missing == profile.Skip && errors.Is(err, errs.ErrPathMissing) {
				r.skip(row.Path)
			} else {
				bad.add(&errs.PathError{Path: row.Path, Err: err})
			}
			continue
		}
		unix.Close(o.fd)
		r.note(&o, row.Access)
		seen[o.real] = o.look
		for l, access := range row.Access {
			access = o.usable(access)
			if access != 0 {
				b.AddPath(l, o.real, access&^profile.QuietRule, access&profile.QuietRule != 0, profile.Fail) // Build gives the error
			}
		}
	}
	for i := range p.Ports {
		row := &p.Ports[i]
		for l, access := range row.Access {
			if access != 0 {
				b.AddPorts(l, row.First, row.Last, access&^profile.QuietRule, access&profile.QuietRule != 0)
			}
		}
	}
	if err := bad.err(); err != nil {
		return nil, nil, err
	}
	q, err := b.Build()
	if err != nil {
		return nil, nil, fmt.Errorf("%w: %w", errs.ErrFlatten, err)
	}
	q.Name, q.ABI = p.Name, p.ABI
	q.AcceptSharedInode, q.AcceptReferFlatten = p.AcceptSharedInode, p.AcceptReferFlatten
	return q, seen, nil
}

// seen tells whether this is one of the objects flattening went by.
func (r *Rulesets) seen(o *object) bool {
	for i := range r.looks {
		if r.looks[i].same(&o.look) {
			return true
		}
	}
	return false
}

// checkShared refuses a flattening where a rule that is right only along its
// path is on an inode that has a second path: a second rule's, a hard link, or
// another mount of the same file system.
func checkShared(bound []string, seen map[string]look) error {
	if len(bound) == 0 {
		return nil
	}
	type inode struct{ dev, ino uint64 }
	byInode := make(map[inode][]string, len(seen))
	for path, l := range seen {
		byInode[inode{l.dev, l.ino}] = append(byInode[inode{l.dev, l.ino}], path)
	}
	mounts, err := readMounts()
	if err != nil {
		return fmt.Errorf("%w: %w", errs.ErrFlatten, err)
	}
	var bad culprits
	for _, path := range bound {
		l, ok := seen[path]
		if !ok {
			return fmt.Errorf("%w: %q was not resolved", errs.ErrFlatten, path)
		}
		for _, other := range byInode[inode{l.dev, l.ino}] {
			if other != path {
				bad.add(fmt.Errorf("%q and %q are one inode", path, other))
			}
		}
		if !l.isDir() && l.nlink > 1 {
			bad.add(fmt.Errorf("%q has %d hard links", path, l.nlink))
		}
		if other := mounts.alias(path, l.mnt); other != "" {
			bad.add(fmt.Errorf("%q is also mounted as %q", path, other))
		}
	}
	if err := bad.err(); err != nil {
		return fmt.Errorf("%w: a rule holds for an inode, and these have more than one path: %w (the policy may accept it by name: shared_inodes)", errs.ErrFlatten, err)
	}
	return nil
}
