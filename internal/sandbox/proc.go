package sandbox

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
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

// findProcess looks for a process of policyd's own user by its argv[0]; pid 0 when there
// is none.
func findProcess(argv0 string) (pid int, ticks uint64) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return 0, 0
	}
	for _, e := range entries {
		p, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		cmdline, err := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
		if err != nil || !bytes.HasPrefix(cmdline, append([]byte(argv0), 0)) {
			continue
		}
		// Another user's process can have any name.
		info, err := e.Info()
		if err != nil {
			continue
		}
		if st, ok := info.Sys().(*syscall.Stat_t); !ok || int(st.Uid) != os.Geteuid() {
			continue
		}
		if t, err := startTicks(p); err == nil {
			return p, t
		}
	}
	return 0, 0
}
