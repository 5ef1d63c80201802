package smackhost

import (
	"errors"

	"policyd.dev/policyd/internal/errs"
)

// Absent tells whether this kernel has no Smack at all, as against a smackfs that is not mounted or a policy that is not
// in force. That does not change before the next boot.
func (m *Manager) Absent() bool {
	_, err := m.cfg.Find()
	return errors.Is(err, errs.ErrSmackNotBuilt) || errors.Is(err, errs.ErrSmackDisabled)
}
