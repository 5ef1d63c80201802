// Command policyd-launch holds a program and all its descendants where policyd cannot
// write cgroups: `policyd-launch supervise`, started by policyd alone.
//
// It is small and static (build it with CGO_ENABLED=0) and imports enforce/...
// and nothing of gRPC, bbolt, protobuf or YAML.
package main

import (
	"fmt"
	"os"

	"policyd.dev/policyd/enforce/spawn"
)

func main() {
	if len(os.Args) == 2 && os.Args[1] == "supervise" {
		os.Exit(spawn.Supervise())
	}
	fmt.Fprintln(os.Stderr, "usage: policyd-launch supervise    (started by policyd, with its request on descriptor 3)")
	os.Exit(2)
}
