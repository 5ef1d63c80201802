package decide

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"syscall"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/enforce/profile"
)

// Verdict is the answer to a question. Its JSON names are an interface.
type Verdict struct {
	Question string   `json:"question"` // "open /etc/shadow r"
	Allowed  bool     `json:"allowed"`
	Errno    string   `json:"errno"`  // "EACCES", empty when allowed
	Checks   []*Check `json:"checks"` // what the kernel looks at, in order, up to the first that is refused
	Notes    []string `json:"notes"`
}

// Check is one look of the kernel: at a file, or a port.
type Check struct {
	What    string   `json:"what"`   // "file", "directory", "program", "interpreter", "port"
	Object  string   `json:"object"` // the path as asked for, or the port
	Real    string   `json:"real"`   // the path behind symbolic links
	Rights  []string `json:"rights"` // that the kernel asks for
	Allowed bool     `json:"allowed"`
	Denied  []Denial `json:"denied"`  // by layer
	Granted []Grant  `json:"granted"` // by rule, the nearest first
}

// Denial is a layer that refused, with the rights no rule of it grants.
type Denial struct {
	Layer   string   `json:"layer"`
	Missing []string `json:"missing"`
}

// Grant is a rule that granted rights in a layer.
type Grant struct {
	Layer    string   `json:"layer"`
	Rights   []string `json:"rights"`
	Rule     string   `json:"rule"` // path or ports of the rule
	File     string   `json:"file"`
	Line     uint32   `json:"line"`
	Field    string   `json:"field"` // place in the policy
	Fragment string   `json:"fragment"`
}

// Decider decides by one profile.
type Decider struct {
	p       *profile.Profile
	abi     int
	origins map[originKey][]*apiv1.Origin
	rules   map[inode][]int // rows by what they stand for on this host
	files   []bool          // per row: it is no directory
	// Skipped are the paths of rules that do not exist and may be missing.
	Skipped []string
	// Lost is what a kernel of the ABI does not enforce of the profile.
	Lost []profile.Need
}

type originKey struct {
	table apiv1.Origin_Table
	row   int
	layer int
}

// ErrNotEnforceable is returned where nothing would start under the profile.
var ErrNotEnforceable = errors.New("nothing starts under this policy here")

// New looks at the paths of the profile's rules. abi is that of the kernel to
// decide for. Where a kernel of it would refuse to start anything, the error
// wraps ErrNotEnforceable and names all reasons.
func New(p *profile.Profile, origins []*apiv1.Origin, abi int) (*Decider, error) {
	d := &Decider{p: p, abi: abi, origins: map[originKey][]*apiv1.Origin{}, rules: map[inode][]int{}, files: make([]bool, len(p.Paths))}
	var reasons []string
	_, d.Lost = p.Reduce(abi)
	for _, n := range d.Lost {
		if n.Confines() && !p.Degrade {
			reasons = append(reasons, n.String())
		}
	}
	for _, o := range origins {
		k := originKey{o.GetTable(), int(o.GetRow()), int(o.GetLayer())}
		d.origins[k] = append(d.origins[k], o)
	}
	for i, row := range p.Paths {
		id, dir, err := look(row.Path)
		switch {
		case err == nil:
			d.rules[id] = append(d.rules[id], i)
			d.files[i] = !dir
		case row.Missing == profile.Skip && isMissing(err):
			d.Skipped = append(d.Skipped, row.Path)
		default:
			reasons = append(reasons, fmt.Sprintf("path of a rule: %v", err))
		}
	}
	if len(reasons) > 0 {
		return nil, fmt.Errorf("%w:\n%s", ErrNotEnforceable, strings.Join(reasons, "\n"))
	}
	return d, nil
}

// path decides one look at a file. real must be free of symbolic links.
func (d *Decider) path(what, object, real string, req profile.Access) *Check {
	c := &Check{What: what, Object: object, Real: real, Rights: profile.FS.Names(req)}
	left := d.start(profile.FS, req)
	for at := real; ; at = filepath.Dir(at) {
		if id, _, err := look(at); err == nil {
			for _, row := range d.rules[id] {
				d.grant(c, profile.FS, left, apiv1.Origin_TABLE_PATHS, row)
			}
		}
		if at == "/" {
			break
		}
	}
	return d.finish(c, profile.FS, left)
}

// port decides one look at a port.
func (d *Decider) port(port uint16, req profile.Access) *Check {
	c := &Check{What: "port", Object: fmt.Sprint(port), Rights: profile.Net.Names(req)}
	left := d.start(profile.Net, req)
	for i, row := range d.p.Ports {
		if row.First <= port && port <= row.Last {
			d.grant(c, profile.Net, left, apiv1.Origin_TABLE_PORTS, i)
		}
	}
	return d.finish(c, profile.Net, left)
}

// start gives what each layer refuses before rules are looked at.
func (d *Decider) start(kind profile.Kind, req profile.Access) []profile.Access {
	left := make([]profile.Access, len(d.p.Layers))
	for i, l := range d.p.Layers {
		handled := l.FS
		if kind == profile.Net {
			handled = l.Net
		}
		left[i] = req & handled & profile.Handled(kind, d.abi)
	}
	return left
}

// grant takes away what a row grants, and remembers by which rules.
func (d *Decider) grant(c *Check, kind profile.Kind, left []profile.Access, table apiv1.Origin_Table, row int) {
	var masks []profile.Access
	var name string
	if table == apiv1.Origin_TABLE_PATHS {
		masks, name = d.p.Paths[row].Access, d.p.Paths[row].Path
	} else {
		r := d.p.Ports[row]
		masks, name = r.Access, fmt.Sprint(r.First)
		if r.Last != r.First {
			name += fmt.Sprintf("-%d", r.Last)
		}
	}
	for l := range left {
		got := left[l] & masks[l] &^ profile.QuietRule
		if table == apiv1.Origin_TABLE_PATHS && d.files[row] {
			got &= profile.FileRights(d.abi)
		}
		if got == 0 {
			continue
		}
		left[l] &^= got
		g := Grant{Layer: d.p.Layers[l].Name, Rule: name}
		known := false
		for _, o := range d.origins[originKey{table, row, l}] {
			if a := profile.Access(o.GetAccess()) & got; a != 0 {
				g.Rights, g.File, g.Line, g.Field, g.Fragment = kind.Names(a), o.GetFile(), o.GetLine(), o.GetField(), o.GetFragment()
				c.Granted = append(c.Granted, g)
				known = true
			}
		}
		if !known {
			g.Rights = kind.Names(got)
			c.Granted = append(c.Granted, g)
		}
	}
}

func (d *Decider) finish(c *Check, kind profile.Kind, left []profile.Access) *Check {
	c.Allowed = true
	for l, a := range left {
		if a != 0 {
			c.Allowed = false
			c.Denied = append(c.Denied, Denial{d.p.Layers[l].Name, kind.Names(a)})
		}
	}
	return c
}

// verdict sums checks up.
func verdict(question string, checks []*Check, notes ...string) *Verdict {
	v := &Verdict{Question: question, Allowed: true, Checks: checks, Notes: notes}
	for _, c := range checks {
		if !c.Allowed {
			v.Allowed = false
			v.Errno = errnoName(syscall.EACCES)
		}
	}
	return v
}

// errnoName is the name of the only errno that open, execve, bind, connect and
// sendto give for Landlock.
func errnoName(e syscall.Errno) string {
	if e == syscall.EACCES {
		return "EACCES"
	}
	return e.Error()
}
