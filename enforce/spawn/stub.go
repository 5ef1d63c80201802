package spawn

import (
	"context"
	"errors"
	"syscall"

	"policyd.dev/policyd/enforce/landlock"
	"policyd.dev/policyd/enforce/profile"
)

// Limit is a resource limit (setrlimit(2)).
type Limit struct {
	Resource   int
	Name       string
	Soft, Hard uint64
}

// ParseLimit reads "soft", "soft:hard" or "unlimited".
func ParseLimit(name, value string) (Limit, error) { return Limit{}, errors.ErrUnsupported }

// LookPath finds a program by the PATH of env.
func LookPath(name string, env []string, dir string) (string, error) {
	return "", errors.ErrUnsupported
}

// Spawner starts programs.
type Spawner struct{}

// NewSpawner keeps n threads ready.
func NewSpawner(n int) *Spawner { return &Spawner{} }

// Start starts cmd under rs.
func (s *Spawner) Start(cmd *Command, rs *landlock.Rulesets) (*Child, error) {
	return nil, errors.ErrUnsupported
}

// Close ends the threads kept ready.
func (s *Spawner) Close() {}

// Child is a started program.
type Child struct{ PID int }

// StartTicks tells when it was started, in clock ticks since boot
// (/proc/PID/stat, field 22); read at the first call, 0 when it was reaped before.
func (c *Child) StartTicks() uint64 { return 0 }

// Wait waits for the end.
func (c *Child) Wait(ctx context.Context) (Status, error) { return Status{}, nil }

// Signal sends a signal by pidfd.
func (c *Child) Signal(sig syscall.Signal) error { return nil }

// Close gives back the descriptors of a child that is not waited for any more; it goes on running.
func (c *Child) Close() {}

// Adopt finds a program started by a policyd before this one.
func Adopt(pid int, startTicks uint64) (*Child, error) { return nil, errors.ErrUnsupported }

// ReadStatusFile reads what a supervisor wrote; fs.ErrNotExist when it has not.
func ReadStatusFile(path string) (Status, error) { return Status{}, errors.ErrUnsupported }

// Containment is a way to hold descendants.
type Containment interface {
	Name() string // "cgroup" or "supervisor"
	NewGroup(id string) (Group, error)
	OpenGroup(path string) (Group, error) // Path of a group made before a restart
}

// Usage is what a group uses now.
type Usage struct {
	MemoryBytes uint64
	CPUUsec     uint64
	Processes   int
}

// Group holds a program and all its descendants.
type Group interface {
	Path() string // for OpenGroup; a supervised group has one only after Start
	Processes() ([]int, error)
	Usage() (Usage, error)
	Signal(sig syscall.Signal) error // to every process in it
	KillAll() error                  // ends every process in it, and waits until none is left
	Remove() error                   // after the last process ended
}

// Options say where containment is to be found.
type Options struct {
	CgroupRoot string // folder to make groups in; empty: "policyd" below policyd's own cgroup
	Launcher   string // policyd-launch; empty: beside the running program
	Supervisor bool   // do not use cgroups
}

// DetectContainment finds out by trying.
func DetectContainment(o Options) (Containment, error) { return nil, errors.ErrUnsupported }

// ExplainExec tells why exec of path is refused under p, or "".
func ExplainExec(p *profile.Profile, path string) string { return "" }
