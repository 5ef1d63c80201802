package spawn

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"policyd.dev/policyd/internal/errs"
)

// Containment is a way to hold all descendants of programs.
type Containment interface {
	Name() string                      // "cgroup" or "supervisor"
	Root() string                      // the folder in which groups are folders named by their id; "" when they are not
	NewGroup(id string) (Group, error) // id: a file name, unique
	// OpenGroup finds the group with that Path again, made by whichever
	// containment, before a restart of policyd or after.
	OpenGroup(path string) (Group, error)
	// Close gives back what no group needs. Groups go on.
	Close() error
}

// Usage is what a group uses now, and CPU time since it was made.
type Usage struct {
	MemoryBytes uint64
	CPUUsec     uint64
	Processes   int
}

// Group holds a program and all its descendants, however they were started.
type Group interface {
	Path() string // for OpenGroup; of a supervised group "" until Start
	Processes() ([]int, error)
	Usage() (Usage, error)
	Signal(sig syscall.Signal) error // to every process in it
	KillAll() error                  // ends every process in it and returns when none is left
	Remove() error                   // once all have ended; a group that is gone is no error
}

// Options say where containment is to be found.
type Options struct {
	// CgroupRoot is the folder groups are made in, this policyd's alone. Empty:
	// one below policyd's own cgroup (v2; also beside v1 as in a hybrid setup).
	CgroupRoot string
	// StateDir is an existing folder that one policyd at a time has. Without
	// CgroupRoot the folder of groups is named after it, so that policyds in one
	// cgroup keep apart and a later one finds what an earlier one left. Without
	// either it is "policyd", shared.
	StateDir string
	// Launcher is policyd-launch. Empty: the one beside the running program.
	Launcher string
	// Supervisor passes over cgroups.
	Supervisor bool
	// OwnChildren tells that this process starts nothing but groups' programs.
	// Where those have supervisors, it becomes a child subreaper, and any other
	// child it has is what the program of a killed supervisor left: it is ended.
	OwnChildren bool
}

// DetectContainment gives cgroups where they work for this user, found out by
// trying, and the supervisor elsewhere. The error wraps errs.ErrContainment and
// says why neither works.
func DetectContainment(o Options) (Containment, error) {
	why := errors.New("cgroups: not wanted")
	if !o.Supervisor {
		c, err := newCgroups(o)
		if err == nil {
			return c, nil
		}
		why = fmt.Errorf("cgroups: %w", err)
	}
	launcher := o.Launcher
	if launcher == "" {
		exe, err := os.Executable()
		if err != nil {
			return nil, fmt.Errorf("%w: %w; supervisor: %w", errs.ErrContainment, why, err)
		}
		launcher = filepath.Join(filepath.Dir(exe), "policyd-launch")
	}
	err := checkProgram(launcher)
	if err != nil {
		return nil, fmt.Errorf("%w: %w; supervisor: %w", errs.ErrContainment, why, err)
	}
	c := &supervisors{launcher: launcher}
	if o.OwnChildren {
		if c.orphans, err = newOrphanage(); err != nil {
			return nil, fmt.Errorf("%w: %w; supervisor: %w", errs.ErrContainment, why, err)
		}
	}
	return c, nil
}

func openGroup(path string) (Group, error) {
	if spec, ok := strings.CutPrefix(path, supervisedPrefix); ok {
		return openSupervised(spec)
	}
	return openCgroup(path)
}

// checkID keeps groups in their folder.
func checkID(id string) error {
	if id == "" || id == "." || id == ".." || len(id) > 200 || strings.ContainsAny(id, "/\n\x00") {
		return fmt.Errorf("%w: group id %q", errs.ErrContainment, id)
	}
	return nil
}
