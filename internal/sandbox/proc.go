package sandbox

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// bootID names this boot of the kernel: process ids mean nothing across boots.
func bootID() (string, error) {
	data, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("sandboxes: %w", err)
	}
	return strings.TrimSpace(string(data)), nil
}

// startTicks is when a process was started, in clock ticks after boot (proc_pid_stat(5),
// field 22).
func startTicks(pid int) (uint64, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	// The name in field 2 may hold spaces and parentheses: count from its end.
	fields := bytes.Fields(data[bytes.LastIndexByte(data, ')')+1:])
	const at = 22 - 3
	if len(fields) <= at {
		return 0, fmt.Errorf("/proc/%d/stat: too short", pid)
	}
	return strconv.ParseUint(string(fields[at]), 10, 64)
}
