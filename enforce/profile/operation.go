package profile

import "fmt"

// OpKind is what a program asks the kernel for.
type OpKind uint8

// The operations. What an [Operation] needs besides its kind stands behind each.
const (
	OpOpen          OpKind = iota // Path, Open: open(2)
	OpExec                        // Path: execve(2) of it; interpreters are operations of their own
	OpTruncate                    // Path: truncate(2)
	OpMkdir                       // Path
	OpMknod                       // Path, Make: mknod(2), or bind(2) of a unix socket to a path
	OpSymlink                     // Path: of the link itself
	OpUnlink                      // Path
	OpRmdir                       // Path
	OpRename                      // Path, NewPath
	OpExchange                    // Path, NewPath: renameat2(2) with RENAME_EXCHANGE
	OpLink                        // Path, NewPath: link(2)
	OpIoctlDev                    // Path, Open: open a device, then ioctl(2) on it
	OpConnectUnix                 // Path: connect or send to a unix socket by its path
	OpBindTCP                     // Port, 0 for any; listen(2) without bind is not mediated, nor MPTCP (erratum 1)
	OpConnectTCP                  // Port
	OpBindUDP                     // Port, 0 for any
	OpConnectUDP                  // Port
	OpSendUDP                     // Port: of the address given to sendto(2)
	OpSignal                      // to another process
	OpAbstractUnix                // connect or send to an abstract unix socket
	OpMount                       // mount, umount, remount, pivot_root, move_mount
	OpStat                        // also access, readlink, chdir, statfs: not mediated
	OpSetAttributes               // chmod, chown, utime, setxattr, flock: not mediated
	opKinds
)

var opNames = [opKinds]string{
	"open", "exec", "truncate", "mkdir", "mknod", "symlink", "unlink", "rmdir", "rename", "exchange", "link",
	"ioctl-dev", "connect-unix", "bind tcp", "connect tcp", "bind udp", "connect udp", "send-udp",
	"signal", "abstract-unix", "mount", "stat", "chmod",
}

// String gives the word of policyctl check.
func (k OpKind) String() string {
	if k < opKinds {
		return opNames[k]
	}
	return fmt.Sprintf("operation(%d)", uint8(k))
}

// asksObject tells whether rights are asked of what Path names, as a file.
func (k OpKind) asksObject() bool {
	return k == OpOpen || k == OpExec || k == OpTruncate || k == OpIoctlDev
}

// OpenFlags is how a file is opened, as far as that matters for Landlock.
type OpenFlags uint8

// The flags of open(2). Neither OpenRead nor OpenWrite makes sense with
// OpenPath alone, for which Landlock asks nothing.
const (
	OpenRead      OpenFlags = 1 << iota // O_RDONLY, O_RDWR
	OpenWrite                           // O_WRONLY, O_RDWR
	OpenTruncate                        // O_TRUNC
	OpenCreate                          // O_CREAT
	OpenDirectory                       // O_DIRECTORY
	OpenPath                            // O_PATH
)

// Operation is one thing asked of the kernel. Paths are absolute, clean and
// real: symbolic links are followed before, but for the last component of a
// path that the system call does not follow.
type Operation struct {
	Kind          OpKind
	Path, NewPath string
	Open          OpenFlags
	Make          FileType
	Port          uint16
}

// Facts is what an answer depends on besides the profile, errata of the kernel
// included (see [Errata]).
type Facts struct {
	// What Path and NewPath name, NoFile for nothing. A character device of
	// number 0:0 (a whiteout) is a RegularFile for kernels with erratum 4.
	Type, NewType FileType

	// Internal: Path leads to a file of the kernel's own file systems that are
	// mounted nowhere, by a link of /proc/PID/fd or /proc/PID/ns: a pipe, a
	// socket, a memfd, a namespace. Opening and executing those is not mediated
	// (the kernel's is_nouser_or_private).
	Internal bool

	// Mounted is Move.Mounted, for OpRename, OpExchange and OpLink.
	Mounted bool

	// Shared is how many layers of the profile, from the oldest, whoever is at
	// the other end is under too: the process to be signalled, the process
	// that made the unix socket. 0 outside of the sandbox, all inside.
	Shared int

	// SameProcess: the signal goes to a thread of the same process, which is
	// always allowed (erratum 2).
	SameProcess bool

	// Bound: the UDP socket has a local port. If not, sending or connecting
	// binds it to any, which asks for bind_udp on port 0 as well.
	Bound bool
}

// Verdict is the short form of an answer.
type Verdict uint8

// NotMediated means that Landlock asks nothing: no profile could refuse it.
const (
	Deny Verdict = iota
	Allow
	NotMediated
)

// String gives "deny", "allow" or "not_mediated".
func (v Verdict) String() string {
	switch v {
	case Allow:
		return "allow"
	case NotMediated:
		return "not_mediated"
	}
	return "deny"
}
