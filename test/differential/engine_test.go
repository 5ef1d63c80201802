package differential_test

import (
	"fmt"
	"syscall"

	"policyd.dev/policyd/enforce/profile"
)

// engine is every form of the profile that must answer alike.
type engine struct {
	walk  *profile.Profile
	index *profile.Index
	flat  *profile.Profile
	tree  *grove
}

func (st *stage) newEngine() (*engine, error) {
	p, err := st.m.profile(st.h.port, true)
	if err != nil {
		return nil, err
	}
	f, err := profile.Flatten(p)
	if err != nil {
		return nil, err
	}
	return &engine{p, profile.NewIndex(p), f.Profile, newGrove(p)}, nil
}

// decide asks all forms; the text says where they differ among one another.
func (e *engine) decide(op profile.Operation, f profile.Facts) (profile.Answer, string) {
	a, ix := e.walk.Decide(op, f), e.index.Decide(op, f)
	if a.Verdict != ix.Verdict || a.Errno != ix.Errno || a.Optional != ix.Optional || a.Created != ix.Created || a.Move.Errno != ix.Move.Errno {
		return a, fmt.Sprintf("the walk answers %v %s, the index %v %s", a.Verdict, errnoName(a.Errno), ix.Verdict, errnoName(ix.Errno))
	}
	tree, err := e.tree.decide(op, f)
	if err != nil {
		return a, err.Error()
	}
	if a.Verdict != tree.Verdict || a.Errno != tree.Errno || a.Optional != tree.Optional || a.Created != tree.Created {
		return a, fmt.Sprintf("the walk answers %v %s, the tree of objects %v %s", a.Verdict, errnoName(a.Errno), tree.Verdict, errnoName(tree.Errno))
	}
	if f.Shared > 0 {
		if f.Shared < len(e.walk.Layers) {
			return a, "" // flat, there is nothing between none and all
		}
		f.Shared = 1
	}
	flat := e.flat.Decide(op, f)
	weaker := a.Errno == syscall.EXDEV && flat.Errno == 0 // profile.Flat.Refer
	if (a.Errno != flat.Errno || a.Optional != flat.Optional) && !weaker {
		return a, fmt.Sprintf("the layers answer %v %s, flattened %v %s", a.Verdict, errnoName(a.Errno), flat.Verdict, errnoName(flat.Errno))
	}
	return a, ""
}
