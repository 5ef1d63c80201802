package policytest

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"

	"policyd.dev/policyd/enforce/landlock"
	"policyd.dev/policyd/enforce/profile"
	"policyd.dev/policyd/internal/cli/decide"
)

// job is what the process that performs reads from its standard input.
type job struct {
	Root    string // folder of the scratch tree; "" for none
	Tree    []entry
	Profile []byte // reduced to what this kernel enforces
	Ops     []string
	Moved   bool // paths of Ops are those of another machine, to be moved into the tree
}

// outcome is one line of what it writes, for one operation.
type outcome struct {
	Without, Under syscall.Errno // without the layers and under them; 0 is success
	Skip           string        // why it was not performed
	Err            string        // why the test cannot be run at all
}

// Perform is the process that performs: it reads a job and writes an outcome
// for each operation. No thread that was restricted lives longer than its
// attempt, so the process itself stays free.
func Perform(in io.Reader, out io.Writer) error {
	var j job
	if err := json.NewDecoder(in).Decode(&j); err != nil {
		return fmt.Errorf("read the operations to perform: %w", err)
	}
	p, err := profile.Decode(j.Profile)
	if err != nil {
		return err
	}
	f := &performer{profile: p, support: landlock.Probe(), scratch: &scratch{root: j.Root, tree: j.Tree}}
	unix.Umask(0)
	enc := json.NewEncoder(out)
	for _, op := range j.Ops {
		q, err := decide.ParseLine(op)
		var o outcome
		if err == nil {
			op := q.Operation()
			if j.Moved {
				move(&op.Path, j.Root)
				move(&op.NewPath, j.Root)
			}
			o, err = f.perform(&action{op: op, peer: q.Peer()})
		}
		if err != nil {
			o.Err = err.Error()
		}
		if err := enc.Encode(o); err != nil {
			return err
		}
	}
	f.release()
	if j.Root == "" {
		return nil
	}
	return f.scratch.clear()
}

type performer struct {
	profile  *profile.Profile
	support  landlock.Support
	scratch  *scratch
	filled   bool               // the tree is as the test has it
	rulesets *landlock.Rulesets // of the tree as it is; nil: to be built
}

func move(path *string, root string) {
	if *path != "" {
		*path = filepath.Join(root, *path)
	}
}

// perform makes both attempts.
func (f *performer) perform(a *action) (o outcome, err error) {
	if o.Skip, err = f.attempt(a, false, &o.Without); err != nil || o.Skip != "" {
		return o, err
	}
	o.Skip, err = f.attempt(a, true, &o.Under)
	return o, err
}

// fill makes the tree anew unless no attempt since the last time could change
// it. Rules bind to inodes, so they go with the tree.
func (f *performer) fill() error {
	if f.filled || f.scratch.root == "" {
		return nil
	}
	f.release()
	err := f.scratch.fill()
	f.filled = err == nil
	return err
}

func (f *performer) build() (rs *landlock.Rulesets, err error) {
	if f.rulesets == nil {
		f.rulesets, err = landlock.Build(f.profile, f.support)
	}
	return f.rulesets, err
}

func (f *performer) release() {
	if f.rulesets != nil {
		f.rulesets.Release()
		f.rulesets = nil
	}
}

// attempt performs an operation in a fresh tree, on a thread of its own.
func (f *performer) attempt(a *action, under bool, errno *syscall.Errno) (skip string, err error) {
	if err := f.fill(); errors.Is(err, errNoDevice) {
		return err.Error(), nil
	} else if err != nil {
		return "", err
	}
	if skip := f.refuse(&a.op); skip != "" {
		return skip, nil
	}
	var rs *landlock.Rulesets
	if under {
		if rs, err = f.build(); err != nil {
			return "", err
		}
	}
	f.filled = !changes(&a.op)
	if err := a.prepare(); err != nil {
		return "", err
	}
	defer a.close()
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		if rs != nil {
			if err := rs.RestrictThread(); err != nil {
				done <- fmt.Errorf("confine: %w", err)
				return
			}
		}
		err := a.do()
		if err == nil || errors.As(err, errno) {
			err = nil
		}
		done <- err
	}()
	return "", <-done
}
