package testkernel

import (
	"crypto/rand"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

const (
	// jobEnv is set on the kernel's command line, which becomes init's environment: the path of the job file.
	jobEnv = "POLICYD_TESTKERNEL_JOB"
	// insideEnv is set for the program in the guest: KERNEL:NONCE.
	insideEnv = "POLICYD_TESTKERNEL"
)

// job is what the host tells the guest's init, as JSON in a file both see.
type job struct {
	inside
	Argv []string
	Env  []string
	Dir  string
	Keep []string // paths that must stay visible under the tmpfs mounts, read-only
	// Root: the guest is to become this system; Argv is its process 1, and Dir and Keep say nothing.
	Root *rootJob `json:",omitempty"`
}

// rootJob is the root of a [System].
type rootJob struct {
	Files   map[string][]byte // path in the guest: content; bytes, since JSON's strings are UTF-8 alone
	Links   map[string]string // path in the guest: target
	Folders map[string]string // path in the guest: folder of the host
	Overlay bool              // /usr can be written to
}

// inside names the guest; its nonce tells the harness's marks on the console from the program's own output.
type inside struct {
	Kernel string
	Nonce  string
}

func (in inside) marker(mark string) string { return "\x01" + in.Nonce + " " + mark }

// insideGuest says whether this process runs in a guest, and which.
func insideGuest() (inside, bool) {
	kernel, nonce, ok := strings.Cut(os.Getenv(insideEnv), ":")
	return inside{Kernel: kernel, Nonce: nonce}, ok
}

// guestHome is the program's home folder in a guest.
const guestHome = "/tmp/home"

func newJob(g *Guest, self string) job {
	in := inside{Kernel: g.Kernel, Nonce: rand.Text()}
	dir := g.Dir
	if dir == "" {
		dir = "/"
	}
	var env []string
	for _, kv := range os.Environ() {
		// Folders of the host's user; a session bus and the like are not in the guest.
		if name, _, _ := strings.Cut(kv, "="); !strings.HasPrefix(name, "XDG_") && name != "GOCOVERDIR" {
			env = append(env, kv)
		}
	}
	env = append(env, "HOME="+guestHome, "TMPDIR=/tmp", "USER=root", "LOGNAME=root", "PWD="+dir)
	env = append(env, g.Env...)
	env = append(env, insideEnv+"="+in.Kernel+":"+in.Nonce)
	keep := []string{self, moduleDir(dir), g.Argv[0]}
	slices.Sort(keep) // a folder before what is in it
	return job{inside: in, Argv: g.Argv, Env: lastOfEach(env), Dir: dir, Keep: slices.Compact(keep)}
}

// lastOfEach keeps the last value of every variable, as os/exec does.
func lastOfEach(env []string) []string {
	seen := map[string]bool{}
	var out []string
	for i := len(env) - 1; i >= 0; i-- {
		name, _, _ := strings.Cut(env[i], "=")
		if !seen[name] {
			seen[name] = true
			out = append(out, env[i])
		}
	}
	return out
}

// moduleDir is the nearest folder above dir with a go.mod, or dir.
func moduleDir(dir string) string {
	for d := dir; ; d = filepath.Dir(d) {
		if _, err := os.Stat(filepath.Join(d, "go.mod")); err == nil {
			return d
		}
		if d == filepath.Dir(d) {
			return dir
		}
	}
}
