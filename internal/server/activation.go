package server

import (
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// firstActivated is SD_LISTEN_FDS_START of sd_listen_fds(3).
const firstActivated = 3

const (
	// mostActivated bounds the sockets, mostInherited all descriptors that a service manager may hand over.
	mostActivated = 16
	mostInherited = 1 << 16
)

// Inherited is what the service manager opened for this process, or keeps for it (sd_listen_fds(3)).
type Inherited struct {
	sockets []*os.File
	// Stored are the descriptors that an earlier process of the service gave the manager to keep, by their names.
	Stored map[string]*os.File
}

// TakeInherited takes what was handed over, nothing when nothing was. Descriptors whose name begins with stored come from
// the manager's store, all others are sockets. It is called before anything is executed: children inherit none.
func TakeInherited(stored string) (*Inherited, error) {
	pid, fds, names := os.Getenv("LISTEN_PID"), os.Getenv("LISTEN_FDS"), os.Getenv("LISTEN_FDNAMES")
	for _, name := range []string{"LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"} {
		os.Unsetenv(name) // not for children
	}
	in := &Inherited{Stored: map[string]*os.File{}}
	if pid == "" || pid != strconv.Itoa(os.Getpid()) {
		return in, nil
	}
	n, err := strconv.Atoi(fds)
	if err != nil || n < 0 || n > mostInherited {
		return nil, fmt.Errorf("socket activation: LISTEN_FDS is %q", fds)
	}
	for fd := firstActivated; fd < firstActivated+n; fd++ {
		unix.CloseOnExec(fd)
	}
	name := strings.Split(names, ":")
	for i := range n {
		f := os.NewFile(uintptr(firstActivated+i), "LISTEN_FD_"+strconv.Itoa(firstActivated+i))
		if i >= len(name) || !strings.HasPrefix(name[i], stored) {
			in.sockets = append(in.sockets, f)
			continue
		}
		if other := in.Stored[name[i]]; other != nil {
			other.Close()
		}
		in.Stored[name[i]] = f
	}
	if len(in.sockets) > mostActivated {
		return nil, fmt.Errorf("socket activation: %d sockets; at most %d are taken", len(in.sockets), mostActivated)
	}
	return in, nil
}

// Listeners returns the sockets, whose mode and group are the socket unit's. With tcp false, sockets of a network are
// refused. It is called once.
func (in *Inherited) Listeners(tcp bool) ([]net.Listener, error) {
	var out []net.Listener
	for i, f := range in.sockets {
		l, err := net.FileListener(f)
		f.Close()
		if err == nil {
			err = acceptable(l.Addr(), tcp)
			if err != nil {
				l.Close()
			}
		}
		if err != nil {
			for _, l := range out {
				l.Close()
			}
			return nil, fmt.Errorf("socket activation: socket %d: %w", i, err)
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
