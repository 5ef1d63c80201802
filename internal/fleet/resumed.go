package fleet

import (
	"fmt"
	"time"

	"policyd.dev/policyd/internal/errs"
)

// Resumed is who took a hold away last, and why: for people alone, nothing follows from it. It is not signed.
type Resumed struct {
	By  string    `json:"by"`
	Why string    `json:"why,omitempty"`
	At  time.Time `json:"at"`
}

// Check holds what is true of every Resumed.
func (r *Resumed) Check() error {
	if r.By == "" {
		return fmt.Errorf("%w: resumed: by nobody", errs.ErrInvalid)
	}
	return nil
}

// Resumed is the key of who took the hold of a channel away last; "" for that of the whole fleet.
func (l Layout) Resumed(channel string) string {
	if channel == "" {
		return l.Control() + "resumed"
	}
	return l.Control() + "resumed/" + channel
}
