package cli

import (
	"context"
	"errors"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"policyd.dev/policyd/internal/errs"
)

// Exit codes of policyctl. 125 to 127 are those of env(1) and of docker run.
const (
	ExitOK          = 0
	ExitRefused     = 1 // policyd, or a check made here, says no
	ExitUsage       = 2
	ExitUnreachable = 3
	ExitNotAllowed  = 4
	ExitTimedOut    = 124
	ExitFailed      = 125 // run and exec: nothing was started
	ExitNoExec      = 126 // run and exec: the program cannot be executed
	ExitNoProgram   = 127 // run and exec: the program does not exist
	ExitInterrupted = 130 // 128 + SIGINT
)

// ExitDoc is a line of the table of exit codes that help and manual show.
type ExitDoc struct {
	Code int
	Doc  string
}

// ExitDocs returns the documented meaning of every exit code, in order.
func ExitDocs() []ExitDoc {
	return []ExitDoc{
		{ExitOK, "done"},
		{ExitRefused, "refused: a wrong policy, an unexpected version, no such thing, a kernel that cannot enforce it"},
		{ExitUsage, "wrong usage of the command line"},
		{ExitUnreachable, "policyd, or the etcd of a fleet, is not reachable"},
		{ExitNotAllowed, "the caller may not do that"},
		{ExitTimedOut, "timed out (--timeout)"},
		{ExitFailed, "run, exec, wait: policyctl or policyd failed (run, exec: nothing was started)"},
		{ExitNoExec, "run, exec: the program exists but cannot be executed"},
		{ExitNoProgram, "run, exec: the program does not exist"},
		{ExitInterrupted, "interrupted (^C)"},
	}
}

// codeExits maps every code of gRPC; reasonExits is more exact where it matters.
var codeExits = map[codes.Code]int{
	codes.OK:                 ExitOK,
	codes.Canceled:           ExitInterrupted,
	codes.Unknown:            ExitRefused,
	codes.InvalidArgument:    ExitRefused,
	codes.DeadlineExceeded:   ExitTimedOut,
	codes.NotFound:           ExitRefused,
	codes.AlreadyExists:      ExitRefused,
	codes.PermissionDenied:   ExitNotAllowed,
	codes.ResourceExhausted:  ExitRefused,
	codes.FailedPrecondition: ExitRefused,
	codes.Aborted:            ExitRefused,
	codes.OutOfRange:         ExitRefused,
	codes.Unimplemented:      ExitRefused,
	codes.Internal:           ExitRefused,
	codes.Unavailable:        ExitUnreachable,
	codes.DataLoss:           ExitRefused,
	codes.Unauthenticated:    ExitNotAllowed,
}

// reasonExits maps the stable reasons of policyd's errors (ErrorInfo) that have
// an exit code of their own.
var reasonExits = map[string]int{
	"PROGRAM_NOT_FOUND": ExitNoProgram,
	"PROGRAM_REFUSED":   ExitNoExec,
}

// sentinelExits maps errors found by policyctl itself.
var sentinelExits = []struct {
	err  error
	exit int
}{
	{errs.ErrProgramNotFound, ExitNoProgram},
	{errs.ErrProgramRefused, ExitNoExec},
	{errs.ErrNotAllowed, ExitNotAllowed},
	{context.DeadlineExceeded, ExitTimedOut},
	{context.Canceled, ExitInterrupted},
}

// Exit is an error that carries the exit code. Err is nil when nothing is to be
// said any more: the code is the answer (a child's status, a verdict).
type Exit struct {
	Code int
	Err  error
}

// Error gives the text of the error inside.
func (e *Exit) Error() string {
	if e.Err == nil {
		return ""
	}
	return e.Err.Error()
}

// Unwrap gives the error inside.
func (e *Exit) Unwrap() error { return e.Err }

// Usage marks an error as one of the command line.
func Usage(err error) error { return &Exit{Code: ExitUsage, Err: err} }

// ExitCode says with what policyctl ends for an error.
func ExitCode(err error) int {
	if err == nil {
		return ExitOK
	}
	if exit, ok := errors.AsType[*Exit](err); ok {
		return exit.Code
	}
	for _, s := range sentinelExits {
		if errors.Is(err, s.err) {
			return s.exit
		}
	}
	st, ok := statusOf(err)
	if !ok {
		return ExitRefused
	}
	if code, ok := reasonExits[Reason(err)]; ok {
		return code
	}
	if code, ok := codeExits[st.Code()]; ok {
		return code
	}
	return ExitRefused
}

// StartExitCode is ExitCode for commands whose own exit status is that of a
// program: failures of policyctl are 125 to 127 there, never 1 to 4, which a
// program may well give itself.
func StartExitCode(err error) int {
	if exit, ok := errors.AsType[*Exit](err); ok && exit.Err == nil {
		return exit.Code
	}
	switch code := ExitCode(err); code {
	case ExitOK, ExitTimedOut, ExitNoExec, ExitNoProgram, ExitInterrupted:
		return code
	}
	return ExitFailed
}

// Reason gives the stable reason policyd put into an error, or "".
func Reason(err error) string {
	st, ok := statusOf(err)
	if !ok {
		return ""
	}
	for _, d := range st.Details() {
		if info, ok := d.(*errdetails.ErrorInfo); ok {
			return info.GetReason()
		}
	}
	return ""
}

// statusOf finds a gRPC status in an error's chain.
func statusOf(err error) (*status.Status, bool) {
	var s interface{ GRPCStatus() *status.Status }
	if !errors.As(err, &s) {
		return nil, false
	}
	return s.GRPCStatus(), true
}
