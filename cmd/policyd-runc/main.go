// Command policyd-runc is an OCI runtime that puts containers under profiles of
// policyd and leaves the rest to the runtime behind it, runc or crun.
//
//	main.go         what is done with which command
//	commandline.go  the runtimes' command lines, as far as they matter
//	settings.go     its configuration
//	container.go    create and run: the edit of config.json
//	exec.go         exec: the edit of the process file or of the arguments
//	profiles.go     profiles from policyd, as files that containers have mounted
//	lastknown.go    those kept for when policyd does not answer
//	records.go      what policyd is told of containers
//	report.go       how engines learn of an error
//
// A container whose profile cannot be had is not started. The command becomes
// the runtime behind it by exec, so it is not there while a container runs.
//
// Every command of a runtime starts this program, so what it links is started
// too: it imports enforce/oci and those packages of internal/ that need nothing
// but the standard library; neither gRPC nor YAML (TestHeavyDependencies).
package main

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"policyd.dev/policyd/internal/buildinfo"
)

func main() {
	args := os.Args[1:]
	if len(args) == 1 && args[0] == "--policyd-version" {
		fmt.Fprintln(os.Stdout, "policyd-runc", buildinfo.Version)
		return
	}
	line, err := parseLine(args)
	if err == nil {
		err = become(line)
	}
	report(line, err)
	os.Exit(1)
}

// become does what is policyd's part and then is the runtime. It returns only
// with an error.
func become(l *line) error {
	s, err := loadSettings()
	if err != nil {
		return err
	}
	runtime, err := s.runtime()
	if err != nil {
		return err
	}
	args := l.args
	switch l.command {
	case "create", "run", "restore", "exec", "delete":
		err = s.complete()
	}
	if err != nil {
		return err
	}
	switch l.command {
	case "create", "run":
		err = s.confineContainer(l, runtime)
	case "restore":
		err = s.refuseRestore(l)
	case "exec":
		args, err = confineExec(runtime, l)
	case "delete":
		s.forgetContainer(l, runtime)
	}
	if err != nil {
		return err
	}
	if err := syscall.Exec(runtime, append([]string{runtime}, args...), os.Environ()); err != nil {
		return fmt.Errorf("%s: %w", runtime, err)
	}
	return nil
}

// runtime gives the path of the runtime behind this one, which must be another.
func (s *settings) runtime() (string, error) {
	names := []string{s.Runtime}
	if s.Runtime == "" {
		names = []string{"runc", "crun"}
	}
	path, err := findRuntime(names)
	if err != nil {
		return "", fmt.Errorf("the runtime to be used: %w", err)
	}
	if path, err = filepath.Abs(path); err != nil {
		return "", err
	}
	self, err := os.Stat("/proc/self/exe")
	if err != nil {
		return "", err
	}
	if st, err := os.Stat(path); err != nil || os.SameFile(st, self) {
		return "", fmt.Errorf("the runtime to be used is %s, which is policyd-runc itself; name another (runtime: in %s)", path, s.file)
	}
	return path, nil
}

// findRuntime looks in PATH and then in the system's folders: conmon starts a
// runtime with no environment.
func findRuntime(names []string) (path string, err error) {
	for _, name := range names {
		if strings.Contains(name, "/") {
			return name, runnable(name)
		}
		for dir := range strings.SplitSeq(os.Getenv("PATH")+":/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", ":") {
			if !filepath.IsAbs(dir) {
				continue // os/exec refuses what is found by a relative one
			}
			if path := filepath.Join(dir, name); runnable(path) == nil {
				return path, nil
			}
		}
	}
	return "", fmt.Errorf("no %s in $PATH or the system's folders", strings.Join(names, " and no "))
}

func runnable(path string) error {
	st, err := os.Stat(path)
	switch {
	case err != nil:
		return err
	case !st.Mode().IsRegular() || st.Mode()&0o111 == 0:
		return &fs.PathError{Op: "execute", Path: path, Err: syscall.EACCES}
	}
	return nil
}
