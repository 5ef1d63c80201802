package policy

import (
	"errors"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
)

var errStub = errors.New("not yet")

// Errors is every error found in a file, a document or a compilation, in the
// order of the text. It is errs.ErrInvalid, or errs.ErrTooLarge where a limit
// of size was passed.
type Errors struct {
	findings []*apiv1.Finding
}

// Error gives every finding on lines of its own: place, message, field, then
// the line of the text with a caret below the column.
func (e *Errors) Error() string { return errStub.Error() }

// Findings returns the errors as messages; severity is always an error.
func (e *Errors) Findings() []*apiv1.Finding { return e.findings }

// FormatFinding gives one finding as people read it, without a final newline.
func FormatFinding(f *apiv1.Finding) string { return f.GetMessage() }
