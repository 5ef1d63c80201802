package profile

// Erratum is a fault of kernels that is mended in some of any ABI. A kernel
// tells which it has mended apart from its ABI (landlock_create_ruleset with
// LANDLOCK_CREATE_RULESET_ERRATA).
type Erratum struct {
	Number int
	ABI    int    // the first ABI that has the fault
	Before string // what a kernel does that has not mended it
	Facts  string // how to ask for the answer of such a kernel
}

// errata is the one table of errata, errata[i].Number == i+1. The decisions are
// those of a kernel that has mended all; what differs is in the facts.
var errata = [...]Erratum{
	{1, 4, "bind_tcp and connect_tcp are asked of all stream sockets over IP (MPTCP, SMC, SCTP)", "OpBindTCP, OpConnectTCP for these sockets too"},
	{2, 6, "a signal to a thread of the same process under another domain is refused by the scope", "Facts.SameProcess is false"},
	{3, 1, "from a disconnected directory the rules on the mount point and above it are not met", "Tree: it stands under Nowhere"},
	{4, 1, "making a whiteout (character device 0:0) asks for make_char, not make_reg", "Facts.Type, Operation.Make is CharDevice, not RegularFile"},
}

// Errata returns a copy of the table of errata, ordered by number.
func Errata() []Erratum {
	return append([]Erratum(nil), errata[:]...)
}
