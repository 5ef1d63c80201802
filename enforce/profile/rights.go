package profile

import (
	"fmt"
	"math/bits"
	"strings"
)

// Access is a mask of access rights of one [Kind]; the bits are those of the
// kernel's include/uapi/linux/landlock.h. In a row's mask bit 31 is [QuietRule].
type Access uint32

// QuietRule in a row's mask says that the rule of that layer is added with
// LANDLOCK_ADD_RULE_QUIET (ABI 10), as the kernel's layer mask has quiet:1
// beside its access bits.
const QuietRule Access = 1 << 31

// Kind tells which of the kernel's three name spaces of rights a mask is in.
type Kind uint8

// The kinds, in the order of the kernel's struct landlock_ruleset_attr.
const (
	FS    Kind = iota // handled_access_fs, rules of type PATH_BENEATH
	Net               // handled_access_net, rules of type NET_PORT
	Scope             // scoped, no rules
)

// String gives "fs", "net" or "scope".
func (k Kind) String() string {
	switch k {
	case FS:
		return "fs"
	case Net:
		return "net"
	case Scope:
		return "scope"
	}
	return fmt.Sprintf("kind(%d)", uint8(k))
}

// Rights of kind FS (LANDLOCK_ACCESS_FS_*).
const (
	FSExecute     Access = 1 << iota // 0x1
	FSWriteFile                      // 0x2
	FSReadFile                       // 0x4
	FSReadDir                        // 0x8
	FSRemoveDir                      // 0x10
	FSRemoveFile                     // 0x20
	FSMakeChar                       // 0x40
	FSMakeDir                        // 0x80
	FSMakeReg                        // 0x100
	FSMakeSock                       // 0x200
	FSMakeFifo                       // 0x400
	FSMakeBlock                      // 0x800
	FSMakeSym                        // 0x1000
	FSRefer                          // 0x2000
	FSTruncate                       // 0x4000
	FSIoctlDev                       // 0x8000
	FSResolveUnix                    // 0x10000
)

// Rights of kind Net (LANDLOCK_ACCESS_NET_*).
const (
	NetBindTCP Access = 1 << iota
	NetConnectTCP
	NetBindUDP
	NetConnectSendUDP
)

// Rights of kind Scope (LANDLOCK_SCOPE_*).
const (
	ScopeAbstractUnixSocket Access = 1 << iota
	ScopeSignal
)

// Right is one line of the table of rights.
type Right struct {
	Name string // the kernel's name in lower case, without its prefix
	Kind Kind
	Bit  Access
	ABI  int  // the first ABI that knows it
	File bool // kind FS: it may be granted on something that is not a directory
	Doc  string
}

// rights is the one table of rights, ordered by kind and bit. Everything that
// knows a right by name, ABI or kind reads it from here.
var rights = [...]Right{
	{"execute", FS, FSExecute, 1, true, "execute a file; the file must be readable too where read_file is handled"},
	{"write_file", FS, FSWriteFile, 1, true, "open a file for writing"},
	{"read_file", FS, FSReadFile, 1, true, "open a file for reading"},
	{"read_dir", FS, FSReadDir, 1, false, "open a directory or list its content"},
	{"remove_dir", FS, FSRemoveDir, 1, false, "remove an empty directory, or rename one away"},
	{"remove_file", FS, FSRemoveFile, 1, false, "unlink a file, or rename one away"},
	{"make_char", FS, FSMakeChar, 1, false, "create, rename or link a character device"},
	{"make_dir", FS, FSMakeDir, 1, false, "create or rename a directory"},
	{"make_reg", FS, FSMakeReg, 1, false, "create, rename or link a regular file"},
	{"make_sock", FS, FSMakeSock, 1, false, "create, rename or link a unix socket"},
	{"make_fifo", FS, FSMakeFifo, 1, false, "create, rename or link a named pipe"},
	{"make_block", FS, FSMakeBlock, 1, false, "create, rename or link a block device"},
	{"make_sym", FS, FSMakeSym, 1, false, "create, rename or link a symbolic link"},
	{"refer", FS, FSRefer, 2, false, "rename or link between directories; handled by every layer of a domain that handles any fs right"},
	{"truncate", FS, FSTruncate, 3, true, "truncate a file by truncate, ftruncate, creat or O_TRUNC"},
	{"ioctl_dev", FS, FSIoctlDev, 5, true, "ioctl on a device opened after the restriction"},
	{"resolve_unix", FS, FSResolveUnix, 9, true, "connect to a unix socket by its path, made outside of the domain"},

	{"bind_tcp", Net, NetBindTCP, 4, false, "bind a TCP socket to a local port"},
	{"connect_tcp", Net, NetConnectTCP, 4, false, "connect a TCP socket to a remote port"},
	{"bind_udp", Net, NetBindUDP, 10, false, "bind a UDP socket to a local port"},
	{"connect_send_udp", Net, NetConnectSendUDP, 10, false, "connect a UDP socket to, or send a datagram to, a remote port"},

	{"abstract_unix_socket", Scope, ScopeAbstractUnixSocket, 6, false, "no connection to an abstract unix socket made outside of the domain"},
	{"signal", Scope, ScopeSignal, 6, false, "no signal to a process outside of the domain"},
}

// Rights returns a copy of the table of rights, ordered by kind and bit.
func Rights() []Right {
	return append([]Right(nil), rights[:]...)
}

// RightByName finds a right of a kind by its name (lower case, exact).
func RightByName(kind Kind, name string) (Right, bool) {
	for _, r := range rights {
		if r.Kind == kind && r.Name == name {
			return r, true
		}
	}
	return Right{}, false
}

// Handled returns all rights of a kind that a kernel of this ABI knows.
// ABI 0 (no Landlock) knows none; above [MaxABI] it is what MaxABI knows.
func Handled(kind Kind, abi int) Access {
	var a Access
	for i := range rights {
		if r := &rights[i]; r.Kind == kind && r.ABI <= abi {
			a |= r.Bit
		}
	}
	return a
}

// FileRights returns the fs rights known at this ABI that may stand in a rule
// on something that is not a directory (the kernel's ACCESS_FILE); any other
// right there is EINVAL from landlock_add_rule. At ABI 5 it is 0xC007, from
// ABI 9 0x1C007.
func FileRights(abi int) Access {
	var a Access
	for i := range rights {
		if r := &rights[i]; r.File && r.ABI <= abi {
			a |= r.Bit
		}
	}
	return a
}

// Names turns a mask of kind k into the names of its rights in bit order. Bits
// that no right has come last as one hexadecimal number ("0x100000").
// [QuietRule] is not a right and is left out.
func (k Kind) Names(a Access) []string {
	a &^= QuietRule
	if a == 0 {
		return nil
	}
	names := make([]string, 0, bits.OnesCount32(uint32(a)))
	for i := range rights {
		if r := &rights[i]; r.Kind == k && a&r.Bit != 0 {
			names = append(names, r.Name)
			a &^= r.Bit
		}
	}
	if a != 0 {
		names = append(names, fmt.Sprintf("%#x", uint32(a)))
	}
	return names
}

// Format is Names joined by "|", or "none".
func (k Kind) Format(a Access) string {
	names := k.Names(a)
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, "|")
}
