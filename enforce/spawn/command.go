package spawn

import (
	"os"
)

// Credential is who a program runs as. Groups are all supplementary groups.
type Credential struct {
	UID    uint32
	GID    uint32
	Groups []uint32
}

// Command is a program to start.
type Command struct {
	Path string   // with a slash; relative to Dir; see LookPath
	Argv []string // with argv[0]; empty: Path alone
	Env  []string // the whole environment
	Dir  string   // absolute; entered as the program's user; empty: "/"

	Credential *Credential // nil: as policyd
	Umask      *int        // nil: as policyd
	Limits     []Limit     // set before the program's first instruction

	// nil: /dev/null. They are not closed by Start.
	Stdin, Stdout, Stderr *os.File
	// TTY: Stdin is the slave side of a terminal and becomes the controlling
	// one, in a session of the program's own. Without it the program leads a
	// process group, and a session too where policyd has a terminal.
	TTY bool

	SmackLabel string // empty: as policyd
	// SmackRelabel are labels of which the program may take one, once, without privilege. It wants a SmackLabel.
	SmackRelabel []string
	Group        Group // where descendants are held; nil: nowhere

	// StatusFile is where a supervisor writes the exit status, so that it is
	// known after a restart of policyd; see ReadStatusFile. Unused by cgroups.
	StatusFile string
}

// Status is how a program ended.
type Status struct {
	Code       int // exit code; 128+n when signal n ended it
	Signal     int // 0: ended by itself
	CoreDumped bool
	Unknown    bool // it ended, and nobody can say how
}
