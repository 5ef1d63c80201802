package policy

import apiv1 "policyd.dev/policyd/api/policyd/v1"

// ExampleParameters gives each parameter without a default a value it may have, so
// that a policy can be compiled to see whether it would: by name, absolute paths.
func ExampleParameters(p *apiv1.LandlockPolicy) map[string]string {
	out := map[string]string{}
	for _, param := range p.GetSpec().GetParameters() {
		switch within := param.GetWithin(); {
		case p.GetSpec().GetVariables()[param.GetName()] != nil:
		case len(within) > 0:
			out[param.GetName()] = within[0]
		default:
			out[param.GetName()] = "/parameter"
		}
	}
	return out
}
