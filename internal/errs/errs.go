// Package errs holds the sentinel errors of policyd, each with a sentence on
// when it is returned. Code wraps them with %w and callers test with errors.Is.
//
// The gRPC code and the stable reason of each stand in internal/server's table.
// It imports only the standard library, so that every package may import it.
package errs

import "errors"

// What was asked for is wrong.
var (
	// ErrInvalid: a document, a field or an argument is wrong; the message names the place.
	ErrInvalid = errors.New("invalid")
	// ErrTooLarge: something is beyond a limit of size that stands in the message.
	ErrTooLarge = errors.New("too large")
)

// What was asked for is not there or is in the way.
var (
	// ErrNotFound: no such policy, fragment, version, tag or sandbox.
	ErrNotFound = errors.New("not found")
	// ErrNoBinding: no Binding matches a workload, and the configuration gives it no policy.
	ErrNoBinding = errors.New("no Binding matches")
	// ErrExists: something of that name exists already.
	ErrExists = errors.New("already exists")
	// ErrVersionMismatch: the newest version is not the one the writer expected.
	ErrVersionMismatch = errors.New("version is not the expected one")
	// ErrReferenced: a document that something refers to cannot be deleted.
	ErrReferenced = errors.New("still referred to")
	// ErrDeleted: the document was deleted; its history is kept.
	ErrDeleted = errors.New("deleted")
	// ErrRequestReused: a request id was used before for another request.
	ErrRequestReused = errors.New("request id was used for another request")
	// ErrNotRunning: the sandbox has ended.
	ErrNotRunning = errors.New("not running")
	// ErrStillRunning: the sandbox has not ended.
	ErrStillRunning = errors.New("still running")
)

// Who asks may not.
var (
	// ErrNotAllowed: the caller's roles do not allow the call.
	ErrNotAllowed = errors.New("not allowed")
	// ErrLimit: a limit of the caller (sandboxes, starts a second, log space) is reached; the message says which.
	ErrLimit = errors.New("limit reached")
)

// What this host cannot do.
var (
	// ErrNoDescriptors: the limit of open files of policyd (EMFILE) or of the host (ENFILE) is reached.
	ErrNoDescriptors = errors.New("policyd may open no more files (its limit is RLIMIT_NOFILE, LimitNOFILE= of a service)")
	// ErrLandlockNotBuilt: the kernel has no Landlock (ENOSYS).
	ErrLandlockNotBuilt = errors.New("landlock is not built into this kernel")
	// ErrLandlockDisabled: Landlock is not among the active LSMs (EOPNOTSUPP).
	ErrLandlockDisabled = errors.New("landlock is disabled on this kernel (not in the lsm= list)")
	// ErrLandlockBlocked: a seccomp filter refuses Landlock's system calls (EPERM).
	ErrLandlockBlocked = errors.New("landlock is blocked for this process (seccomp filter)")
	// ErrUnsupported: the kernel lacks rights or flags the policy requires; each is named.
	ErrUnsupported = errors.New("this kernel cannot enforce the policy")
	// ErrFlatten: the layers do not fit the kernel and flattening would change what they mean.
	ErrFlatten = errors.New("layers cannot be flattened")
	// ErrPathMissing: a rule's path does not exist and the rule does not say missing: skip.
	ErrPathMissing = errors.New("path of a rule does not exist")
	// ErrPathRefused: a rule's path names something that must not be granted (/proc/self and friends).
	ErrPathRefused = errors.New("path of a rule is refused")
	// ErrSmackUnavailable: a Smack label was asked for and the kernel has no Smack or refused it.
	ErrSmackUnavailable = errors.New("smack label cannot be set")
	// ErrSmackNotBuilt: the kernel was built without Smack.
	ErrSmackNotBuilt = errors.New("smack is not built into this kernel")
	// ErrSmackDisabled: Smack is not among the active LSMs.
	ErrSmackDisabled = errors.New("smack is not enabled on this kernel (not in the lsm= list)")
	// ErrSmackNotMounted: Smack is on and smackfs is mounted nowhere that policyd sees, or cannot be written.
	ErrSmackNotMounted = errors.New("smackfs is not mounted")
	// ErrSmackPrivilege: policyd lacks CAP_MAC_ADMIN in the initial user namespace, or may not write smackfs's files.
	ErrSmackPrivilege = errors.New("no privilege to change smack (CAP_MAC_ADMIN)")
	// ErrSmackOnlycap: policyd has CAP_MAC_ADMIN, but its label is not in smackfs's onlycap.
	ErrSmackOnlycap = errors.New("onlycap keeps this label from changing smack")
	// ErrSmackRefused: the kernel refused a rule or a setting, which is named; the earlier state is in force.
	ErrSmackRefused = errors.New("smack refused")
	// ErrSmackForeign: rules or settings that policyd did not load are in the way of those it shall load.
	ErrSmackForeign = errors.New("smack rules of others are in the way")
	// ErrSmackPartly: what the kernel holds is neither the earlier nor the wanted state; what differs is named.
	ErrSmackPartly = errors.New("smack was changed in part")
	// ErrContainment: no way is available to end all descendants of a sandbox.
	ErrContainment = errors.New("descendants of a sandbox could not be contained")
)

// A program could not be started under its policy.
var (
	// ErrProgramNotFound: the program does not exist (exit code 127).
	ErrProgramNotFound = errors.New("program not found")
	// ErrProgramRefused: the program exists but may not be executed (exit code 126).
	ErrProgramRefused = errors.New("program cannot be executed")
	// ErrStart: a step before exec failed and nothing was started (exit code 125).
	ErrStart = errors.New("could not start")
)

// The store cannot do its work.
var (
	// ErrStoreLocked: another process holds the store's file.
	ErrStoreLocked = errors.New("store is held by another policyd")
	// ErrStoreCorrupt: a page, a record or the log's chain is damaged.
	ErrStoreCorrupt = errors.New("store is damaged")
	// ErrStoreReadOnly: the store's file or folder cannot be written.
	ErrStoreReadOnly = errors.New("store is read-only")
	// ErrStoreFull: no space is left for a commit; nothing was changed.
	ErrStoreFull = errors.New("no space left for the store")
	// ErrStoreFailed: a commit could not be written or synced (an I/O error) and was not made; nothing is acknowledged.
	ErrStoreFailed = errors.New("store could not be written")
	// ErrStoreNewer: the store was written by a newer policyd.
	ErrStoreNewer = errors.New("store was written by a newer policyd")
	// ErrShutdown: the daemon is stopping.
	ErrShutdown = errors.New("policyd is stopping")
	// ErrRestart: the daemon stops, and the next one goes on with the streams of the sandbox.
	ErrRestart = errors.New("policyd restarts")
)

// What a fleet sends is not believed. The node keeps what it has.
var (
	// ErrWrongType: a signed text is of another type than the one looked for.
	ErrWrongType = errors.New("signed text is of another type")
	// ErrWrongFleet: a signed text is of another fleet.
	ErrWrongFleet = errors.New("signed text is of another fleet")
	// ErrWrongChannel: a signed pointer is of another channel.
	ErrWrongChannel = errors.New("signed pointer is of another channel")
	// ErrTooFewSignatures: fewer of the trusted keys have signed than must.
	ErrTooFewSignatures = errors.New("too few signatures of trusted keys")
	// ErrTampered: a signature does not fit its text, or bytes do not fit their digest.
	ErrTampered = errors.New("changed after it was signed")
	// ErrOlderSequence: a pointer's sequence number is not above the one the node has.
	ErrOlderSequence = errors.New("pointer is older than the one in force")
	// ErrExpired: a pointer is past its not_after. What is in force stays in force and is called stale.
	ErrExpired = errors.New("pointer has expired")
	// ErrHalted: a person, or a gate, has halted the rollout.
	ErrHalted = errors.New("rollout is halted")
	// ErrFromChannel: the policy comes from the fleet's channel and is not changed on the node.
	ErrFromChannel = errors.New("policy comes from the fleet and is not changed here")
)
