package main

import (
	"fmt"
	"slices"
	"strings"
)

// line is a command line of a runtime.
type line struct {
	args    []string // all, without the program's name
	globals []string // the options before the command
	command string
	opts    map[string]string // those with a value, by long name, of the command and of the runtime
	rest    []string          // what is no option: the container, and of exec the program
	restAt  int               // where in args rest begins, of exec
}

// The options that take a value (true) and those that do not, of runc (main.go
// and the file of each command) and of crun (crun.c and likewise), with short
// names after a comma. An option that is not here is refused: what follows it
// could be its value or a command.
var (
	globalOptions = options{
		"log": true, "log-format": true, "log-level": true, "root": true, "criu": true, "rootless": true, "cgroup-manager": true,
		"debug": false, "systemd-cgroup": false, "help,h": false, "version,v": false, "version,V": false, "usage": false,
	}
	containerOptions = options{
		"bundle,b": true, "config,f": true, "console-socket": true, "pidfd-socket": true, "pid-file": true, "preserve-fds": true,
		"no-pivot": false, "no-new-keyring": false, "no-subreaper": false, "detach,d": false, "keep": false, "help,h": false,
		// of restore
		"image-path": true, "work-path": true, "parent-path": true, "manage-cgroups-mode": true, "empty-ns": true, "lsm-profile": true,
		"lsm-mount-context": true, "tcp-established": false, "ext-unix-sk": false, "shell-job": false, "file-locks": false,
		"auto-dedup": false, "lazy-pages": false,
	}
	execOptions = options{
		"console-socket": true, "pidfd-socket": true, "cwd": true, "env,e": true, "user,u": true, "additional-gids,g": true,
		"process,p": true, "pid-file": true, "process-label": true, "apparmor": true, "cap,c": true, "preserve-fds": true, "cgroup": true,
		"tty,t": false, "detach,d": false, "no-new-privs": false, "ignore-paused": false, "help,h": false,
	}
)

type options map[string]bool

// find gives the long name of an option as it is written without dashes.
func (o options) find(name string) (long string, valued, ok bool) {
	for names, valued := range o {
		long, short, _ := strings.Cut(names, ",")
		if name == long || short != "" && name == short {
			return long, valued, true
		}
	}
	return "", false, false
}

// parseLine understands a command line as far as is needed. Its error comes with
// what was understood by then.
func parseLine(args []string) (*line, error) {
	l := &line{args: args, opts: map[string]string{}}
	at, err := l.options(0, globalOptions, false)
	if err != nil {
		return l, err
	}
	l.globals = args[:at]
	if at == len(args) {
		return l, nil
	}
	l.command = args[at]
	switch l.command {
	case "create", "run", "restore":
		_, err = l.options(at+1, containerOptions, true)
	case "exec":
		if l.restAt, err = l.options(at+1, execOptions, false); err == nil {
			l.rest = args[l.restAt:]
		}
	}
	return l, err
}

// options takes options from args[at:] and gives where they end: at the first
// other argument, or at the end when they may stand anywhere.
func (l *line) options(at int, known options, anywhere bool) (int, error) {
	for at < len(l.args) {
		arg := l.args[at]
		switch {
		case arg == "--":
			if anywhere {
				l.rest = append(l.rest, l.args[at+1:]...)
			}
			return at + 1, nil
		case len(arg) > 1 && arg[0] == '-':
			n, err := l.option(at, known)
			if err != nil {
				return at, err
			}
			at += n
		case !anywhere:
			return at, nil
		default:
			l.rest = append(l.rest, arg)
			at++
		}
	}
	return at, nil
}

// option takes one argument of options and, where it has one, its value.
func (l *line) option(at int, known options) (taken int, err error) {
	arg := l.args[at]
	name, value, inline := strings.Cut(strings.TrimPrefix(arg[1:], "-"), "=")
	long, valued, ok := known.find(name)
	if !ok && arg[1] != '-' {
		return l.cluster(at, known)
	}
	_, shortValued, short := known.find(name[:min(1, len(name))])
	switch {
	case ok && arg[1] != '-' && len(name) > 1 && short && (valued || shortValued):
		return 0, fmt.Errorf("option %s means one thing to runc (--%s) and another to crun (-%s %s): write it with two dashes", arg, long, name[:1], arg[2:])
	case !ok:
		return 0, fmt.Errorf("option %s is not known to policyd-runc, which must know where options end", arg)
	case inline && !valued:
		return 0, fmt.Errorf("option %s: give it without a value, or leave it out", arg)
	case inline:
		return 1, l.set(long, value)
	case !valued:
		return 1, nil
	}
	return l.next(at, long)
}

// cluster takes short options written as one argument, as crun has them: -td, -uroot.
func (l *line) cluster(at int, known options) (taken int, err error) {
	arg := l.args[at]
	for i := 1; i < len(arg); i++ {
		long, valued, ok := known.find(arg[i : i+1])
		switch {
		case !ok:
			return 0, fmt.Errorf("option %s is not known to policyd-runc, which must know where options end", arg)
		case !valued:
		case i+1 < len(arg):
			return 1, l.set(long, arg[i+1:])
		default:
			return l.next(at, long)
		}
	}
	return 1, nil
}

// next takes the argument after at as the value of the option at it.
func (l *line) next(at int, long string) (taken int, err error) {
	if at+1 == len(l.args) {
		return 0, fmt.Errorf("option %s wants a value", l.args[at])
	}
	return 2, l.set(long, l.args[at+1])
}

// set refuses a second of those on which it depends what is started.
func (l *line) set(long, value string) error {
	if _, twice := l.opts[long]; twice && slices.Contains([]string{"root", "bundle", "config", "process"}, long) {
		return fmt.Errorf("option --%s is there twice", long)
	}
	l.opts[long] = value
	return nil
}
