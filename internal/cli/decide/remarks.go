package decide

import (
	"strings"

	"policyd.dev/policyd/enforce/profile"
)

func noteLink(x *inquiry, given string, f *found) {}

// unknownRights notes rights that are asked but that nothing refuses.
func (x *inquiry) unknownRights(kind profile.Kind, req profile.Access) {
	handled := profile.Access(0)
	for l := range x.d.p.Layers {
		handled |= x.d.handled(kind, l)
	}
	for _, r := range profile.Rights() {
		if r.Kind != kind || req&r.Bit == 0 || handled&r.Bit != 0 {
			continue
		}
		if r.ABI > x.d.opt.ABI {
			x.a.note(noteNotEnforced, "a kernel of ABI %d does not know %s (it is of ABI %d, linux %s): nothing refuses it", x.d.opt.ABI, r.Name, r.ABI, profile.KernelOf(r.ABI))
		} else {
			x.a.note(noteNotHandled, "no layer handles %s: nothing refuses it", r.Name)
		}
	}
}

// remark adds the notes that depend on the answer as a whole.
func (x *inquiry) remark() {
	_ = strings.Join
}
