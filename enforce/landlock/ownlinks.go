package landlock

import (
	"errors"
	"fmt"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"policyd.dev/policyd/enforce/profile"
	"policyd.dev/policyd/internal/errs"
)

// refuseOwnLinks refuses rules whose path leads through a symbolic link that the
// sandboxed program may itself replace and that grant it more than it has where
// the link lies: with a link planted by one run the next one would be wider.
// p is the profile as it is enforced, before flattening; its links are in r.Links.
func (r *Rulesets) refuseOwnLinks(p *profile.Profile) error {
	if len(r.Links) == 0 {
		return nil
	}
	targets := make(map[string]string, len(r.Links))
	for _, l := range r.Links {
		targets[l.Rule] = l.Target
	}
	real, err := onRealPaths(p, targets)
	if err != nil {
		return err
	}
	var bad culprits
	for i := range p.Paths {
		row := &p.Paths[i]
		if _, linked := targets[row.Path]; !linked {
			continue
		}
		var rule profile.Access
		for _, access := range row.Access {
			rule |= access &^ profile.QuietRule
		}
		for _, dir := range linksOn(row.Path) {
			has := grantedOn(real, dir)
			if has&profile.FSMakeSym != 0 && rule&^has != 0 {
				bad.add(&errs.PathError{Path: row.Path, Err: fmt.Errorf("%q: %w: it leads through a symbolic link in %s, where the policy lets the program make links: grant %s, or what it leads to, by its own path",
					row.Path, errs.ErrPathRefused, dir, targets[row.Path])})
				break
			}
		}
	}
	return bad.err()
}

// onRealPaths is the profile with each linked row where its link leads.
func onRealPaths(p *profile.Profile, targets map[string]string) (*profile.Profile, error) {
	b := profile.NewBuilder(p.Layers)
	for i := range p.Paths {
		row := &p.Paths[i]
		at := row.Path
		if t, linked := targets[at]; linked {
			at = t
		}
		for l, access := range row.Access {
			if access != 0 {
				b.AddPath(l, at, access&^profile.QuietRule, access&profile.QuietRule != 0, profile.Skip)
			}
		}
	}
	return b.Build()
}

// grantedOn gives the handled rights that all layers together grant on a real path.
func grantedOn(p *profile.Profile, real string) profile.Access {
	var handled, granted profile.Access
	for i := range p.Layers {
		handled |= p.Layers[i].FS
	}
	for bit := profile.Access(1); bit <= handled; bit <<= 1 {
		if handled&bit != 0 && p.DecidePath(real, bit).Allowed {
			granted |= bit
		}
	}
	return granted
}

// maxLinks is how many symbolic links the kernel follows on one path (MAXSYMLINKS).
const maxLinks = 40

// linksOn gives the real paths of the folders that hold the symbolic links on
// the way of a path, as path_resolution(7) finds them.
func linksOn(name string) (dirs []string) {
	todo := strings.Split(name, "/")
	at := "/"
	buf := make([]byte, unix.PathMax)
	for len(todo) > 0 {
		part := todo[0]
		todo = todo[1:]
		switch part {
		case "", ".":
			continue
		case "..":
			at = path.Dir(at)
			continue
		}
		next := path.Join(at, part)
		n, err := unix.Readlink(next, buf)
		if errors.Is(err, unix.EINVAL) { // no link
			at = next
			continue
		}
		if err != nil || len(dirs) == maxLinks {
			return dirs // gone meanwhile: the path was opened before, what counts is what it led to then
		}
		dirs = append(dirs, at)
		target := string(buf[:n])
		if path.IsAbs(target) {
			at = "/"
		}
		todo = append(strings.Split(target, "/"), todo...)
	}
	return dirs
}
