package peer

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"
)

// Why a peer is [Identity.Confined].
const (
	reasonNoNewPrivs = "it runs with no_new_privs, as every sandboxed program does"
	reasonSandbox    = "it runs in a sandbox"
	reasonUnknown    = "it cannot be told whether it runs in a sandbox"
)

// launcherName is /proc/PID/comm of a supervisor of sandboxes (cmd/policyd-launch).
const launcherName = "policyd-launch"

// confined tells why a process must not act as its user, or gives "".
//
// The kernel does not say whether a process is in a Landlock domain. But each one in a domain of policyd's or
// policyctl's has no_new_privs, which no process can drop and every descendant inherits (prctl(2)), wherever
// it hides. Where policyd itself runs so, as in some containers, everybody does, and the place of the process tells:
// in a cgroup of policyd's sandboxes, or below policyd or one of its supervisors.
// An error is policyd's own want, of descriptors or memory.
func confined(pid int32, held *pidfd) (string, error) {
	if int(pid) == os.Getpid() {
		return "", nil
	}
	reason, err := look(int(pid))
	for _, want := range []error{unix.EMFILE, unix.ENFILE, unix.ENOMEM} {
		if errors.Is(err, want) {
			return "", err
		}
	}
	// Gone, or of another pid namespace (0): nothing read above is known to be about it.
	if err != nil || pid <= 0 || !held.alive() {
		return reasonUnknown, nil
	}
	return reason, nil
}

func look(pid int) (reason string, err error) {
	has, err := noNewPrivs(pid)
	switch {
	case err != nil:
		return "", err
	case !has:
		return "", nil
	case !ownNoNewPrivs():
		return reasonNoNewPrivs, nil
	}
	if in, err := inSandboxGroup(pid); in || err != nil {
		return reasonSandbox, err
	}
	if below, err := belowSupervisor(pid); below || err != nil {
		return reasonSandbox, err
	}
	return "", nil
}

// ownNoNewPrivs is true also when it cannot be told, which leaves the other ways to tell.
var ownNoNewPrivs = sync.OnceValue(func() bool {
	has, err := noNewPrivs(os.Getpid())
	return has || err != nil
})

// status gives a field of /proc/PID/status (proc_pid_status(5)).
func status(pid int, field string) (string, error) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		return "", err
	}
	for line := range bytes.Lines(b) {
		if v, ok := bytes.CutPrefix(line, []byte(field+":")); ok {
			return string(bytes.TrimSpace(v)), nil
		}
	}
	return "", errors.New("/proc/PID/status has no " + field)
}

func noNewPrivs(pid int) (bool, error) {
	v, err := status(pid, "NoNewPrivs")
	return v != "0", err
}

// inSandboxGroup: the folder of groups is named policyd, or policyd- and more (enforce/spawn), and holds nothing else.
func inSandboxGroup(pid int) (bool, error) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cgroup")
	if errors.Is(err, fs.ErrNotExist) {
		if _, err := os.Stat("/proc/self/cgroup"); errors.Is(err, fs.ErrNotExist) {
			return false, nil // a kernel without cgroups
		}
	}
	if err != nil {
		return false, err
	}
	for line := range bytes.Lines(b) {
		path, ok := bytes.CutPrefix(bytes.TrimSpace(line), []byte("0::"))
		if !ok {
			continue
		}
		parts := bytes.Split(path, []byte("/"))
		for _, p := range parts[:len(parts)-1] {
			if string(p) == "policyd" || bytes.HasPrefix(p, []byte("policyd-")) {
				return true, nil
			}
		}
	}
	return false, nil
}

// belowSupervisor walks up: all that policyd starts is sandboxes.
func belowSupervisor(pid int) (bool, error) {
	for pid > 1 {
		text, err := status(pid, "PPid")
		if err != nil {
			return false, err
		}
		if pid, err = strconv.Atoi(text); err != nil {
			return false, err
		}
		if pid == os.Getpid() {
			return true, nil
		}
		if pid < 1 {
			return false, nil
		}
		name, err := status(pid, "Name")
		if err != nil || name == launcherName {
			return err == nil, err
		}
	}
	return false, nil
}

// alive: without a pidfd the number is taken to be its own still.
func (p *pidfd) alive() bool {
	if p == nil {
		return true
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.fd >= 0 && !errors.Is(unix.PidfdSendSignal(p.fd, 0, nil, 0), unix.ESRCH)
}
