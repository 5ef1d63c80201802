package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"policyd.dev/policyd/enforce/landlock"
	"policyd.dev/policyd/enforce/profile"
	"policyd.dev/policyd/enforce/spawn"
	"policyd.dev/policyd/enforce/unit"
	"policyd.dev/policyd/internal/errs"
)

// unitOrder is what a drop-in asks for.
type unitOrder struct {
	unit, file string
	program    string // a path, or a name to look for in search
	search     string
	sigpipe    bool     // systemd left SIGPIPE ignored
	argv       []string // the program's, as systemd made it
}

// defaultSearch is where systemd looks for a program without a path (DEFAULT_PATH in its src/basic/path-util.h).
const defaultSearch = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

func parseUnitOrder(args []string) (unitOrder, error) {
	var o unitOrder
	f := flag.NewFlagSet("unit", flag.ContinueOnError)
	f.SetOutput(io.Discard)
	f.StringVar(&o.unit, "unit", "", "")
	f.StringVar(&o.file, "profile", "", "")
	f.StringVar(&o.program, "program", "", "")
	f.StringVar(&o.search, "search", defaultSearch, "")
	f.BoolVar(&o.sigpipe, "ignore-sigpipe", false, "")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	o.argv = f.Args()
	switch {
	case o.unit == "" || o.file == "" || o.program == "":
		return o, errors.New("unit: want --unit, --profile and --program")
	case len(o.argv) == 0:
		return o, errors.New("unit: want the program's arguments, the first of which is its name")
	}
	return o, nil
}

// launchUnit becomes a service's program, confined by the file that policyctl
// attach wrote for the unit, and returns only with an error. systemd has set up
// all else before: credentials, namespaces, sockets, the Smack label. The pid stays.
func launchUnit(args []string) error {
	o, err := parseUnitOrder(args)
	if err != nil {
		return err
	}
	r, err := unit.Read(o.file)
	if err != nil {
		return o.wayOut(err)
	}
	if r.Unit != o.unit {
		return o.wayOut(fmt.Errorf("%s: %w: it is for %s", o.file, errs.ErrInvalid, r.Unit))
	}
	rs, err := rulesetsOf(r)
	if err != nil {
		return fmt.Errorf("%s under %s: %w", o.unit, r.Policy, err)
	}
	path, err := o.find()
	if err != nil {
		return err
	}
	if err := checkLabel(r.SmackLabel); err != nil {
		return fmt.Errorf("%s under %s: %w", o.unit, r.Policy, err)
	}
	if o.sigpipe {
		// The Go runtime has put a handler in its place, which exec would make the default.
		signal.Ignore(syscall.SIGPIPE)
	}
	if err := settings(r); err != nil {
		return fmt.Errorf("%s under %s: %w", o.unit, r.Policy, err)
	}
	if rs != nil {
		if err := rs.RestrictThread(); err != nil {
			return fmt.Errorf("%s under %s: %w", o.unit, r.Policy, err)
		}
	}
	return execError(path, syscall.Exec(path, o.argv, environment(r)))
}

// wayOut adds to an error of the file what makes a new one.
func (o *unitOrder) wayOut(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("%s has no profile, so that it is not started: %w", o.unit, err)
	}
	return fmt.Errorf("%w; `policyctl attach %s POLICY` writes it, `policyctl detach %s` ends the confinement", err, o.unit, o.unit)
}

// rulesetsOf makes the rulesets on this host; nil is what a policy with "enforcement:
// degrade" has left on a kernel without Landlock.
func rulesetsOf(r *unit.Record) (*landlock.Rulesets, error) {
	p, err := profile.Decode(r.Profile)
	if err != nil {
		return nil, err
	}
	if len(p.Layers) == 0 {
		return nil, fmt.Errorf("%w: the profile has no layer", errs.ErrInvalid)
	}
	sup := landlock.Probe()
	if sup.State != landlock.Available {
		if !p.Degrade {
			return nil, sup.Err
		}
		// A kernel without Landlock is what degrade is about; a seccomp filter, which may say
		// the same (SystemCallErrorNumber=), is not.
		if errors.Is(sup.Err, errs.ErrLandlockBlocked) || filtered() && !kernelLacksLandlock() {
			return nil, fmt.Errorf("%w: %w", errs.ErrLandlockBlocked, sup.Err)
		}
		fmt.Fprintf(os.Stderr, "policyd-launch: %s: not confined, as %s says to degrade: %v\n", r.Unit, r.Policy, sup.Err)
		return nil, nil
	}
	rs, err := landlock.Build(p, sup)
	if err != nil {
		return nil, err
	}
	for _, n := range rs.Missing {
		fmt.Fprintf(os.Stderr, "policyd-launch: %s under %s: not enforced on this kernel: %v\n", r.Unit, r.Policy, n)
	}
	return rs, nil
}

// filtered tells that a seccomp filter is on, or that this cannot be seen.
func filtered() bool {
	b, err := os.ReadFile("/proc/self/status")
	return err != nil || !strings.Contains(string(b), "\nSeccomp:\t0\n")
}

// kernelLacksLandlock tells that Landlock is not among the active security modules;
// false where that cannot be seen.
func kernelLacksLandlock() bool {
	b, err := os.ReadFile("/sys/kernel/security/lsm")
	return err == nil && !slices.Contains(strings.Split(strings.TrimSpace(string(b)), ","), "landlock")
}

// find gives the program's path. systemd looks for a name along its own path, not along $PATH.
func (o *unitOrder) find() (string, error) {
	if strings.Contains(o.program, "/") {
		if _, err := os.Stat(o.program); err != nil {
			return "", lookError(err)
		}
		return o.program, nil
	}
	for _, dir := range filepath.SplitList(o.search) {
		if path, err := exec.LookPath(filepath.Join(dir, o.program)); err == nil && filepath.IsAbs(path) {
			return path, nil
		}
	}
	return "", fmt.Errorf("%w: %s is not in %s", errs.ErrProgramNotFound, o.program, o.search)
}

// checkLabel holds that systemd has given the label: it ignores SmackProcessLabel=
// where there is no Smack, and another drop-in may have changed it.
func checkLabel(want string) error {
	if want == "" {
		return nil
	}
	b, err := os.ReadFile("/proc/self/attr/smack/current")
	if err != nil {
		return fmt.Errorf("%w: %q: %w", errs.ErrSmackUnavailable, want, err)
	}
	if have := strings.TrimRight(string(b), "\n\x00"); have != want {
		return fmt.Errorf("%w: the policy wants the label %q, the process has %q", errs.ErrSmackUnavailable, want, have)
	}
	return nil
}

// settings are those of the policy that a process has of its own.
func settings(r *unit.Record) error {
	if r.Umask != "" {
		n, err := strconv.ParseUint(r.Umask, 8, 32)
		if err != nil || n > 0o777 {
			return fmt.Errorf("umask %q: %w", r.Umask, errs.ErrInvalid)
		}
		syscall.Umask(int(n))
	}
	for name, value := range r.Limits {
		l, err := spawn.ParseLimit(name, value)
		if err != nil {
			return err
		}
		if err := syscall.Setrlimit(l.Resource, &syscall.Rlimit{Cur: l.Soft, Max: l.Hard}); err != nil {
			return fmt.Errorf("limit %s: %w", name, err)
		}
	}
	return nil
}

func environment(r *unit.Record) []string {
	env := os.Environ()
	for name, value := range r.Environment {
		env = append(slices.DeleteFunc(env, func(e string) bool { return strings.HasPrefix(e, name+"=") }), name+"="+value)
	}
	return env
}
