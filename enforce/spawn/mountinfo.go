package spawn

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"policyd.dev/policyd/enforce/landlock"
)

// ownCgroup gives the folder of this process's v2 cgroup.
func ownCgroup() (string, error) {
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return "", err
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return "", err
	}
	return cgroupFolder(string(own), string(mounts))
}

// cgroupFolder finds where the v2 cgroup of a process is mounted, from its
// /proc/PID/cgroup (cgroups(7)) and mountinfo (proc_pid_mountinfo(5)).
func cgroupFolder(cgroup, mountinfo string) (string, error) {
	own, found := "", false
	for line := range strings.Lines(cgroup) {
		if own, found = strings.CutPrefix(strings.TrimSuffix(line, "\n"), "0::"); found {
			break
		}
	}
	if !found {
		return "", errors.New("this process is in no cgroup of version 2")
	}
	if strings.HasPrefix(own, "/..") { // cgroup_namespaces(7)
		return "", fmt.Errorf("cgroup %q is outside of this process's cgroup namespace", own)
	}
	for line := range strings.Lines(mountinfo) {
		before, after, _ := strings.Cut(line, " - ")
		f := strings.Fields(before)
		if len(f) < 5 || !strings.HasPrefix(after, "cgroup2 ") {
			continue
		}
		// The mount may show a part of the hierarchy only.
		rel, ok := strings.CutPrefix(own, strings.TrimSuffix(landlock.UnescapeMount(f[3]), "/"))
		if at := landlock.UnescapeMount(f[4]); ok && (rel == "" || rel[0] == '/') && filepath.IsAbs(at) {
			return filepath.Join(at, rel), nil
		}
	}
	return "", fmt.Errorf("cgroup %q is not mounted (version 2)", own)
}
