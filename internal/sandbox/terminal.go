package sandbox

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/enforce/spawn"
)

// maxWindow is the largest number of rows or columns (struct winsize has 16 bits).
const maxWindow = 1<<16 - 1

// openTerminal makes a pseudo terminal of the given size whose slave side belongs to
// the child's user, as a login would have it. The slave is opened through the master
// (TIOCGPTPEER, ioctl_tty(2)), so that the name in whatever devpts is mounted does not
// matter.
func openTerminal(size *apiv1.Terminal, cred *spawn.Credential) (*stdio, error) {
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("terminal: %w", &os.PathError{Op: "open", Path: "/dev/ptmx", Err: err})
	}
	master := os.NewFile(uintptr(fd), "/dev/ptmx")
	slave, err := openSlave(fd, size, cred)
	if err != nil {
		master.Close()
		return nil, fmt.Errorf("terminal: %w", err)
	}
	return &stdio{child: [3]*os.File{slave, slave, slave}, in: master, out: master, term: true}, nil
}

func openSlave(master int, size *apiv1.Terminal, cred *spawn.Credential) (*os.File, error) {
	if err := unix.IoctlSetPointerInt(master, unix.TIOCSPTLCK, 0); err != nil {
		return nil, os.NewSyscallError("TIOCSPTLCK", err)
	}
	if err := setWindow(master, size); err != nil {
		return nil, err
	}
	fd, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(master), unix.TIOCGPTPEER, unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC)
	if errno != 0 {
		return nil, os.NewSyscallError("TIOCGPTPEER", errno)
	}
	slave := os.NewFile(fd, "terminal")
	if cred != nil && int(cred.UID) != os.Geteuid() {
		// The group stays the one devpts gives (tty, by its gid= option).
		if err := unix.Fchown(int(fd), int(cred.UID), -1); err != nil {
			slave.Close()
			return nil, os.NewSyscallError("fchown", err)
		}
	}
	return slave, nil
}

// setWindow sets the size; the kernel sends SIGWINCH to the foreground group.
func setWindow(fd int, size *apiv1.Terminal) error {
	ws := &unix.Winsize{
		Row: uint16(min(size.GetRows(), maxWindow)),
		Col: uint16(min(size.GetColumns(), maxWindow)),
	}
	return os.NewSyscallError("TIOCSWINSZ", unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, ws))
}

// foreground is the process group that reads the terminal.
func foreground(term *os.File) (pgrp int, err error) {
	err = control(term, func(fd int) (err error) {
		pgrp, err = unix.IoctlGetInt(fd, unix.TIOCGPGRP)
		return os.NewSyscallError("TIOCGPGRP", err)
	})
	return pgrp, err
}

// endOfInput gives the reader of the terminal an end of file, as the user's ^D would: the
// terminal's own VEOF, also in raw mode, where line editors know it as script(1) relies
// on. In canonical mode it is sent twice when a line is unfinished, since the first then
// only hands over what was typed.
func endOfInput(term *os.File, midLine bool) error {
	var eof []byte
	err := control(term, func(fd int) error {
		t, err := unix.IoctlGetTermios(fd, unix.TCGETS)
		if err != nil {
			return os.NewSyscallError("TCGETS", err)
		}
		eof = append(eof, t.Cc[unix.VEOF])
		if midLine && t.Lflag&unix.ICANON != 0 {
			eof = append(eof, t.Cc[unix.VEOF])
		}
		return nil
	})
	if errors.Is(err, os.ErrClosed) {
		return nil
	}
	if err != nil {
		return err
	}
	_, err = writeAll(term, eof)
	return err
}

// control calls f with the descriptor, which stays open and non-blocking meanwhile.
func control(file *os.File, f func(fd int) error) error {
	rc, err := file.SyscallConn()
	if err != nil {
		return err
	}
	var ferr error
	if err := rc.Control(func(fd uintptr) { ferr = f(int(fd)) }); err != nil {
		return err
	}
	return ferr
}
