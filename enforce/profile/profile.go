package profile

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"sort"
)

// Missing says what happens when a row's path is not there at start.
type Missing uint8

// Fail is the default: nothing starts. Skip leaves the row out.
const (
	Fail Missing = iota
	Skip
)

// String gives the policy language's word, "fail" or "skip".
func (m Missing) String() string {
	if m == Skip {
		return "skip"
	}
	return "fail"
}

// Profile is a compiled policy. The rows are sorted and unique, so two
// profiles that say the same thing have the same bytes. Make one with a
// [Builder] or [Decode]; after that treat it as read-only: all methods are then
// safe for concurrent use.
type Profile struct {
	Name    string // of the policy; may be empty
	ABI     int    // that the policy was written for; covers everything used
	Degrade bool   // enforcement: degrade

	// What the policy accepts by name of the two limits of flattening.
	AcceptSharedInode  bool // two paths may name one inode
	AcceptReferFlatten bool // see Flat.Refer
	Flatten            bool // the policy asks for one flat layer

	Layers []Layer   // oldest first, names unique
	Paths  []PathRow // sorted by Path, unique
	Ports  []PortRow // sorted by First, disjoint; neighbours differ
}

// Layer is one ruleset: what it handles (denies unless a row grants it) and
// what it logs. Layers are ANDed: none can grant what another denies.
type Layer struct {
	Name           string
	FS, Net, Scope Access // handled

	// Denials of these rights are not logged where a rule with QuietRule was
	// met (for Scope: never). Subsets of what is handled, ABI 10.
	QuietFS, QuietNet, QuietScope Access
	Log                           LogFlags
}

// handled returns the layer's handled mask of a kind.
func (l *Layer) handled(k Kind) Access {
	switch k {
	case FS:
		return l.FS
	case Net:
		return l.Net
	}
	return l.Scope
}

// quiet returns the layer's quiet mask of a kind.
func (l *Layer) quiet(k Kind) Access {
	switch k {
	case FS:
		return l.QuietFS
	case Net:
		return l.QuietNet
	}
	return l.QuietScope
}

// PathRow grants rights on a file, or on a directory and all that is beneath.
type PathRow struct {
	Path    string // absolute and clean; "/" is allowed; any byte but NUL
	Missing Missing
	Access  []Access // per layer, len(Profile.Layers); 0 where the layer has no rule here
	// Within is how many bytes of Path name a folder that symbolic links must
	// not lead out of (a parameter's, which whoever starts the program chose);
	// 0: they may lead anywhere.
	Within int
}

// PortRow grants rights on the ports First to Last, both included.
type PortRow struct {
	First, Last uint16
	Access      []Access // per layer, len(Profile.Layers)
}

// continues tells whether r says of the ports right after before what before
// says of its own, so that the two must be one row.
func (r *PortRow) continues(before *PortRow) bool {
	return int(before.Last)+1 == int(r.First) && slices.Equal(before.Access, r.Access)
}

// appendPort adds the next row to sorted rows, as one with the last if it can.
func appendPort(rows []PortRow, r PortRow) []PortRow {
	if k := len(rows) - 1; k >= 0 && r.continues(&rows[k]) {
		rows[k].Last = r.Last
		return rows
	}
	return append(rows, r)
}

// HandlesFS tells whether any layer handles any fs right. In such a domain
// every layer handles refer, asked for or not, and mount, umount, pivot_root
// and move_mount are refused with EPERM (the kernel's hook_sb_mount and others).
func (p *Profile) HandlesFS() bool {
	for i := range p.Layers {
		if p.Layers[i].FS != 0 {
			return true
		}
	}
	return false
}

// handled returns what layer l handles of a kind, with the refer that a domain
// with any fs right implies. anyFS is HandlesFS.
func (p *Profile) handled(l int, k Kind, anyFS bool) Access {
	a := p.Layers[l].handled(k)
	if k == FS && anyFS {
		a |= FSRefer
	}
	return a
}

// handledFS returns what each layer handles of kind FS, with refer.
func (p *Profile) handledFS() []Access {
	handled := make([]Access, len(p.Layers))
	anyFS := p.HandlesFS()
	for l := range handled {
		handled[l] = p.handled(l, FS, anyFS)
	}
	return handled
}

// findPath returns the index of the row of exactly this path, or -1, looking
// only at the first n rows.
func (p *Profile) findPath(path string, n int) (row int, below int) {
	i := sort.Search(n, func(i int) bool { return p.Paths[i].Path >= path })
	if i < n && p.Paths[i].Path == path {
		return i, i
	}
	return -1, i
}

// findPort returns the index of the row that holds this port, or -1.
func (p *Profile) findPort(port uint16) int {
	i := sort.Search(len(p.Ports), func(i int) bool { return p.Ports[i].Last >= port })
	if i < len(p.Ports) && p.Ports[i].First <= port {
		return i
	}
	return -1
}

// Digest names encoded bytes: "sha256:" and the hash in lower-case hex.
func Digest(encoded []byte) string {
	sum := sha256.Sum256(encoded)
	return "sha256:" + hex.EncodeToString(sum[:])
}
