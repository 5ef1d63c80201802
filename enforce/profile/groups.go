package profile

// Group is a name for several rights of one kind, for people who write
// policies. A profile holds no groups: they are expanded when it is compiled.
type Group struct {
	Name   string
	Kind   Kind
	Access Access // all its rights at MaxABI; see [ExpandGroup]
	Doc    string
}

const (
	groupWrite  = FSWriteFile | FSTruncate
	groupCreate = FSMakeReg | FSMakeDir | FSMakeSym | FSMakeFifo | FSMakeSock
	groupRemove = FSRemoveFile | FSRemoveDir
)

// groups is the one table of groups. "execute" is a right by itself and has no
// group, so that reading and executing are always asked for apart.
var groups = [...]Group{
	{"read", FS, FSReadFile | FSReadDir, "read files and list directories"},
	{"write", FS, groupWrite, "write to files that are there, and truncate them"},
	{"create", FS, groupCreate, "create files, directories, symbolic links, named pipes and unix sockets"},
	{"create_devices", FS, FSMakeChar | FSMakeBlock, "create device nodes"},
	{"remove", FS, groupRemove, "remove files and directories"},
	{"modify", FS, groupWrite | groupCreate | groupRemove | FSRefer, "write, create, remove, and move between directories"},
	{"all", FS, Handled(FS, MaxABI), "every fs right of the policy's abi"},

	{"bind", Net, NetBindTCP | NetBindUDP, "bind to a local port"},
	{"connect", Net, NetConnectTCP | NetConnectSendUDP, "connect or send to a remote port"},
	{"tcp", Net, NetBindTCP | NetConnectTCP, "bind and connect with TCP"},
	{"udp", Net, NetBindUDP | NetConnectSendUDP, "bind, connect and send with UDP"},
	{"all", Net, Handled(Net, MaxABI), "every net right of the policy's abi"},

	{"all", Scope, Handled(Scope, MaxABI), "every scope of the policy's abi"},
}

// Groups returns a copy of the table of groups.
func Groups() []Group {
	return append([]Group(nil), groups[:]...)
}

// ExpandGroup returns the rights of a group, limited to those a kernel of this
// ABI knows, so a text with `abi: 6` never asks for more than it was written
// for. The mask may be empty (net groups below ABI 4); ok is false when the
// kind has no group of that name.
func ExpandGroup(kind Kind, name string, abi int) (a Access, ok bool) {
	for i := range groups {
		if g := &groups[i]; g.Kind == kind && g.Name == name {
			return g.Access & Handled(kind, abi), true
		}
	}
	return 0, false
}
