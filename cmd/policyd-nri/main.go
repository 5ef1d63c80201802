// Command policyd-nri is a plugin of containerd's and CRI-O's node resource
// interface (NRI) that puts the programs of containers under profiles of policyd.
//
//	main.go      flags, what is told of its limits, start and end
//	settings.go  its configuration
//	plugin.go    the runtime's calls: what is answered to which
//	container.go a container as NRI tells it: as a config.json, and the adjustment back
//	memory.go    what is answered from: Bindings and profiles, by question
//	follow.go    keeping the memory as policyd has it
//	fetch.go     what is asked of policyd for it
//	profiles.go  profiles as files, which containers get mounted
//	version.go   which runtimes take what is answered
//	runtime.go   the connection to the runtime, made anew when it ends
//	log.go       NRI's log as one of ours
//
// What is done to a container is what policyd-runc does, by the same package. The
// runtime waits two seconds for an answer and goes on without it then, so every
// answer is given from memory; what is not there is refused. Programs that are
// executed in a container later are not seen by NRI at all.
//
// It may import api, enforce and internal/... .
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"policyd.dev/policyd/internal/buildinfo"
)

// Exit codes. A service manager should not start it again after exitUsage: nothing gets better by itself.
const (
	exitOK      = 0
	exitFailure = 1
	exitUsage   = 2
)

// limits is what whoever relies on this must know; it stands in the help and is logged at every start.
var limits = []string{
	"programs executed in a container later (kubectl exec, exec probes) are not confined: NRI does not tell of them",
	"a runtime with an NRI older than 0.12.4 starts a container unconfined when this plugin takes longer than 2 s, and does not ask it again until it has registered anew",
	"while this plugin does not run, containers start unconfined; the runtime's validator of required plugins (annotation required-plugins.noderesource.dev) refuses them then, but not after such a time-out",
	"Smack labels are not given; a policy with one is refused",
	"policyd-runc has none of these limits",
}

const usage = `policyd-nri puts the programs of containers under profiles of policyd, as a plugin of
containerd (2.2 or newer) or CRI-O (1.34 or newer).

Usage:
  policyd-nri [--config FILE] [--check]

  --config FILE  configuration (default %s, which need not exist)
  --check        read the configuration, say what is wrong with it, and exit
  --version      print the version and exit
  --help         print this and exit

Limits, which are those of the interface:
`

const usageEnd = `
Examples:
  policyd-nri                              with the runtime's socket /var/run/nri/nri.sock
  policyd-nri --config ./nri.yaml --check  see whether a configuration can be used

Signals: TERM and INT stop it; containers go on.
Exit codes: 0 stopped as asked, 1 failed, 2 wrong use or configuration.
`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("policyd-nri", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	config := flags.String("config", "", "")
	check := flags.Bool("check", false, "")
	version := flags.Bool("version", false, "")
	err := flags.Parse(args)
	if err == nil && flags.NArg() > 0 {
		err = fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	switch {
	case errors.Is(err, flag.ErrHelp):
		fmt.Fprintf(stdout, usage, defaultConfig)
		for _, l := range limits {
			fmt.Fprintf(stdout, "  - %s\n", l)
		}
		fmt.Fprint(stdout, usageEnd)
		return exitOK
	case err != nil:
		fmt.Fprintf(stderr, "policyd-nri: %v\nTry 'policyd-nri --help'.\n", err)
		return exitUsage
	case *version:
		fmt.Fprintf(stdout, "policyd-nri %s\n", buildinfo.Version)
		return exitOK
	}
	s, err := loadSettings(*config)
	if err != nil {
		fmt.Fprintf(stderr, "policyd-nri: %v\n", err)
		return exitUsage
	}
	if *check {
		fmt.Fprintf(stdout, "%s is in order\n", s.file)
		return exitOK
	}
	log := slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: slog.LevelInfo}))
	for _, l := range limits {
		log.Warn("limit of NRI", "limit", l)
	}
	if err := serve(ctx, s, log); err != nil {
		fmt.Fprintf(stderr, "policyd-nri: %v\n", err)
		return exitFailure
	}
	return exitOK
}

// serve follows policyd and answers the runtime until ctx ends.
func serve(ctx context.Context, s *settings, log *slog.Logger) error {
	m := newMemory(s, log)
	f, err := newFollower(s, m, log)
	if err != nil {
		return err
	}
	followed := make(chan struct{})
	go func() {
		f.run(ctx)
		close(followed)
	}()
	// The runtime starts containers unconfined until it is connected to, so that comes first: what is not in memory yet is
	// refused.
	p := &plugin{settings: s, memory: m, log: log, registered: sync.OnceFunc(func() {
		if err := notifyReady(); err != nil {
			log.Warn("the service manager was not told", "error", err)
		}
	})}
	p.serve(ctx)
	<-followed
	return nil
}

// notifyReady tells the service manager, if there is one (sd_notify(3)).
func notifyReady() error {
	socket := os.Getenv("NOTIFY_SOCKET")
	if socket == "" {
		return nil
	}
	d := net.Dialer{Timeout: time.Second}
	c, err := d.Dial("unixgram", socket)
	if err != nil {
		return err
	}
	defer c.Close()
	_, err = c.Write([]byte("READY=1"))
	return err
}
