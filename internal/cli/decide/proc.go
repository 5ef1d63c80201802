package decide

import (
	"path"
	"strconv"
)

// ownProc is where a proc(5) shows this process.
var ownProc = "/proc"

// SetProc says where a proc file system of this process's own is mounted, for whoever has gone into another mount
// namespace in which /proc is another's. It must be called before any decider is made.
func SetProc(dir string) { ownProc = dir }

// ownFD is a path of an open file of this process.
func ownFD(fd int) string { return path.Join(ownProc, "self/fd", strconv.Itoa(fd)) }
