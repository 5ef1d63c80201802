package decide

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"slices"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"policyd.dev/policyd/enforce/landlock"
	"policyd.dev/policyd/enforce/profile"
	"policyd.dev/policyd/internal/testkernel"
)

// outside is what a confined thread may reach or not: a process and an abstract
// socket of this process, which is not confined, and later of the thread's own.
type outside struct {
	process, ours *os.Process
	abstract      map[string]string // by "in" and "out"
	listeners     []net.Listener
}

func (o *outside) end() {
	for _, p := range []*os.Process{o.process, o.ours} {
		if p != nil {
			_ = p.Kill()
			_, _ = p.Wait()
		}
	}
	for _, l := range o.listeners {
		l.Close()
	}
}

func sleeper() (*os.Process, error) {
	cmd := exec.Command("/bin/sleep", "60")
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return cmd.Process, nil
}

// listen makes an abstract socket on the calling thread.
func (o *outside) listen(peer string) error {
	name := fmt.Sprintf("\x00policyd-decide-%d-%s", os.Getpid(), peer)
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(fd), "socket")
	defer f.Close()
	if err := unix.Bind(fd, &unix.SockaddrUnix{Name: name}); err != nil {
		return err
	}
	if err := unix.Listen(fd, 8); err != nil {
		return err
	}
	l, err := net.FileListener(f)
	if err == nil {
		o.abstract[peer] = name
		o.listeners = append(o.listeners, l)
	}
	return err
}

// perform does what a question asks, on the calling thread.
func (o *outside) perform(q Question, dir string) error {
	socket := func(family, kind int, f func(fd int) error) error {
		fd, err := unix.Socket(family, kind|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		return f(fd)
	}
	to := &unix.SockaddrInet4{Port: int(q.op.Port), Addr: [4]byte{127, 0, 0, 1}}
	switch q.op.Kind {
	case profile.OpSignal:
		p := o.process
		if q.peer == "in" {
			p = o.ours
		}
		return unix.Kill(p.Pid, 0)
	case profile.OpAbstractUnix:
		return socket(unix.AF_UNIX, unix.SOCK_STREAM, func(fd int) error {
			return unix.Connect(fd, &unix.SockaddrUnix{Name: o.abstract[q.peer]})
		})
	case profile.OpConnectTCP:
		return socket(unix.AF_INET, unix.SOCK_STREAM, func(fd int) error { return unix.Connect(fd, to) })
	case profile.OpConnectUDP:
		return socket(unix.AF_INET, unix.SOCK_DGRAM, func(fd int) error { return unix.Connect(fd, to) })
	case profile.OpSendUDP:
		return socket(unix.AF_INET, unix.SOCK_DGRAM, func(fd int) error { return unix.Sendto(fd, []byte("x"), 0, to) })
	case profile.OpBindTCP:
		return socket(unix.AF_INET, unix.SOCK_STREAM, func(fd int) error { return unix.Bind(fd, to) })
	case profile.OpBindUDP:
		return socket(unix.AF_INET, unix.SOCK_DGRAM, func(fd int) error { return unix.Bind(fd, to) })
	case profile.OpMount:
		err := unix.Mount("none", dir, "tmpfs", 0, "")
		if err == nil {
			err = unix.Unmount(dir, 0)
		}
		return err
	}
	return fmt.Errorf("%s: not to be performed here", q)
}

// Ports, scopes and mounts: every operation under layers that handle each right
// or not, grant it or not.
func TestKernelAgreesOnTheRest(t *testing.T) {
	testkernel.Each(t, testkernel.Landlock, func(t *testing.T) {
		sup := landlock.Probe()
		lines := []string{"signal in", "signal out", "abstract-unix in", "abstract-unix out"}
		for _, port := range []int{0, 40100, 40101} {
			lines = append(lines, fmt.Sprintf("bind tcp %d", port), fmt.Sprintf("bind udp %d", port))
			if port != 0 {
				lines = append(lines, fmt.Sprintf("connect tcp %d", port), fmt.Sprintf("connect udp %d", port), fmt.Sprintf("send-udp %d", port))
			}
		}
		dir := t.TempDir()
		if unix.Mount("none", dir, "tmpfs", 0, "") == nil {
			if err := unix.Unmount(dir, 0); err != nil {
				t.Fatal(err)
			}
			lines = append(lines, "mount")
		}
		netRights, scopes := profile.Handled(profile.Net, sup.ABI), profile.Handled(profile.Scope, sup.ABI)
		denied, asked := 0, 0
		for _, layers := range [][]profile.Layer{
			{{Name: "fs", FS: profile.FSReadFile}},
			{{Name: "net", FS: 0, Net: netRights, Scope: scopes & profile.ScopeSignal}},
			{{Name: "scopes", FS: 0, Scope: scopes}, {Name: "bind", Net: netRights & (profile.NetBindTCP | profile.NetBindUDP)}},
			{{Name: "abstract", Scope: scopes & profile.ScopeAbstractUnixSocket}, {Name: "udp", Net: netRights & (profile.NetBindUDP | profile.NetConnectSendUDP)}, {Name: "all", FS: profile.FSExecute, Net: netRights, Scope: scopes}},
		} {
			layers = slices.DeleteFunc(layers, func(l profile.Layer) bool { return l.FS|l.Net|l.Scope == 0 })
			if len(layers) == 0 {
				continue // this kernel knows nothing of it
			}
			var rules []rule
			masks := make([]profile.Access, len(layers))
			for i := range layers {
				masks[i] = layers[i].Net
				if layers[i].FS != 0 {
					rules = append(rules, rule{i, "/", layers[i].FS, profile.Fail})
				}
			}
			var ports []profile.PortRow
			if !slices.Equal(masks, make([]profile.Access, len(layers))) {
				ports = append(ports, profile.PortRow{First: 40100, Last: 40100, Access: masks})
			}
			p := build(t, layers, rules, ports...)
			d := newDecider(t, p, Options{ABI: sup.ABI, Errata: sup.Errata})
			o := &outside{abstract: map[string]string{}}
			t.Cleanup(o.end)
			var err error
			if o.process, err = sleeper(); err != nil {
				t.Fatal(err)
			}
			if err := o.listen("out"); err != nil {
				t.Fatal(err)
			}
			c, err := confine(p, sup)
			if err != nil {
				t.Fatal(err)
			}
			err = c.do(func() (err error) {
				if o.ours, err = sleeper(); err == nil {
					err = o.listen("in")
				}
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			for _, line := range lines {
				v := ask(t, d, line)
				q, err := ParseLine(line)
				if err != nil {
					t.Fatal(err)
				}
				got := c.do(func() error { return o.perform(q, dir) })
				if got == syscall.ECONNREFUSED {
					got = nil // nobody listens there
				}
				want := map[string]error{"": nil, "EACCES": syscall.EACCES, "EPERM": syscall.EPERM}[v.Errno]
				asked++
				if got != nil {
					denied++
				}
				if got != want {
					t.Errorf("layers %+v: %s: the kernel says %v, the verdict is %s %s %v", layers, line, got, v.Verdict, v.Errno, v.Layers)
				}
			}
			c.end()
			o.end()
			o.process, o.ours, o.listeners = nil, nil, nil
		}
		if denied == 0 || denied == asked {
			t.Errorf("%d of %d denied: the layers decide nothing", denied, asked)
		}
		t.Logf("%d of %d denied", denied, asked)
	})
}
