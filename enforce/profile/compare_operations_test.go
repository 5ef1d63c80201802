package profile

import (
	"math/rand/v2"
	"testing"
)

func anyOperation(r *rand.Rand) (Operation, Facts) {
	op := Operation{Kind: OpKind(r.IntN(int(opKinds))), Path: randomPath(r), NewPath: randomPath(r), Open: OpenFlags(r.IntN(16)), Make: FileType(1 + r.IntN(7)), Port: uint16(r.IntN(30))}
	f := Facts{Type: FileType(r.IntN(8)), NewType: FileType(r.IntN(8)), Mounted: r.IntN(2) == 0, SameProcess: r.IntN(4) == 0, Bound: r.IntN(2) == 0}
	return op, f
}

// listedOperation tells whether the list has a difference for what an
// operation asks of either profile.
func listedOperation(c *Comparison, op Operation, f Facts, answers ...Answer) bool {
	switch op.Kind {
	case OpRename, OpExchange, OpLink:
		mv := Move{Old: op.Path, New: op.NewPath, OldType: f.Type, NewType: f.NewType, Mounted: f.Mounted}
		mv.Op = map[OpKind]MoveOp{OpRename: Rename, OpExchange: Exchange, OpLink: Link}[op.Kind]
		if op.Path == "/" || op.NewPath == "/" {
			return false
		}
		listed, asked := moveListed(c, mv)
		return listed || asked
	case OpMount:
		return c.Mount != Unchanged
	}
	for _, a := range answers {
		for _, q := range a.Questions[:a.Asked] {
			d := c.Scope
			switch q.Kind {
			case FS:
				d = listedPath(c, q.Path)
			case Net:
				d = listedPort(c, q.Port)
			}
			request := q.Request
			if op.Kind == OpOpen || op.Kind == OpIoctlDev {
				request |= FSTruncate | FSIoctlDev // kept with the file
			}
			if (d.Gained|d.Lost)&request != 0 {
				return true
			}
		}
	}
	return false
}

// Where nothing is listed an operation has the same answer, and where the
// answers differ something is listed that it asks for.
func TestCompareOperations(t *testing.T) {
	differ, same := 0, 0
	rounds(t, 1500, func(t *testing.T, r *rand.Rand, a *Profile) {
		if r.IntN(3) == 0 {
			a = referProfile(r)
		}
		b := changed(r, a)
		abi := 2 + r.IntN(MaxABI-1)
		c := mustCompare(t, a, b, abi)
		p, q := asEnforced(t, a, abi), asEnforced(t, b, abi)
		for range 60 {
			op, f := anyOperation(r)
			before, after := p.Decide(op, f), q.Decide(op, f)
			if before.Verdict == after.Verdict && before.Optional == after.Optional && before.Created == after.Created {
				same++
				continue
			}
			differ++
			if !listedOperation(c, op, f, before, after) {
				t.Errorf("ABI %d: %+v %+v: %v, then %v, and nothing is listed", abi, op, f, before.Verdict, after.Verdict)
			}
			if allowed := before.Verdict != Deny; before.Verdict != after.Verdict && (allowed && !c.Loses() || !allowed && !c.Gains()) {
				t.Errorf("ABI %d: %+v: %v, then %v: the wrong direction", abi, op, before.Verdict, after.Verdict)
			}
		}
	})
	if differ < 1000 || same < 1000 {
		t.Errorf("%d answers differ, %d do not: the test tests nothing", differ, same)
	}
}
