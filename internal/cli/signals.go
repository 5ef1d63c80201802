package cli

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Forwarded are the signals that an attached policyctl hands on to the program.
// SIGPIPE is among them so that a closed reader ends the program, as in a shell.
func Forwarded() []os.Signal {
	return []os.Signal{
		syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT,
		syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGALRM, syscall.SIGCONT,
	}
}

// ParseSignal reads a signal's number or name, with or without SIG, in any case.
func ParseSignal(s string) (syscall.Signal, error) {
	if n, err := strconv.Atoi(s); err == nil {
		if n < 1 || n > 64 {
			return 0, Usage(fmt.Errorf("signal %d: want 1 to 64", n))
		}
		return syscall.Signal(n), nil
	}
	name := strings.ToUpper(s)
	if !strings.HasPrefix(name, "SIG") {
		name = "SIG" + name
	}
	if n := unix.SignalNum(name); n != 0 {
		return n, nil
	}
	return 0, Usage(fmt.Errorf("signal %q: no such signal", s))
}
