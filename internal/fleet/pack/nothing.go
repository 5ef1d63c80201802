package pack

import (
	"fmt"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/internal/errs"
)

// nothing has no fragment: a bundle is read without those of the host.
type nothing struct{}

// Fragment implements policy.FragmentSource.
func (nothing) Fragment(name string) (*apiv1.Fragment, error) {
	return nil, fmt.Errorf("fragment %s: %w in the bundle", name, errs.ErrNotFound)
}
