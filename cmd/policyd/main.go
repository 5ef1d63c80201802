// Command policyd is the daemon: it stores policies as versions, compiles them, and starts programs that the
// kernel confines by them.
//
// It wires the packages together and holds no logic of its own. It may import everything of policyd's.
//
//	main.go     flags, exit codes
//	daemon.go   wiring, from the configuration to a server that answers
//	signals.go  reload and stop
//	folders.go  the folders it keeps its files in
//	metrics.go  the listener for Prometheus
//	notify.go   words to the service manager
//	fdstore.go  descriptors that it keeps for the next policyd
//	status.go   the text of systemctl status, and what policyctl status says of the configuration
//	watchdog.go whether policyd works
//	tls.go      the certificates of the network's listener
//	logger.go   where the log goes
//	smackboot.go  the SmackPolicy early in a boot
//	privileges.go what no child shall inherit
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"policyd.dev/policyd/internal/buildinfo"
	"policyd.dev/policyd/internal/config"
	"policyd.dev/policyd/internal/paths"
)

// Exit codes. A service manager should not restart after exitConfig: nothing gets better by itself. It is not exitUsage, since
// a Go program that panics, or is ended by SIGABRT as a watchdog does it, exits with 2.
const (
	exitOK      = 0
	exitFailure = 1
	exitUsage   = 2
	exitConfig  = 78 // EX_CONFIG of sysexits.h
)

const usage = `policyd stores sandbox policies and starts programs under them.

Usage:
  policyd [--user|--system] [--config FILE] [--state-dir DIR] [--listen unix:///PATH] [--socket-mode MODE]
  policyd smack-boot [--state-dir DIR]

  --config FILE       configuration (default %s, which need not exist)
  --state-dir DIR     folder of the store and of logs (default %s);
                      socket and journal then lie in DIR/run
  --listen ADDRESS    unix:///PATH of the socket (default unix://%s)
  --socket-mode MODE  permissions of the socket, octal (default 0660 for root, else 0600)
  --user              the calling user's folders, socket and configuration; the default but for root
  --system            the system's; the default for root
  --check             read the configuration and its certificates, say what is wrong, and exit
  --version           print the version and exit
  --help              print this and exit

smack-boot loads the SmackPolicy that is assigned to this host from the store, early in
a boot, with neither daemon nor network (policyd-smack.service).

policyd needs no root: a user's own keeps its state in that user's folders, and
starts programs as that user alone.

Examples:
  policyd                                        the system's daemon, or your own
  policyd --state-dir /tmp/try                   a daemon that touches nothing else
  policyd --config ./policyd.yaml --listen unix:///tmp/policyd.sock
  policyctl status                               see whether it answers

Signals: TERM and INT stop it, sandboxes that run detached go on; HUP reads the
configuration again; WINCH says that the TERM after it is one of a restart, so that
attached sandboxes go on, too, where systemd keeps their streams meanwhile.
Exit codes: 0 stopped as asked, 1 failed, 2 wrong use, 78 wrong configuration.
`

// flags are the command line.
type flags struct {
	config, stateDir, listen, socketMode string
	version, user, system                bool
	smackBoot, check                     bool
}

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

func run(args []string, stdout, stderr io.Writer) int {
	f, err := parseFlags(args)
	layout := f.layout()
	switch {
	case errors.Is(err, flag.ErrHelp):
		fmt.Fprintf(stdout, usage, layout.Config, layout.State, layout.Socket())
		return exitOK
	case err != nil:
		fmt.Fprintf(stderr, "policyd: %v\nTry 'policyd --help'.\n", err)
		return exitUsage
	case f.version:
		fmt.Fprintf(stdout, "policyd %s\n", buildinfo.Version)
		return exitOK
	}
	o, err := f.options(layout)
	if err != nil {
		fmt.Fprintf(stderr, "policyd: %v\n", err)
		if errors.Is(err, errConfiguration) {
			return exitConfig
		}
		return exitUsage
	}
	switch {
	case f.smackBoot:
		if err := smackBoot(o, stderr); err != nil {
			// For the console too, which shows what is written and not what the journal is told.
			fmt.Fprintf(stderr, "policyd: no smack policy: %v\n", err)
			return exitFailure
		}
		return exitOK
	case f.check:
		if err := o.check(); err != nil {
			fmt.Fprintf(stderr, "policyd: %v\n", err)
			return exitConfig
		}
		return exitOK
	}
	if err := o.check(); err != nil {
		fmt.Fprintf(stderr, "policyd: %v\n", err)
		return exitConfig
	}
	if err := serve(o, stderr); err != nil {
		// The logger may be set to be quiet; why a daemon is not there is told always.
		fmt.Fprintf(stderr, "policyd: %v\n", err)
		return exitFailure
	}
	return exitOK
}

func parseFlags(args []string) (*flags, error) {
	f := &flags{}
	set := flag.NewFlagSet("policyd", flag.ContinueOnError)
	set.SetOutput(io.Discard)
	set.Usage = func() {}
	set.StringVar(&f.config, "config", "", "")
	set.StringVar(&f.stateDir, "state-dir", "", "")
	set.StringVar(&f.listen, "listen", "", "")
	set.StringVar(&f.socketMode, "socket-mode", "", "")
	set.BoolVar(&f.version, "version", false, "")
	set.BoolVar(&f.user, "user", false, "")
	set.BoolVar(&f.system, "system", false, "")
	set.BoolVar(&f.check, "check", false, "")
	if len(args) > 0 && args[0] == "smack-boot" {
		f.smackBoot, args = true, args[1:]
	}
	if err := set.Parse(args); err != nil {
		return f, err
	}
	switch {
	case f.user && f.system:
		return f, errors.New("--user and --system exclude each other")
	case f.smackBoot && (f.user || f.check || f.config != "" || f.listen != "" || f.socketMode != ""):
		return f, errors.New("smack-boot takes --state-dir alone: it reads no configuration and is of the system's policyd")
	}
	if set.NArg() > 0 {
		return f, fmt.Errorf("unexpected argument %q", set.Arg(0))
	}
	return f, nil
}

// layout is where the policyd that was asked for keeps its files.
func (f *flags) layout() paths.Layout {
	switch {
	case f.user:
		return paths.User()
	case f.system || f.smackBoot:
		return paths.System()
	}
	return paths.Default()
}

// options is the command line and the configuration file together.
type options struct {
	layout     paths.Layout
	configFile string
	// optional: the file need not exist.
	optional bool
	config   *config.Config
	// socket overrides the file's; so does the mode of flags, already in config.
	socket string
	flags  *flags
}

func (f *flags) options(layout paths.Layout) (*options, error) {
	o := &options{layout: layout, configFile: layout.Config, optional: f.config == "", flags: f}
	if f.config != "" {
		o.configFile = f.config
	}
	if f.stateDir != "" {
		dir, err := filepath.Abs(f.stateDir)
		if err != nil {
			return nil, fmt.Errorf("--state-dir: %w", err)
		}
		o.layout = layout.WithState(dir)
	}
	if f.smackBoot {
		// A mistake in the file must not keep the policy out of the kernel.
		o.config = config.Default(os.Geteuid())
		return o, nil
	}
	cfg, err := o.load()
	if err != nil {
		return nil, err
	}
	o.config = cfg
	o.socket = o.layout.Socket()
	switch {
	case f.listen != "":
		path, err := unixPath(f.listen)
		if err != nil {
			return nil, err
		}
		o.socket = path
	case cfg.Socket.Path != "" && (f.stateDir == "" || !o.optional):
		// With a state folder of its own a daemon keeps clear of the socket of the system's file, not of that of
		// a file it was given.
		o.socket = cfg.Socket.Path
	}
	return o, nil
}

// errConfiguration is what an error of the configuration file is.
var errConfiguration = errors.New("configuration")

// configurationError says what the error it wraps says.
type configurationError struct{ error }

func (e configurationError) Unwrap() error        { return e.error }
func (e configurationError) Is(target error) bool { return target == errConfiguration }

// load reads the file again and puts the flags over it.
func (o *options) load() (*config.Config, error) {
	cfg, err := config.Load(o.configFile, o.optional, os.Geteuid())
	if err != nil {
		return nil, configurationError{err}
	}
	if o.flags.socketMode != "" {
		if cfg.Socket.Mode, err = config.ParseMode(o.flags.socketMode); err != nil {
			return nil, fmt.Errorf("--socket-mode: %w", err)
		}
	}
	return cfg, nil
}

// check says whether a reload would succeed.
func (o *options) check() error {
	if o.config.TCP == nil {
		return nil
	}
	return (&certificates{}).load(o.config.TCP)
}

// unixPath is the path in an address of gRPC's form unix:///path, unix:/path, or a plain path.
func unixPath(address string) (string, error) {
	path, ok := strings.CutPrefix(address, "unix://")
	if !ok {
		path = strings.TrimPrefix(address, "unix:")
	}
	switch {
	case strings.HasPrefix(address, "unix-abstract:") || strings.HasPrefix(path, "@"):
		return "", fmt.Errorf("--listen %s: abstract sockets have no permissions and are not used", address)
	case strings.Contains(address, "://") && !ok:
		return "", fmt.Errorf("--listen %s: only unix:///PATH is taken here; a network listener is the configuration's tcp section", address)
	case !filepath.IsAbs(path):
		return "", fmt.Errorf("--listen %s: the path is not absolute (unix:///PATH)", address)
	}
	return filepath.Clean(path), nil
}
