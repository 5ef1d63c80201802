package differential_test

import (
	"unsafe"

	"golang.org/x/sys/unix"

	"policyd.dev/policyd/enforce/profile"
)

// ways are other ways to do an operation than the usual. For most the answer is
// the same; unmediated are those that Landlock has no say in.
var ways = map[profile.OpKind][]string{
	profile.OpStat:          {"access", "readlink", "statfs"},
	profile.OpSetAttributes: {"chown", "utime"},
	profile.OpRename:        {"noreplace"},
	profile.OpMount:         {"remount", "bound", "pivot"},
	profile.OpConnectUnix:   {"send"},
	profile.OpAbstractUnix:  {"send"},
	profile.OpBindTCP:       {"six", "mptcp", "listen"},
	profile.OpConnectTCP:    {"six", "mptcp", "unspec"},
	profile.OpBindUDP:       {"six"},
	profile.OpConnectUDP:    {"six", "unspec"},
	profile.OpSendUDP:       {"six"},
}

// unmediated ways: a multipath socket is no TCP socket to Landlock (erratum 1),
// listen(2) on a socket without a port takes one unasked, and connecting to
// AF_UNSPEC only lets go.
var unmediated = map[string]bool{"mptcp": true, "listen": true, "unspec": true}

// network does a step on a port.
func (st *stage) network(s *step) error {
	domain, protocol, addr := unix.AF_INET, 0, loopback(st.h.port(s.port))
	switch s.by {
	case "six":
		domain, addr = unix.AF_INET6, loopbackSix(st.h.port(s.port))
	case "mptcp":
		protocol = unix.IPPROTO_MPTCP
	}
	typ := unix.SOCK_DGRAM
	if s.op.Kind == profile.OpBindTCP || s.op.Kind == profile.OpConnectTCP {
		typ = unix.SOCK_STREAM
	}
	fd, err := unix.Socket(domain, typ|unix.SOCK_CLOEXEC, protocol) // on the loopback a refusal comes at once
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if s.bind {
		st.do(func() { err = unix.Bind(fd, anyPort(domain)) })
		if err != nil {
			return err
		}
	}
	switch {
	case s.by == "listen":
		return unix.Listen(fd, 1)
	case s.by == "unspec":
		return connectUnspec(fd)
	case s.op.Kind == profile.OpBindTCP, s.op.Kind == profile.OpBindUDP:
		return unix.Bind(fd, addr)
	case s.op.Kind == profile.OpSendUDP:
		return unix.Sendto(fd, []byte("x"), 0, addr)
	}
	return unix.Connect(fd, addr)
}

func anyPort(domain int) unix.Sockaddr {
	if domain == unix.AF_INET6 {
		return loopbackSix(0)
	}
	return loopback(0)
}

func loopbackSix(port uint16) unix.Sockaddr {
	return &unix.SockaddrInet6{Port: int(port), Addr: [16]byte{15: 1}}
}

// connectUnspec connects to an address of no family, which x/sys has no form for.
func connectUnspec(fd int) error {
	var address [unix.SizeofSockaddrInet4]byte
	_, _, errno := unix.Syscall(unix.SYS_CONNECT, uintptr(fd), uintptr(unsafe.Pointer(&address)), unsafe.Sizeof(address))
	if errno != 0 {
		return errno
	}
	return nil
}
