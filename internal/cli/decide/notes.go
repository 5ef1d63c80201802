package decide

import "fmt"

// The codes of notes. They are stable; what they mean stands in noteCodes.
const (
	noteLexical        = "lexical"
	noteAssumed        = "assumed"
	noteMissing        = "path_missing"
	noteExists         = "path_exists"
	noteFileSystem     = "file_system"
	noteSymlink        = "symlink"
	noteSymlinkOut     = "symlink_leads_out"
	noteSharedInode    = "shared_inode"
	noteOwnLink        = "own_process"
	noteTraced         = "traced_file"
	noteStaleRule      = "rule_on_other_inode"
	noteReplaceable    = "rule_file_replaceable"
	noteSkippedRule    = "rule_skipped"
	noteFileRights     = "file_rule_rights"
	noteNotEnforced    = "right_not_enforced"
	noteNotHandled     = "right_not_handled"
	noteGain           = "gain"
	noteNoRefer        = "no_refer"
	noteFlattened      = "flattened"
	noteCreated        = "created"
	noteNoTruncate     = "no_ftruncate"
	noteInherited      = "inherited_descriptors"
	noteNotMediated    = "not_mediated"
	noteOpenPath       = "open_path"
	noteTopology       = "topology"
	noteInterpreter    = "interpreter_unknown"
	noteLibraries      = "libraries"
	noteNotDevice      = "not_a_device"
	noteIoctl          = "ioctl_exempt"
	noteOwnSocket      = "own_sockets"
	noteMPTCP          = "mptcp"
	noteListen         = "listen_without_bind"
	noteConnectNotBind = "connect_granted"
	noteBindNotConnect = "bind_granted"
	notePortZero       = "port_zero"
	noteUDPAutobind    = "udp_autobind"
)

// NoteCode is one line of the table of notes.
type NoteCode struct {
	Code string
	Doc  string
}

var noteCodes = []NoteCode{
	{noteLexical, "decided on the text of paths alone: symbolic links, hard links and bind mounts of no host were looked at"},
	{noteAssumed, "what the path was taken for, because it was not looked at or is not there"},
	{noteMissing, "the path does not exist; the kernel answers ENOENT where the operation needs it"},
	{noteExists, "the path exists; the kernel answers EEXIST to what would make it"},
	{noteFileSystem, "the file system itself refuses the operation, whatever the policy says"},
	{noteSymlink, "symbolic links lead to another path, and that is the one that counts"},
	{noteSymlinkOut, "the path as it is written is granted, but a symbolic link leads out of the grant"},
	{noteSharedInode, "a rule on another path holds here, because both are one inode (hard link, bind mount)"},
	{noteOwnLink, "the path leads through /proc/self or the like (/dev/stdin, /dev/fd), which is policyctl here and another process in the program asked about"},
	{noteTraced, "the file shows a process outside of the sandbox, which Landlock keeps from being traced: refused as well, whatever the rules say"},
	{noteStaleRule, "a rule's path names another inode now than when the rules were bound; the rule stays with the old one"},
	{noteReplaceable, "a rule is on a file that the policy lets programs replace; a new file of that name is not covered by it"},
	{noteSkippedRule, "a rule on the way is left out, because its path does not exist and the policy says `missing: skip`"},
	{noteFileRights, "a rule on a file grants rights that only count on its directory; they are dropped"},
	{noteNotEnforced, "a layer handles a right that a kernel of this ABI does not know, so nothing refuses it there"},
	{noteNotHandled, "no layer handles a right, so nothing refuses it"},
	{noteGain, "moving would give the object rights where it goes that it lacks where it is"},
	{noteNoRefer, "moving between directories needs refer on both in every layer of a policy that handles any fs right"},
	{noteFlattened, "the layers are flattened into one before the kernel sees them, and that answers differently, as the policy accepts by name"},
	{noteCreated, "the open is refused, but it has made the file before that"},
	{noteNoTruncate, "the file can be opened for writing, but ftruncate(2) on it will be refused"},
	{noteInherited, "a file that is open already, inherited or received, keeps what it could do"},
	{noteNotMediated, "Landlock is not asked: no policy can refuse the operation"},
	{noteOpenPath, "O_PATH is not mediated; what is done with the descriptor is"},
	{noteTopology, "any layer with an fs right refuses to change mounts, and no rule can allow it"},
	{noteInterpreter, "the program could not be looked into, or the kernel takes it for none (ENOEXEC), so what it is interpreted by is not known"},
	{noteLibraries, "shared libraries need read_file and are not looked at here"},
	{noteNotDevice, "the path is no device, so ioctl_dev is not asked"},
	{noteIoctl, "some commands of ioctl(2) (FIOCLEX, FIONBIO and the like) are never refused"},
	{noteOwnSocket, "sockets that processes under the same layers made can always be reached"},
	{noteMPTCP, "the right is about TCP; MPTCP, SCTP and other protocols are not covered by it"},
	{noteListen, "listen(2) on a socket that is not bound takes a free port and is not refused by bind_tcp"},
	{noteConnectNotBind, "connecting to the port is granted where binding was asked"},
	{noteBindNotConnect, "binding the port is granted where connecting was asked"},
	{notePortZero, "port 0 (any free port) is a port like others for a rule, no wildcard"},
	{noteUDPAutobind, "a UDP socket without a local port is bound to any, which asks for bind_udp on port 0"},
}

// NoteCodes gives the table of notes, in the order of the documentation.
func NoteCodes() []NoteCode { return append([]NoteCode(nil), noteCodes...) }

func (a *Answer) note(code, format string, args ...any) {
	n := Note{code, fmt.Sprintf(format, args...)}
	for _, old := range a.Notes {
		if old == n {
			return
		}
	}
	a.Notes = append(a.Notes, n)
}
