package profile

import "fmt"

// LogFlags are the flags of landlock_restrict_self that say what a layer logs.
type LogFlags uint8

// The log flags (LANDLOCK_RESTRICT_SELF_LOG_*), all from ABI 7.
const (
	LogSameExecOff   LogFlags = 1 << iota // 1
	LogNewExecOn                          // 2
	LogSubdomainsOff                      // 4
)

// Flag is one line of the table of flags: what besides rights a profile or
// whoever enforces it may ask of a kernel.
type Flag struct {
	Name string
	Bit  uint32 // the bit in its system call's flags
	ABI  int    // the first ABI that knows it
	Log  bool   // it may stand in Layer.Log
	Call string // the system call that takes it
	Doc  string
}

// flags is the one table of flags, ordered by call and bit.
var flags = [...]Flag{
	{"same_exec_off", 1, 7, true, "landlock_restrict_self", "log no denial of the program that restricted itself"},
	{"new_exec_on", 2, 7, true, "landlock_restrict_self", "log denials of programs executed after the restriction"},
	{"subdomains_off", 4, 7, true, "landlock_restrict_self", "log no denial of domains nested in this one"},
	{"tsync", 8, 8, false, "landlock_restrict_self", "restrict all threads of the process at once"},
	{"no_new_privs", 16, 11, false, "landlock_restrict_self", "set no_new_privs when, and only when, the call succeeds"},
	{flagQuiet, 1, abiQuiet, false, "landlock_add_rule", "with the ruleset's quiet masks: log no denial of those rights below this rule"},
}

const (
	flagQuiet = "quiet"
	abiQuiet  = 10
)

// Flags returns a copy of the table of flags.
func Flags() []Flag {
	return append([]Flag(nil), flags[:]...)
}

// LogFlagByName finds a flag that may stand in [Layer].Log by its name in the
// table.
func LogFlagByName(name string) (LogFlags, bool) {
	for _, f := range flags {
		if f.Log && f.Name == name {
			return LogFlags(f.Bit), true
		}
	}
	return 0, false
}

// logFlagsKnown returns all log flags that a kernel of this ABI knows.
func logFlagsKnown(abi int) LogFlags {
	var l LogFlags
	for i := range flags {
		if f := &flags[i]; f.Log && f.ABI <= abi {
			l |= LogFlags(f.Bit)
		}
	}
	return l
}

// Names gives the names of the flags in bit order, unknown bits last as one
// hexadecimal number.
func (l LogFlags) Names() []string {
	var names []string
	for _, f := range flags {
		if f.Log && l&LogFlags(f.Bit) != 0 {
			names = append(names, f.Name)
			l &^= LogFlags(f.Bit)
		}
	}
	if l != 0 {
		names = append(names, fmt.Sprintf("%#x", uint8(l)))
	}
	return names
}
