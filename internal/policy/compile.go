package policy

import (
	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/enforce/profile"
)

// CompilerVersion changes whenever the same document may give another profile.
const CompilerVersion = 1

// CompileOptions are what a compilation needs beside the policy.
type CompileOptions struct {
	Parameters map[string]string // values of spec.parameters, one each
	Fragments  FragmentSource    // nil: the shipped fragments
	Document   *Document         // for files and lines in errors and origins; may be nil
}

// Compiled is a policy as layers.
type Compiled struct {
	Profile *profile.Profile
	Origins []*apiv1.Origin // which rule each row and layer comes from, by table, row, layer
	Process *apiv1.Process  // of the policy; nil when it has none
}

// Compile turns a checked policy into a profile. The result depends on the
// arguments alone. The error is an [*Errors].
func Compile(p *apiv1.LandlockPolicy, o CompileOptions) (*Compiled, error) { return nil, errStub }
