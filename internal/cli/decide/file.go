package decide

import (
	"errors"
	"fmt"
	"io/fs"

	"policyd.dev/policyd/enforce/profile"
)

// File tells which layers refuse rights of kind FS on the object a path leads
// to, and what of these no rule of theirs grants; none, and all is granted. It
// asks about that object alone, as the kernel does once it has found it: not
// about its type, its interpreters or its folder, and rights that make no sense
// on it are for the caller to leave out. Of what is not there it says what would
// hold for a file of that name.
//
// What only the layer refuses that the policy's are flattened into is missing
// in each that handles it: a rule on the path in all of these grants it.
func (d *Decider) File(name string, rights profile.Access) ([]Layer, error) {
	if rights == 0 || rights&^profile.Handled(profile.FS, profile.MaxABI) != 0 {
		return nil, fmt.Errorf("%w: %#x are no rights on files", ErrQuestion, uint32(rights))
	}
	left, err := d.lacking(name, rights)
	if errors.Is(err, fs.ErrPermission) {
		err = fmt.Errorf("%w: %w", err, ErrNotSeen)
	}
	if err != nil {
		return nil, err
	}
	return d.unfulfilled(profile.FS, left), nil
}

// lacking gives per layer what it refuses.
func (d *Decider) lacking(name string, rights profile.Access) ([]profile.Access, error) {
	f, err := d.find(name, true)
	if err != nil {
		return nil, err
	}
	left, err := d.refused(f.real, rights)
	if err != nil || d.flat == nil {
		return left, err
	}
	flat, err := d.flat.refused(f.real, rights)
	if err != nil {
		return nil, err
	}
	rest := flat[0]
	for l := range left {
		left[l] &= flat[0]
		rest &^= left[l]
	}
	for l := range left {
		left[l] |= rest & d.handled(profile.FS, l)
	}
	return left, nil
}

// refused asks the engine about a real path.
func (d *Decider) refused(real string, rights profile.Access) ([]profile.Access, error) {
	g, err := d.ground(real)
	if err != nil {
		return nil, err
	}
	got := g.p.DecidePath(real, rights)
	if !got.Allowed && got.Unfulfilled.Empty() { // a path that is none
		return nil, fmt.Errorf("%.80q: %w", real, got.Errno)
	}
	return got.Unfulfilled.Slice(), nil
}
