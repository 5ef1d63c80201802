package server

import (
	"fmt"
	"maps"
	"slices"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/enforce/oci"
	"policyd.dev/policyd/internal/errs"
)

// annotate adds the values of parameters that the workload's annotations give. Whoever writes those is not who wrote the
// Binding, so they change nothing that it sets.
func (b *bound) annotate(w *apiv1.Workload) error {
	given, err := oci.Parameters(w.GetAnnotations(), w.GetContainer())
	if err != nil || len(given) == 0 {
		return err
	}
	all := maps.Clone(b.parameters)
	if all == nil {
		all = map[string]string{}
	}
	for _, name := range slices.Sorted(maps.Keys(given)) {
		if _, set := all[name]; set {
			return fmt.Errorf("%w: annotation %s: parameter %s is set by Binding %s, and no annotation changes that", errs.ErrInvalid, given[name].Annotation, name, b.name())
		}
		all[name] = given[name].Value
	}
	b.parameters, b.annotated = all, given
	return nil
}

// checkAnnotated holds values by annotation against a policy: only where it says within what a parameter may be is it
// meant to be chosen by whoever starts the workload.
func (b *bound) checkAnnotated(p *apiv1.LandlockPolicy) error {
	for _, name := range slices.Sorted(maps.Keys(b.annotated)) {
		for _, param := range p.GetSpec().GetParameters() {
			if param.GetName() == name && len(param.GetWithin()) == 0 {
				return fmt.Errorf("%w: annotation %s: parameter %s of the policy has no within, so only a Binding may set it", errs.ErrInvalid, b.annotated[name].Annotation, name)
			}
		}
	}
	return nil
}
