package peer

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

// maxGroups is NGROUPS_MAX of linux/limits.h.
const maxGroups = 65536

// unixIdentity asks the kernel who connected: SO_PEERCRED and SO_PEERGROUPS (unix(7)) always, and
// where it knows them SO_PEERPIDFD (Linux 6.5) and SO_PEERSEC (an active LSM with labels).
func unixIdentity(conn *net.UnixConn) (*Identity, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, fmt.Errorf("peer identity: %w", err)
	}
	id := &Identity{Local: true}
	var inner error
	err = raw.Control(func(fd uintptr) { inner = id.fill(int(fd)) })
	if err = errors.Join(err, inner); err != nil {
		return nil, fmt.Errorf("peer identity: %w", err)
	}
	return id, nil
}

func (id *Identity) fill(fd int) error {
	cred, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err != nil {
		return os.NewSyscallError("getsockopt SO_PEERCRED", err)
	}
	id.UID, id.GID, id.PID = cred.Uid, cred.Gid, cred.Pid
	if id.Groups, err = peerGroups(fd); err != nil {
		return err
	}
	slices.Sort(id.Groups)
	if label, err := unix.GetsockoptString(fd, unix.SOL_SOCKET, unix.SO_PEERSEC); err == nil && smackActive() {
		id.SmackLabel = label
	}
	if pfd, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PEERPIDFD); err == nil {
		id.pidfd = &pidfd{fd: pfd}
	}
	if id.Confined, err = confined(id.PID, id.pidfd); err != nil {
		id.pidfd.close()
	}
	return err
}

// smackActive: SO_PEERSEC answers for any labelling LSM; only Smack's label is one of ours.
var smackActive = sync.OnceValue(func() bool {
	// Whether smackfs is mounted does not matter. Where Smack is built but not active, reading is EINVAL.
	_, err := os.ReadFile("/proc/thread-self/attr/smack/current")
	return err == nil
})

// peerGroups reads SO_PEERGROUPS, growing the buffer to what the kernel says it needs (ERANGE).
func peerGroups(fd int) ([]uint32, error) {
	for n := uint32(64); ; {
		groups := make([]uint32, max(n, 1))
		size := n * 4
		_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.SOL_SOCKET, unix.SO_PEERGROUPS,
			uintptr(unsafe.Pointer(&groups[0])), uintptr(unsafe.Pointer(&size)), 0)
		switch {
		case errno == 0:
			return groups[:size/4], nil
		case errno == unix.ERANGE && size/4 > n && size/4 <= maxGroups:
			n = size / 4
		default:
			return nil, os.NewSyscallError("getsockopt SO_PEERGROUPS", errno)
		}
	}
}

// pidfd holds on to the process that connected, so that its number can be trusted while it lives.
type pidfd struct {
	mu sync.Mutex
	fd int // -1 once closed
}

func (p *pidfd) close() {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.fd >= 0 {
		unix.Close(p.fd)
		p.fd = -1
	}
}

func (p *pidfd) program(pid int32) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.fd < 0 {
		return ""
	}
	comm, err := os.ReadFile("/proc/" + strconv.Itoa(int(pid)) + "/comm")
	if err != nil {
		return ""
	}
	// Signal 0 after the read: the process was alive all along, so the number was its own.
	if unix.PidfdSendSignal(p.fd, 0, nil, 0) == unix.ESRCH {
		return ""
	}
	return strings.ToValidUTF8(string(bytes.TrimSpace(comm)), "?")
}
