package server

import (
	"fmt"
	"net"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// firstActivated is SD_LISTEN_FDS_START of sd_listen_fds(3).
const firstActivated = 3

// ActivatedListeners returns the listeners systemd opened for this process (sd_listen_fds(3)), none
// when it opened none. Their mode and group are the socket unit's. With tcp false, sockets of a network are refused.
func ActivatedListeners(tcp bool) ([]net.Listener, error) {
	pid, fds := os.Getenv("LISTEN_PID"), os.Getenv("LISTEN_FDS")
	for _, name := range []string{"LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"} {
		os.Unsetenv(name) // not for children
	}
	if pid == "" || pid != strconv.Itoa(os.Getpid()) {
		return nil, nil
	}
	n, err := strconv.Atoi(fds)
	if err != nil || n < 0 || n > 16 {
		return nil, fmt.Errorf("socket activation: LISTEN_FDS is %q", fds)
	}
	var out []net.Listener
	for fd := firstActivated; fd < firstActivated+n; fd++ {
		unix.CloseOnExec(fd)
		f := os.NewFile(uintptr(fd), "LISTEN_FD_"+strconv.Itoa(fd))
		l, err := net.FileListener(f)
		f.Close()
		if err == nil {
			err = acceptable(l.Addr(), tcp)
		}
		if err != nil {
			for _, l := range out {
				l.Close()
			}
			return nil, fmt.Errorf("socket activation: descriptor %d: %w", fd, err)
		}
		out = append(out, l)
	}
	return out, nil
}

func acceptable(addr net.Addr, tcp bool) error {
	switch a := addr.(type) {
	case *net.UnixAddr:
		if a.Net != "unix" {
			return fmt.Errorf("a socket of type %s cannot carry gRPC", a.Net)
		}
		if a.Name == "" || a.Name[0] == '@' || a.Name[0] == 0 {
			return fmt.Errorf("%q is an abstract socket, which has no permissions", a.Name)
		}
		return nil
	case *net.TCPAddr:
		if tcp {
			return nil
		}
		return fmt.Errorf("%s is a network socket and the configuration has no tcp section with certificates", a)
	}
	return fmt.Errorf("cannot listen on %s", addr.Network())
}
