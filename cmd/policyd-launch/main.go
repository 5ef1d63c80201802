// Command policyd-launch is the small static program that stands between policyd
// and programs it does not start itself.
//
//	policyd-launch supervise   holds a program and all its descendants where policyd
//	                           cannot write cgroups; started by policyd alone
//	policyd-launch exec        confines itself by a profile and becomes the program;
//	                           put before a container's program by policyd-runc
//	policyd-launch unit        the same for a unit of systemd, with the file that policyctl
//	                           attach wrote; put before a service's program by its drop-in
//
// It is built with CGO_ENABLED=0, so that it runs in any root file system, and
// imports enforce/... and nothing of gRPC, bbolt, protobuf or YAML.
package main

import (
	"fmt"
	"os"
	"runtime"

	"policyd.dev/policyd/enforce/spawn"
)

const usage = `usage: policyd-launch supervise    (started by policyd, with its request on descriptor 3)
       policyd-launch exec (--file PATH | --fd N) --digest sha256:HEX [--smack-label L] -- PROGRAM [ARGUMENT]...
       policyd-launch unit --unit NAME --profile FILE --program PATH [OPTION]... -- ARGV0 [ARGUMENT]...
`

// The main goroutine stays on the process's first thread when that thread is to
// be restricted: what execve(2) keeps is the calling thread, and so there is one
// less to be exchanged.
func init() {
	if len(os.Args) > 1 && (os.Args[1] == "exec" || os.Args[1] == "unit") {
		runtime.LockOSThread()
	}
}

func main() {
	if len(os.Args) == 2 && os.Args[1] == "supervise" {
		os.Exit(spawn.Supervise())
	}
	if len(os.Args) > 1 && os.Args[1] == "exec" {
		err := launch(os.Args[2:])
		fmt.Fprintln(os.Stderr, "policyd-launch:", err)
		os.Exit(exitOf(err))
	}
	if len(os.Args) > 1 && os.Args[1] == "unit" {
		err := launchUnit(os.Args[2:])
		fmt.Fprintln(os.Stderr, "policyd-launch:", err)
		os.Exit(exitOf(err))
	}
	fmt.Fprint(os.Stderr, usage)
	os.Exit(2)
}
