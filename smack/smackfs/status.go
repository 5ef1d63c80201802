package smackfs

import (
	"errors"

	"golang.org/x/sys/unix"

	"policyd.dev/policyd/smack"
)

// Status is what smackfs and the caller are like.
type Status struct {
	Label   string // of the calling thread
	Onlycap []string
	// Writable says why the caller can change nothing, nil when it can.
	Writable error
	Kernel   smack.Kernel // what decisions depend on beside rules
	Rules    int          // that the kernel shows
	Labels   int          // none is freed before the next boot
}

// Look reads the status. What is loaded beside the wanted rules is in the report of a [Load] with DryRun.
func Look(fs FS) (*Status, error) {
	s := &Status{Writable: CanWrite(fs)}
	s.Label, _ = callerOf(fs)
	var err error
	if s.Onlycap, err = readLabels(fs, fileOnlycap); err != nil {
		return nil, explain(fs, err)
	}
	unconfined, err := readLabels(fs, fileUnconf)
	switch {
	case errors.Is(err, unix.ENOENT): // the file is of kernels built for bring-up alone
	case err != nil:
		return nil, explain(fs, err)
	default:
		s.Kernel.Bringup = true
		if len(unconfined) > 0 {
			s.Kernel.Unconfined = unconfined[0]
		}
	}
	rules, err := ReadRules(fs)
	if err != nil {
		return nil, err
	}
	labels, err := KernelLabels(fs)
	if err != nil {
		return nil, err
	}
	s.Rules, s.Labels = rules.Len(), len(labels)
	return s, nil
}
