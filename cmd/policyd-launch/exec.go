package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"

	"policyd.dev/policyd/enforce/landlock"
	"policyd.dev/policyd/enforce/profile"
	"policyd.dev/policyd/internal/errs"
)

// Exit codes, those of env(1) and docker run. 125 is also that of a wrong command line.
const (
	exitPolicy   = 125 // the profile was not put on
	exitNoExec   = 126
	exitNotFound = 127
)

func exitOf(err error) int {
	switch {
	case errors.Is(err, errs.ErrProgramNotFound):
		return exitNotFound
	case errors.Is(err, errs.ErrProgramRefused):
		return exitNoExec
	}
	return exitPolicy
}

// order is what the command line asks for.
type order struct {
	file   string
	fd     int
	digest string
	label  string // of Smack, "" to keep the own
	argv   []string
}

func parseOrder(args []string) (order, error) {
	o := order{fd: -1}
	f := flag.NewFlagSet("exec", flag.ContinueOnError)
	f.SetOutput(io.Discard)
	f.StringVar(&o.file, "file", "", "")
	f.IntVar(&o.fd, "fd", -1, "")
	f.StringVar(&o.digest, "digest", "", "")
	f.StringVar(&o.label, "smack-label", "", "")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	o.argv = f.Args()
	switch {
	case (o.file == "") == (o.fd < 0), o.fd >= 0 && o.fd <= 2:
		return o, errors.New("exec: want one of --file PATH and --fd N, N from 3")
	case o.digest == "":
		return o, errors.New("exec: want --digest")
	case len(o.argv) == 0 || o.argv[0] == "":
		return o, errors.New("exec: want a program")
	}
	return o, nil
}

// launch becomes the program, confined, and returns only with an error. Nothing
// of the launcher is left then: its descriptors close at exec, and arguments and
// environment are the program's own.
func launch(args []string) error {
	o, err := parseOrder(args)
	if err != nil {
		return err
	}
	p, err := o.profile()
	if err != nil {
		return err
	}
	// Whoever made the profile has limited it to the kernel. What is refused here
	// on top is refused by this container's seccomp filter, and no policy's
	// "enforcement: degrade" meant that.
	p.Degrade = false
	sup := landlock.Probe()
	if sup.State != landlock.Available {
		return sup.Err
	}
	rs, err := landlock.Build(p, sup)
	if err != nil {
		return err
	}
	if len(rs.Layers) == 0 {
		return fmt.Errorf("%w: the profile has no layer", errs.ErrInvalid)
	}
	// As runc does it, with PATH and working directory as they are here, and
	// before the restriction: afterwards an answer would be about the policy.
	path, err := exec.LookPath(o.argv[0])
	if err != nil {
		return lookError(err)
	}
	if err := takeLabel(o.label); err != nil {
		return err
	}
	if err := rs.RestrictThread(); err != nil {
		return err
	}
	return execError(path, syscall.Exec(path, o.argv, os.Environ()))
}

// profile reads the bytes that were handed over and holds them against the digest.
func (o *order) profile() (*profile.Profile, error) {
	var f *os.File
	if o.fd >= 0 {
		unix.CloseOnExec(o.fd)
		f = os.NewFile(uintptr(o.fd), "profile")
	} else {
		var err error
		if f, err = os.Open(o.file); err != nil {
			return nil, fmt.Errorf("profile: %w", err)
		}
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, profile.MaxEncoded+1))
	if err != nil {
		return nil, fmt.Errorf("profile: %w", err)
	}
	if got := profile.Digest(b); got != o.digest {
		return nil, fmt.Errorf("profile: %w: its digest is %s and not %s", errs.ErrInvalid, got, o.digest)
	}
	p, err := profile.Decode(b)
	if err != nil {
		return nil, fmt.Errorf("profile: %w", err)
	}
	return p, nil
}

func lookError(err error) error {
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) {
		return fmt.Errorf("%w: %w", errs.ErrProgramNotFound, err)
	}
	return fmt.Errorf("%w: %w", errs.ErrProgramRefused, err)
}

func execError(path string, err error) error {
	sentinel, hint := errs.ErrProgramRefused, ""
	switch {
	case errors.Is(err, unix.ENOENT):
		sentinel, hint = errs.ErrProgramNotFound, " (or its interpreter does not exist)"
	case errors.Is(err, unix.EACCES):
		hint = " (does the policy grant execute on it, on its interpreter and on its loader?)"
	}
	return fmt.Errorf("%w: %s: %w%s", sentinel, path, err, hint)
}
