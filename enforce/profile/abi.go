package profile

// MaxABI is the newest Landlock ABI this package knows. A newer kernel is used
// as one of MaxABI: rights nobody asked for by name are never handled.
const MaxABI = 11

// MaxKernelLayers is how many layers a kernel stacks on one thread
// (LANDLOCK_MAX_NUM_LAYERS); one more is E2BIG from landlock_restrict_self.
// A profile may have more, up to [MaxLayers], and is flattened before use.
const MaxKernelLayers = 16

// ABILevel is one line of the table of ABI levels.
type ABILevel struct {
	ABI    int
	Kernel string // the first upstream release with it; distributions backport, so never derive the ABI from a kernel's version
	New    string // what came with it, in words
}

// abiLevels is the one table of ABI levels, abiLevels[i].ABI == i+1.
var abiLevels = [...]ABILevel{
	{1, "5.13", "13 fs rights, execute to make_sym"},
	{2, "5.19", "refer"},
	{3, "6.2", "truncate"},
	{4, "6.7", "bind_tcp, connect_tcp"},
	{5, "6.10", "ioctl_dev"},
	{6, "6.12", "scopes abstract_unix_socket, signal"},
	{7, "6.15", "log flags"},
	{8, "7.0", "restriction of all threads at once"},
	{9, "7.1", "resolve_unix"},
	{10, "7.2", "bind_udp, connect_send_udp, quiet"},
	{11, "7.3", "no_new_privs flag"},
}

// ABILevels returns a copy of the table of ABI levels, from 1 to [MaxABI].
func ABILevels() []ABILevel {
	return append([]ABILevel(nil), abiLevels[:]...)
}

// KernelOf returns the first upstream kernel release with this ABI, or "" when
// the ABI is not in the table.
func KernelOf(abi int) string {
	if abi < 1 || abi > len(abiLevels) {
		return ""
	}
	return abiLevels[abi-1].Kernel
}
