package spawn

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"policyd.dev/policyd/internal/errs"
	smacklabel "policyd.dev/policyd/smack/label"
)

const smackCurrent = "/proc/thread-self/attr/smack/current"

// setSmackLabel gives the calling thread a label, which its child inherits, and
// reads back what the kernel made of it.
//
// The label is checked before: kernels before 6.12 cut it at a byte they dislike
// and make the label that is left, which is never freed.
func setSmackLabel(label string) error {
	if err := smacklabel.Check(label); err != nil {
		return fmt.Errorf("%w: %w", errs.ErrSmackUnavailable, err)
	}
	if err := step(stepSmackOpen); err != nil {
		return err
	}
	f, err := os.OpenFile(smackCurrent, os.O_RDWR, 0)
	if err != nil {
		return fmt.Errorf("%w: label %q: %w", errs.ErrSmackUnavailable, label, err)
	}
	defer f.Close()
	if err := step(stepSmackWrite); err != nil {
		return err
	}
	if _, err := f.WriteString(label); err != nil {
		return fmt.Errorf("%w: label %q: %w", errs.ErrSmackUnavailable, label, err)
	}
	if err := step(stepSmackRead); err != nil {
		return err
	}
	var buf [512]byte
	n, err := f.ReadAt(buf[:], 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("%w: reading the label back: %w", errs.ErrSmackUnavailable, err)
	}
	if got := bytes.TrimRight(buf[:n], "\n\x00"); string(got) != label {
		return fmt.Errorf("%w: asked for label %q and got %q", errs.ErrSmackUnavailable, label, got)
	}
	return nil
}

// SetThreadLabel is what a start does about the Smack label, for a caller that
// becomes the program itself: the calling goroutine must be locked to its thread.
func SetThreadLabel(label string) error { return setSmackLabel(label) }

const smackRelabelSelf = "/sys/fs/smackfs/relabel-self"

// setSmackRelabel gives the calling thread, which has the label, a list of labels
// of which it may take one without privilege, and reads it back. The child
// inherits it, also through exec.
//
// It comes after the label, since the kernel forgets the list when a thread's
// label changes (do_setattr in smack_lsm.c). So the privilege is asked of the new
// label: with an onlycap that leaves it out, no list can be given.
func setSmackRelabel(label string, labels []string) error {
	if len(labels) == 0 {
		return nil
	}
	for _, l := range labels {
		if err := smacklabel.Check(l); err != nil {
			return fmt.Errorf("%w: %w", errs.ErrSmackUnavailable, err)
		}
	}
	if err := step(stepRelabel); err != nil {
		return err
	}
	f, err := os.OpenFile(smackRelabelSelf, os.O_RDWR, 0)
	if err != nil {
		return fmt.Errorf("%w: the labels that label %q may take: %w", errs.ErrSmackUnavailable, label, err)
	}
	defer f.Close()
	if _, err := f.WriteString(strings.Join(labels, " ")); errors.Is(err, unix.EPERM) {
		return fmt.Errorf("%w: relabelSelf cannot be given to label %q: CAP_MAC_ADMIN is missing, or onlycap does not name the label: %w", errs.ErrSmackUnavailable, label, err)
	} else if err != nil {
		return fmt.Errorf("%w: the labels that label %q may take: %w", errs.ErrSmackUnavailable, label, err)
	}
	b, err := os.ReadFile(smackRelabelSelf)
	if err != nil {
		return fmt.Errorf("%w: reading back the labels that label %q may take: %w", errs.ErrSmackUnavailable, label, err)
	}
	want := slices.Compact(slices.Sorted(slices.Values(labels)))
	if got := slices.Compact(slices.Sorted(slices.Values(strings.Fields(string(b))))); !slices.Equal(got, want) {
		return fmt.Errorf("%w: label %q should be able to take %q and got %q", errs.ErrSmackUnavailable, label, want, got)
	}
	return nil
}

// explainSmackExec tells why Smack refuses exec of a program (an absolute path)
// to a thread with a label, "" for policyd's own: the program's SMACK64EXEC is
// another one, and with no_new_privs no label is taken on
// (smack_bprm_creds_for_exec). "" when that is not why, as far as can be read.
func explainSmackExec(label, path string) string {
	if label == "" {
		b, err := os.ReadFile(smackCurrent)
		if err != nil {
			return ""
		}
		label = string(bytes.TrimRight(b, "\n\x00"))
	}
	var buf [512]byte
	n, err := unix.Getxattr(path, "security.SMACK64EXEC", buf[:])
	takes := string(bytes.TrimRight(buf[:max(n, 0)], "\x00"))
	if err != nil || takes == "" || takes == label {
		return ""
	}
	return fmt.Sprintf("the program's SMACK64EXEC is %q and the sandbox's label %q: under no_new_privs the kernel lets no program take on another label; start it with the label %q, or remove the attribute", takes, label, takes)
}
