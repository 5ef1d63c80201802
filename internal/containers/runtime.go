package containers

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// Annotations that the edit of a container's config.json leaves (package enforce/oci).
const (
	annotationPrefix  = "policyd.dev/"
	annotationApplied = annotationPrefix + "applied"
	annotationVersion = annotationPrefix + "version"
	annotationSmack   = annotationPrefix + "smack-label"
)

// State is what a runtime keeps of a container.
type State struct {
	Pid   int
	Start uint64 // of Pid, clock ticks after boot; 0 when the runtime does not tell
	// Bundle is where its config.json was.
	Bundle string
	// Digest and Version are of the profile the container was created under, "" when under none.
	Digest, Version string
	// SmackLabel is what its programs take on, "" for none.
	SmackLabel string
	// Created tells that it waits for start.
	Created bool
}

// maxState bounds a file of a runtime, bytes.
const maxState = 16 << 20

// Runtime reads what the runtime itself keeps of a container in its root folder, without starting it. ErrNone when it
// knows none of that id; any other error when it cannot be told.
//
// runc keeps ROOT/ID/state.json, with the annotations as labels (libcontainer/specconv, libcontainer.State), crun
// ROOT/ID/status (libcrun/status.c) and a copy of config.json beside it. In both, exec.fifo is there until start.
func Runtime(root, id string) (*State, error) {
	if err := CheckID(id); err != nil {
		return nil, err
	}
	if root == "" || !filepath.IsAbs(root) {
		return nil, fmt.Errorf("%w: root %q is no absolute path", ErrInvalid, root)
	}
	dir := filepath.Join(root, id)
	st, err := runcState(dir)
	if errors.Is(err, fs.ErrNotExist) {
		st, err = crunState(dir)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: %q in %s", ErrNone, id, root)
	}
	if err != nil {
		return nil, err
	}
	_, ferr := os.Lstat(filepath.Join(dir, "exec.fifo"))
	st.Created = ferr == nil
	return st, nil
}

func runcState(dir string) (*State, error) {
	var file struct {
		Pid    int    `json:"init_process_pid"`
		Start  uint64 `json:"init_process_start"`
		Config struct {
			Labels []string `json:"labels"`
		} `json:"config"`
	}
	if err := readJSON(filepath.Join(dir, "state.json"), &file); err != nil {
		return nil, err
	}
	st := &State{Pid: file.Pid, Start: file.Start}
	all := map[string]string{}
	for _, l := range file.Config.Labels {
		// A key may hold a = too, and is then taken for a shorter one.
		key, value, _ := strings.Cut(l, "=")
		if _, twice := all[key]; twice && strings.HasPrefix(key, annotationPrefix) {
			return nil, fmt.Errorf("%s: %w: label %q is there twice", dir, ErrInvalid, key)
		}
		all[key] = value
	}
	// runc always has this one. Another runtime's file of this name says of annotations elsewhere, and nothing here.
	if st.Bundle = all["bundle"]; st.Bundle == "" {
		return nil, fmt.Errorf("%s: %w: its state.json is none of runc's", dir, ErrInvalid)
	}
	st.Digest, st.Version, st.SmackLabel = all[annotationApplied], all[annotationVersion], all[annotationSmack]
	return st, nil
}

func crunState(dir string) (*State, error) {
	var file struct {
		Pid    int    `json:"pid"`
		Start  uint64 `json:"process-start-time"`
		Bundle string `json:"bundle"`
	}
	if err := readJSON(filepath.Join(dir, "status"), &file); err != nil {
		return nil, err
	}
	st := &State{Pid: file.Pid, Start: file.Start, Bundle: file.Bundle}
	if st.Bundle == "" {
		return nil, fmt.Errorf("%s: %w: its status is none of crun's", dir, ErrInvalid)
	}
	var config struct {
		Annotations map[string]string `json:"annotations"`
	}
	if err := readJSON(filepath.Join(dir, "config.json"), &config); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			err = fmt.Errorf("%s has a status and no config.json", dir) // not: no container
		}
		return nil, err
	}
	a := config.Annotations
	st.Digest, st.Version, st.SmackLabel = a[annotationApplied], a[annotationVersion], a[annotationSmack]
	return st, nil
}

func readJSON(path string, into any) error {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxState))
	if err != nil {
		return err
	}
	if err := json.Unmarshal(b, into); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// RootOf gives the folder in which a runtime keeps its state: as its option --root says, else its default for the
// calling user (shouldHonorXDGRuntimeDir of runc's rootless_linux.go, crun's get_run_directory). "" when the runtime is
// not one of the two.
func RootOf(runtime, option string) string {
	if option != "" {
		if abs, err := filepath.Abs(option); err == nil {
			return abs
		}
		return ""
	}
	xdg := os.Getenv("XDG_RUNTIME_DIR")
	switch name := filepath.Base(runtime); {
	case strings.HasPrefix(name, "runc") && xdg != "" && (os.Geteuid() != 0 || otherUsersRoot()):
		return filepath.Join(xdg, "runc")
	case strings.HasPrefix(name, "runc"):
		return "/run/runc"
	case strings.HasPrefix(name, "crun") && xdg != "":
		return filepath.Join(xdg, "crun")
	case strings.HasPrefix(name, "crun"):
		return "/run/crun"
	}
	return ""
}

// otherUsersRoot tells whether the calling root is one of a user namespace, and of which user is not root: as a user's
// container engine starts a runtime.
func otherUsersRoot() bool {
	user := os.Getenv("USER")
	if user == "" || user == "root" {
		return false
	}
	b, err := os.ReadFile("/proc/self/uid_map")
	whole := strings.Fields(string(b))
	return err == nil && !(len(whole) == 3 && whole[0] == "0" && whole[1] == "0" && whole[2] == "4294967295")
}
