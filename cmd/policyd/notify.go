package main

import (
	"fmt"
	"net"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// notifier speaks sd_notify(3) with the service manager, or with nobody.
type notifier struct{ socket string }

// newNotifier takes NOTIFY_SOCKET out of the environment: it is not for children.
func newNotifier() notifier {
	n := notifier{os.Getenv("NOTIFY_SOCKET")}
	os.Unsetenv("NOTIFY_SOCKET")
	return n
}

// send passes lines such as READY=1. That the manager does not listen is no reason to fail.
func (n notifier) send(lines ...string) error {
	if n.socket == "" {
		return nil
	}
	c, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: n.socket, Net: "unixgram"})
	if err != nil {
		return fmt.Errorf("notify the service manager: %w", err)
	}
	defer c.Close()
	if _, err := c.Write([]byte(strings.Join(lines, "\n"))); err != nil {
		return fmt.Errorf("notify the service manager: %w", err)
	}
	return nil
}

// reloading is what Type=notify-reload wants before a reload; READY=1 ends it.
func reloading() []string {
	var ts unix.Timespec
	if unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts) != nil {
		return []string{"RELOADING=1"}
	}
	return []string{"RELOADING=1", fmt.Sprintf("MONOTONIC_USEC=%d", ts.Nano()/1000)}
}
