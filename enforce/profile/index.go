package profile

import "strings"

// Index is a second evaluator of a profile: every path row is united with the
// rows above it, so a decision is one look-up of the deepest row and one pass
// over the layers. Its answers are those of the walk. It is read-only and safe
// for concurrent use; the profile must not change under it.
type Index struct {
	united  united // by row of the profile
	p       *Profile
	paths   pathTable
	longest int     // bytes of the longest path in it
	up      []int32 // a row's nearest row above it, or -1
}

// NewIndex unites the rows of a valid profile, in time and memory linear in
// their number.
func NewIndex(p *Profile) *Index {
	ix := &Index{p: p, united: newUnited(p, len(p.Paths)), paths: newPathTable(p.Paths), up: p.rowsAbove()}
	for i := range p.Paths {
		row := &p.Paths[i]
		ix.longest = max(ix.longest, len(row.Path))
		ix.united.add(row.Access, ix.up[i]) // a path sorts after those above it, so they are united already
	}
	return ix
}

// rowsAbove finds for each row the nearest row above it, or -1, in one pass.
// In sorted order all texts that begin with s follow s at once, so a stack of
// the rows whose text the current one begins with holds all rows above it, and
// besides them only such as "/a" for "/a-b".
func (p *Profile) rowsAbove() []int32 {
	up := make([]int32, len(p.Paths))
	var stack []int32
	for i := range p.Paths {
		path := p.Paths[i].Path
		for len(stack) > 0 && !strings.HasPrefix(path, p.Paths[stack[len(stack)-1]].Path) {
			stack = stack[:len(stack)-1]
		}
		up[i] = -1
		for k := len(stack) - 1; k >= 0 && up[i] < 0; k-- {
			if above := p.Paths[stack[k]].Path; above == "/" || path[len(above)] == '/' {
				up[i] = stack[k]
			}
		}
		stack = append(stack, int32(i))
	}
	return up
}

// Profile gives the profile of the index.
func (ix *Index) Profile() *Profile { return ix.p }

// DecidePath answers as [Profile.DecidePath].
func (ix *Index) DecidePath(path string, req Access) Decision {
	if !isPath(path) {
		return badQuestion(len(ix.p.Layers))
	}
	return ix.united.decide(ix.p, ix.deepest(path), req)
}

// Locate looks up once what [Index.DecideAt] decides on many times: the row
// nearest to the path from above, as a place of this index, [Nowhere] when there
// is none (then nothing is granted). ok is false when the path is no clean one.
func (ix *Index) Locate(path string) (at Place, ok bool) {
	if !isPath(path) {
		return Nowhere, false
	}
	return Place(ix.deepest(path) + 1), true
}

// DecideAt answers as DecidePath for every path located at this place. Errno is
// EINVAL for no place of this index.
func (ix *Index) DecideAt(at Place, req Access) Decision {
	if !ix.has(at) {
		return badQuestion(len(ix.p.Layers))
	}
	return ix.united.decide(ix.p, int32(at)-1, req)
}

// AllowedAt is DecideAt without who refuses what, and takes as long for one
// layer as for many.
func (ix *Index) AllowedAt(at Place, req Access) bool {
	return ix.has(at) && ix.united.allowed(int32(at)-1, req)
}

func (ix *Index) has(at Place) bool { return at >= Nowhere && int(at) <= len(ix.up) }

// DecidePort answers as [Profile.DecidePort].
func (ix *Index) DecidePort(port uint16, req Access) Decision { return ix.p.DecidePort(port, req) }

// DecideScope answers as [Profile.DecideScope].
func (ix *Index) DecideScope(req Access, shared int) Decision { return ix.p.DecideScope(req, shared) }

// DecideMove answers as [Profile.DecideMove].
func (ix *Index) DecideMove(mv Move) MoveDecision {
	return decideMove(ix.p, ix, &mv, pathSpots(mv.Old, mv.New))
}

// deepest finds the row nearest to the path from above, or -1.
func (ix *Index) deepest(path string) int32 {
	for ; path != ""; path = parent(path) {
		if len(path) > ix.longest {
			continue
		}
		if row := ix.paths.find(path); row >= 0 {
			return row
		}
	}
	return -1
}

func (ix *Index) unfulfilled(at spot, req Access) Masks {
	return ix.united.unfulfilled(ix.deepest(at.path), req)
}

func (ix *Index) belowRoot(at spot, req Access) Masks { return ix.p.belowRoot(at, req) }
func (ix *Index) own(at spot) []Access                { return ix.p.own(at) }
