package containers

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"strings"
	"syscall"

	smacklabel "policyd.dev/policyd/smack/label"
)

// ErrSmack: a program cannot be given its Smack label here; nothing may be started then.
var ErrSmack = errors.New("the container cannot get its Smack label")

const relabelSelf = "/sys/fs/smackfs/relabel-self"

// AllowLabel lets what the calling thread becomes by exec, and the descendants of that, take a Smack label once
// without privilege: so the launcher can in a container, which has neither smackfs nor CAP_MAC_ADMIN. It needs
// CAP_MAC_ADMIN itself. The calling goroutine stays on its thread, whose the list is, and must be the one that calls
// exec. "" is no label, and does nothing. Errors wrap ErrSmack.
//
// The kernel keeps the list with the credentials over fork and exec (smack_cred_prepare) and forgets it with the first
// change of the label (do_setattr in smack_lsm.c).
func AllowLabel(label string) error {
	if label == "" {
		return nil
	}
	refuse := func(err error) error { return fmt.Errorf("%w %q: %w", ErrSmack, label, err) }
	if err := smacklabel.Check(label); err != nil {
		return refuse(err) // the kernel cuts what it dislikes, and makes the label that is left
	}
	if label == smacklabel.Star || label == smacklabel.Web {
		return refuse(errors.New("no process can have it"))
	}
	runtime.LockOSThread()
	f, err := os.OpenFile(relabelSelf, os.O_WRONLY, 0)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return refuse(fmt.Errorf("this kernel has no Smack, or smackfs is not mounted: %w", err))
	case err != nil:
		return refuse(err)
	}
	_, err = f.WriteString(label)
	err = errors.Join(err, f.Close())
	switch {
	case errors.Is(err, syscall.EPERM):
		return refuse(fmt.Errorf("CAP_MAC_ADMIN is missing, or onlycap does not name the label of the runtime: %w", err))
	case err != nil:
		return refuse(err)
	}
	have, err := os.ReadFile(relabelSelf)
	if err != nil {
		return refuse(err)
	}
	if got := strings.Fields(string(have)); len(got) != 1 || got[0] != label {
		return refuse(fmt.Errorf("the kernel took %q for it", have))
	}
	return nil
}
