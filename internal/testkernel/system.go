package testkernel

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// System is a guest whose process 1 is the distribution's systemd, for tests of what happens at boot, of units, and of
// what outlives a reboot. Each [System.Boot] is a boot of its own kernel with a new root:
//
//	/usr                    the host's, read-only, or with Overlay a layer in memory over it; /bin, /lib and so on lead
//	                        into it as on the host
//	/etc                    files without which nothing works, and those of Files; nothing of the host's /etc
//	the paths of Folders    folders of the host, which it may write to and which are still there at the next boot
//	/run, /sys, /dev, ...   as systemd mounts them; smackfs and cgroups are among these
//	everything else         empty and in memory
//
// What the distribution starts by default is masked, but for the journal, which also goes to the console. At boot, a
// target starts the units of Start and a script. When the script ends the system is shut down in order. What systemd says
// before there is a journal, also of the Smack rules it loads, is in the kernel's log (journalctl -k).
//
// As root the guest's root is the host's in Folders. As another user files there belong to that user, in the guest too.
type System struct {
	Kernel    string            // UML61 or UML73
	MemoryMiB int               // 0 means 512
	Files     map[string]string // path: content, also a binary's; executable when it starts with "#!"
	Folders   map[string]string // path: folder of the host
	Links     map[string]string // path: what the symlink says
	Overlay   bool              // /usr can be written to, as an installation does; the host's stays as it is
	Start     []string          // names of units
	Output    io.Writer         // gets the console from systemd's start on, with all of the journal; nil discards it

	grace time.Duration // 0 means shutdownGrace
}

// Script is what a system is booted for.
type Script struct {
	// Text is run by sh, with the function
	//
	//	step NAME COMMAND...
	//
	// which runs a command, keeps what became of it as Booted.Steps[NAME], and succeeds. PATH is systemd's; HOME is /root.
	Text string
	// After are units whose start it waits for, if they are started.
	After []string
}

// Step is what became of a command.
type Step struct {
	Stdout, Stderr string
	Exit           int // as sh gives it: 128+n for signal n
}

func (s Step) String() string {
	return fmt.Sprintf("exit status %d\nstdout: %s\nstderr: %s", s.Exit, s.Stdout, s.Stderr)
}

// Booted is what a boot gave.
type Booted struct {
	Exit   int    // the script's exit status
	Output string // what the script printed, both streams
	Steps  map[string]Step
}

// systemd is where distributions keep it.
const systemd = "/usr/lib/systemd/systemd"

// RequireSystemd skips the test, or fails it in CI, when the host has no systemd, or no kernel of that name is cached.
// With -race, uml-6.1 is skipped.
func RequireSystemd(t testing.TB, kernel string) {
	t.Helper()
	if k, ok := kernelByName(kernel); ok && raceDetector && !k.race {
		t.Skipf("binaries with the race detector do not run in %s; go test without -race runs it", kernel)
	}
	if _, err := os.Stat(systemd); err != nil {
		Skip(t, "systemd", "apt-get install systemd")
	}
	if _, err := cached(kernel, "linux"); err != nil {
		Skip(t, "kernel "+kernel, "make kernels")
	}
}

const (
	// harnessDir is the folder of the guest in which it and the harness meet.
	harnessDir = "/testkernel"
	// harnessFiles is the folder of the harness's own files in the guest.
	harnessFiles = "/etc/testkernel"
	// shutdownGrace is how long a system may take to stop its units.
	shutdownGrace = time.Minute
	// systemTimeout is how long a boot may take altogether; a quiet machine takes seconds.
	systemTimeout = 2 * time.Minute
)

// Boot boots the system, runs the script as soon as the units it comes after are started, and returns when the guest
// has powered off. That the script fails is no error. When ctx ends or two minutes pass first, or the guest ends, or its units do not stop, no
// process of the guest is left and the error is a [*GuestError], with the end of the journal.
func (s *System) Boot(ctx context.Context, script Script) (*Booted, error) {
	k, ok := kernelByName(s.Kernel)
	if !ok {
		return nil, fmt.Errorf("no kernel named %q", s.Kernel)
	}
	dir, err := os.MkdirTemp("", "testkernel-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	share := filepath.Join(dir, "share")
	if err := os.MkdirAll(filepath.Join(share, "steps"), 0o755); err != nil {
		return nil, err
	}
	in := inside{Kernel: s.Kernel, Nonce: rand.Text()}
	root, err := s.root(in, script)
	if err != nil {
		return nil, err
	}
	root.Folders[harnessDir] = share
	j := s.job(in, root)
	ctx, cancel := context.WithTimeout(ctx, systemTimeout)
	defer cancel()
	grace := s.grace
	if grace == 0 {
		grace = shutdownGrace
	}
	res, err := launch(ctx, machine{
		kernel: k, memoryMiB: s.MemoryMiB, dir: dir, output: s.Output, grace: grace,
	}, j)
	if err != nil {
		return nil, err
	}
	return booted(share, res.exit)
}

// job is to become the system.
func (s *System) job(in inside, root *rootJob) job {
	return job{
		inside: in,
		Argv:   []string{systemd, "--unit=testkernel.target", "--show-status=no"},
		Env:    []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/", "TERM=dumb"},
		Root:   root,
	}
}

// root is the root of the guest but for the folder of the harness.
func (s *System) root(in inside, script Script) (*rootJob, error) {
	cache, err := os.ReadFile("/etc/ld.so.cache")
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	r := &rootJob{
		Folders: map[string]string{},
		Files:   map[string][]byte{},
		Links:   map[string]string{"/etc/os-release": "../usr/lib/os-release", "/etc/mtab": "/proc/self/mounts"},
	}
	for _, files := range []map[string]string{
		{
			"/etc/passwd":        "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/usr/sbin/nologin\n",
			"/etc/group":         "root:x:0:\nadm:x:4:\nsystemd-journal:x:101:\nnogroup:x:65534:\n",
			"/etc/nsswitch.conf": "passwd: files\ngroup: files\n",
			"/etc/hostname":      "testkernel\n",
			"/etc/machine-id":    strings.Repeat("7e57", 8) + "\n",
			"/etc/fstab":         "",
			"/etc/systemd/journald.conf.d/testkernel.conf": "[Journal]\nStorage=volatile\nForwardToConsole=yes\nMaxLevelConsole=debug\n" +
				"RateLimitBurst=0\nAudit=no\n",
			"/etc/systemd/system/testkernel.target": "[Unit]\nDescription=What the test wants\nRequires=basic.target\nAfter=basic.target\n" +
				"Wants=testkernel-script.service " + strings.Join(s.Start, " ") + "\n",
			"/etc/systemd/system/testkernel-script.service": "[Unit]\nDescription=The test's script\nAfter=" + strings.Join(script.After, " ") + "\n" +
				"SuccessAction=poweroff\nFailureAction=poweroff\n" +
				"[Service]\nType=oneshot\nTimeoutStartSec=infinity\nEnvironment=HOME=/root\nExecStart=/bin/sh " + harnessFiles + "/supervise\n",
			harnessFiles + "/supervise": fmt.Sprintf(superviseScript, in.marker(markExit)),
			harnessFiles + "/script":    stepFunction + script.Text,
			"/etc/ld.so.cache":          string(cache),
		}, s.Files,
	} {
		for path, text := range files {
			r.Files[path] = []byte(text)
		}
	}
	r.Overlay = s.Overlay
	maps.Copy(r.Folders, s.Folders)
	for unit := range defaultUnits() {
		r.Links[filepath.Join("/etc/systemd/system", unit)] = "/dev/null"
	}
	maps.Copy(r.Links, s.Links)
	return r, nil
}

// superviseScript runs the script and puts its exit status on the console, in a line of its own.
const superviseScript = `cd /
/bin/sh ` + harnessFiles + `/script >` + harnessDir + `/output 2>&1
printf '\n%%s%%d\n' '%s' $? >/dev/console
`

const stepFunction = `step() {
	_step=` + harnessDir + `/steps/$1
	shift
	"$@" >"$_step.out" 2>"$_step.err" && echo 0 >"$_step.exit" || echo $? >"$_step.exit"
}
`

// defaultUnits are the units that the distribution starts on the way to basic.target, but for the journal's. Most want
// devices, modules or users that a guest has not.
func defaultUnits() map[string]bool {
	units := map[string]bool{}
	for _, target := range []string{"sysinit", "sockets", "timers", "paths", "local-fs"} {
		entries, err := os.ReadDir(filepath.Dir(systemd) + "/system/" + target + ".target.wants")
		if err != nil {
			continue // it wants nothing
		}
		for _, e := range entries {
			units[e.Name()] = true
		}
	}
	for _, unit := range []string{"systemd-journald.service", "systemd-journald.socket", "systemd-journald-dev-log.socket"} {
		delete(units, unit)
	}
	return units
}

// booted reads what the script left.
func booted(share string, exit int) (*Booted, error) {
	out, err := os.ReadFile(filepath.Join(share, "output"))
	if err != nil {
		return nil, err
	}
	b := &Booted{Exit: exit, Output: string(out), Steps: map[string]Step{}}
	done, err := filepath.Glob(filepath.Join(share, "steps", "*.exit"))
	if err != nil {
		return nil, err
	}
	slices.Sort(done)
	for _, path := range done {
		base := strings.TrimSuffix(path, ".exit")
		texts := map[string]string{}
		for _, ext := range []string{".exit", ".out", ".err"} {
			text, err := os.ReadFile(base + ext)
			if err != nil {
				return nil, err
			}
			texts[ext] = string(text)
		}
		n, err := strconv.Atoi(strings.TrimSpace(texts[".exit"]))
		if err != nil {
			return nil, fmt.Errorf("step %s: %w", filepath.Base(base), err)
		}
		b.Steps[filepath.Base(base)] = Step{Stdout: texts[".out"], Stderr: texts[".err"], Exit: n}
	}
	return b, nil
}
