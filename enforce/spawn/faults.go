package spawn

// The steps from a ready thread to a running program, in order. A test makes
// each fail in turn and sees that nothing was started. What happens between fork
// and exec is one step here; the test breaks its system calls one by one.
const (
	stepDir        = "open_dir"    // the working directory
	stepUnshareFS  = "unshare_fs"  // a umask of the thread's own
	stepUmask      = "umask"       //
	stepSmackOpen  = "smack_open"  // /proc/thread-self/attr/smack/current
	stepSmackWrite = "smack_write" //
	stepSmackRead  = "smack_read"  // what the kernel made of it
	stepRelabel    = "smack_relabel"
	stepNoNewPrivs = "no_new_privs" // named by enforce/landlock
	stepRestrict   = "restrict_self"
	stepFork       = "fork"
	stepStop       = "stop" // the stop at exec, only with limits
	stepExitKill   = "exitkill"
	stepLimits     = "limits"
	stepDetach     = "detach"
	stepPoll       = "poll" // the pidfd in the netpoller
)

// steps is the fault table.
var steps = []string{
	stepDir, stepUnshareFS, stepUmask, stepSmackOpen, stepSmackWrite, stepSmackRead, stepRelabel, stepNoNewPrivs, stepRestrict,
	stepFork, stepStop, stepExitKill, stepLimits, stepDetach, stepPoll,
}

// The steps of a supervised start beside those above, which its supervisor makes.
const (
	stepPair    = "socketpair"
	stepLaunch  = "launch"       // fork and exec of the supervisor
	stepReaper  = "subreaper"    // in the supervisor
	stepSend    = "send_request" //
	stepRequest = "read_request" // in the supervisor
	stepAnswer  = "answer"       // in the supervisor
	stepReply   = "receive_reply"
)

// launchSteps and supervisorSteps are the fault tables of the two processes. The
// step poll comes twice in policyd: for the supervisor and for the program.
var (
	launchSteps     = []string{stepPair, stepLaunch, stepPoll, stepSend, stepReply, stepPoll}
	supervisorSteps = append([]string{stepReaper, stepRequest, stepAnswer}, steps...)
)

// fault is nil but in tests, which set it before they start anything.
var fault func(step string) error

func step(name string) error {
	if fault == nil {
		return nil
	}
	return fault(name)
}
