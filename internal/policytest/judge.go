package policytest

import (
	"fmt"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"

	"policyd.dev/policyd/enforce/profile"
	"policyd.dev/policyd/internal/cli/decide"
)

// denials are the errors that Landlock denies an operation with (the hooks of
// security/landlock: fs.c, net.c, task.c).
func denials(k profile.OpKind) []syscall.Errno {
	switch k {
	case profile.OpRename, profile.OpExchange, profile.OpLink:
		return []syscall.Errno{unix.EACCES, unix.EXDEV}
	case profile.OpMount, profile.OpSignal, profile.OpAbstractUnix:
		return []syscall.Errno{unix.EPERM}
	}
	return []syscall.Errno{unix.EACCES}
}

// late are the errors that come when Landlock has let the operation through:
// their checks stand behind its hook (fs/namei.c, fs/open.c, fs/exec.c,
// net/ipv4, net/unix). An error that may come from both sides is not here.
func late(k profile.OpKind) []syscall.Errno {
	switch k {
	case profile.OpOpen:
		return []syscall.Errno{unix.ENXIO, unix.ENODEV, unix.EBUSY, unix.EIO}
	case profile.OpIoctlDev:
		return []syscall.Errno{unix.ENOTTY, unix.ENXIO, unix.ENODEV, unix.EBUSY, unix.EIO}
	case profile.OpExec:
		return []syscall.Errno{unix.ENOEXEC, unix.ELIBBAD}
	case profile.OpMknod:
		return []syscall.Errno{unix.EPERM} // a device, by who is not root
	case profile.OpUnlink:
		return []syscall.Errno{unix.EISDIR, unix.EBUSY}
	case profile.OpRmdir:
		return []syscall.Errno{unix.ENOTDIR, unix.EBUSY, unix.ENOTEMPTY}
	case profile.OpRename, profile.OpExchange:
		return []syscall.Errno{unix.ENOTDIR, unix.EISDIR, unix.EBUSY}
	case profile.OpConnectUnix:
		return []syscall.Errno{unix.EPROTOTYPE, unix.EAGAIN}
	case profile.OpBindTCP, profile.OpBindUDP:
		return []syscall.Errno{unix.EADDRINUSE, unix.EADDRNOTAVAIL}
	case profile.OpConnectTCP, profile.OpConnectUDP, profile.OpSendUDP:
		return []syscall.Errno{unix.ECONNREFUSED, unix.EINPROGRESS, unix.ENETUNREACH, unix.EHOSTUNREACH, unix.ETIMEDOUT, unix.EAGAIN}
	case profile.OpMount:
		return []syscall.Errno{unix.ENODEV}
	}
	return nil
}

// kernelSays is what two attempts tell of Landlock: allowed, or denied with an
// errno. Where they do not tell, unclear says why.
type kernelSays struct {
	denied  bool
	errno   syscall.Errno
	unclear string
}

func judge(k profile.OpKind, without, under syscall.Errno) kernelSays {
	passes := func(e syscall.Errno) bool { return e == 0 || slices.Contains(late(k), e) }
	switch {
	case passes(without) && passes(under):
		return kernelSays{}
	case without == under:
		return kernelSays{unclear: "the kernel answers " + errnoName(without) + " without the policy too"}
	case slices.Contains(denials(k), under):
		return kernelSays{denied: true, errno: under}
	}
	return kernelSays{unclear: fmt.Sprintf("the kernel answers %s, and %s without the policy", errnoName(under), errnoName(without))}
}

// agrees tells whether the kernel said what was decided.
func (s kernelSays) agrees(verdict, errno string) bool {
	if s.denied != (verdict == decide.Deny) {
		return false
	}
	return !s.denied || errno == "" || errno == errnoName(s.errno)
}

func (s kernelSays) String() string {
	if s.denied {
		return decide.Deny + " " + errnoName(s.errno)
	}
	return decide.Allow
}

// errnoName gives "EACCES", and "success" for 0.
func errnoName(e syscall.Errno) string {
	if e == 0 {
		return "success"
	}
	if name := unix.ErrnoName(e); name != "" {
		return name
	}
	return fmt.Sprintf("errno %d", int(e))
}
