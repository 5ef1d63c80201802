package smackfs

import (
	"bytes"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"policyd.dev/policyd/internal/errs"
	"policyd.dev/policyd/smack"
)

// Attr is a Smack attribute of a file, without the prefix "security.".
type Attr string

// The attributes of files. IPIn and IPOut have a meaning on sockets alone, by descriptor ([SetSocketLabel]).
const (
	AttrAccess    Attr = "SMACK64"          // the object's label; "_" without the attribute, or what the mount says
	AttrExec      Attr = "SMACK64EXEC"      // the label that a program takes on
	AttrMmap      Attr = "SMACK64MMAP"      // the label whose rules a process that maps the file must have
	AttrTransmute Attr = "SMACK64TRANSMUTE" // TRUE: with letter t in the rule, what is made in the directory takes its label
	AttrIPIn      Attr = "SMACK64IPIN"      // of packets that are read
	AttrIPOut     Attr = "SMACK64IPOUT"     // of packets that are sent
)

// Attrs are all attributes.
var Attrs = []Attr{AttrAccess, AttrExec, AttrMmap, AttrTransmute, AttrIPIn, AttrIPOut}

// transmuteTrue is the one value of AttrTransmute.
const transmuteTrue = "TRUE"

func (a Attr) xattr() string { return "security." + string(a) }

// CheckValue tells whether the attribute may be set to a value. The kernel would cut labels, and refuses a program to
// run as * or @.
func (a Attr) CheckValue(value string) error {
	switch a {
	case AttrTransmute:
		if value != transmuteTrue {
			return fmt.Errorf("%w: %s is TRUE or is not there, not %q", errs.ErrInvalid, a, value)
		}
		return nil
	case AttrExec, AttrMmap:
		if value == smack.Star || value == smack.Web {
			return fmt.Errorf("%w: no process can have the label %s of %s", errs.ErrInvalid, value, a)
		}
	case AttrAccess, AttrIPIn, AttrIPOut:
	default:
		return fmt.Errorf("%w: %q is no Smack attribute", errs.ErrInvalid, string(a))
	}
	if err := smack.CheckLabel(value); err != nil {
		return fmt.Errorf("%w: %s: %w", errs.ErrInvalid, a, err)
	}
	return nil
}

// suits says whether an attribute means something on a file of a type (S_IFMT).
func (a Attr) suits(mode uint32) bool {
	switch mode & unix.S_IFMT {
	case unix.S_IFDIR:
		return a == AttrAccess || a == AttrTransmute
	case unix.S_IFREG:
		return a == AttrAccess || a == AttrExec || a == AttrMmap
	}
	return a == AttrAccess
}

// FileLabels gives the attributes that a file has; a symbolic link at the end of the path is not followed. On a kernel
// without Smack they are what is stored in the file system.
func FileLabels(path string) (map[Attr]string, error) {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	defer unix.Close(fd)
	out := map[Attr]string{}
	for _, a := range Attrs {
		v, ok, err := getAttr(fd, a)
		if err != nil {
			return nil, &os.PathError{Op: "getxattr " + a.xattr(), Path: path, Err: err}
		}
		if ok {
			out[a] = v
		}
	}
	return out, nil
}

// byFD names what an O_PATH descriptor holds, symbolic links themselves included.
func byFD(fd int) string { return fmt.Sprintf("/proc/self/fd/%d", fd) }

func getAttr(fd int, a Attr) (string, bool, error) {
	var buf [maxLabel + 2]byte
	n, err := ignoringEINTR(func() (int, error) { return unix.Getxattr(byFD(fd), a.xattr(), buf[:]) })
	switch err {
	case nil:
		v := string(bytes.TrimRight(buf[:n], "\x00"))
		return v, v != "", nil // newer kernels show an empty SMACK64TRANSMUTE where there is none
	case unix.ENODATA, unix.EOPNOTSUPP:
		return "", false, nil
	}
	return "", false, err
}

// setAttr sets an attribute, or removes it with value "", and holds that the kernel took the value whole.
func setAttr(fd int, a Attr, value string) error {
	var err error
	if value == "" {
		if err = unix.Removexattr(byFD(fd), a.xattr()); err == unix.ENODATA {
			return nil
		}
	} else {
		err = unix.Setxattr(byFD(fd), a.xattr(), []byte(value), 0)
	}
	switch {
	case errors.Is(err, unix.EOPNOTSUPP):
		return fmt.Errorf("%w: the file system keeps no Smack labels: %w", errs.ErrSmackRefused, err)
	case errors.Is(err, unix.EPERM):
		return fmt.Errorf("%w: %w", errs.ErrSmackPrivilege, err)
	case err != nil:
		return err
	}
	got, has, err := getAttr(fd, a)
	if err != nil {
		return err
	}
	if got != value && (has || value != "") && !(value == "" && a == AttrAccess) { // without one the kernel shows its default
		return fmt.Errorf("%w: %s is %q after setting it to %q", errs.ErrSmackRefused, a, got, value)
	}
	return nil
}

// SetSocketLabel sets AttrIPIn or AttrIPOut of a socket.
func SetSocketLabel(fd int, a Attr, label string) error {
	if a != AttrIPIn && a != AttrIPOut {
		return fmt.Errorf("%w: %s is no attribute of sockets", errs.ErrInvalid, a)
	}
	if err := a.CheckValue(label); err != nil {
		return err
	}
	if err := unix.Fsetxattr(fd, a.xattr(), []byte(label), 0); err != nil {
		if errors.Is(err, unix.EPERM) {
			return fmt.Errorf("%w: %w", errs.ErrSmackPrivilege, err)
		}
		return fmt.Errorf("%w: %s of a socket: %w", errs.ErrSmackRefused, a, err)
	}
	return nil
}

// ExecLabel gives the label that exec of a program would take on, "" for none: its SMACK64EXEC. A process with
// no_new_privs, which every sandbox has, is refused exec (EPERM) of a program whose label is not the one it has
// (smack_bprm_creds_for_exec). Only the program itself counts, not what interprets it.
func ExecLabel(path string) (string, error) {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", &os.PathError{Op: "open", Path: path, Err: err}
	}
	defer unix.Close(fd)
	label, _, err := getAttr(fd, AttrExec)
	return label, err
}
