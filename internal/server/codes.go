package server

import (
	"context"
	"errors"
	"syscall"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"

	"policyd.dev/policyd/internal/errs"
)

// Domain is that of every ErrorInfo policyd sends.
const Domain = "policyd.dev"

// ReasonInternal is that of errors without a row: the client gets an id to find in the log.
const ReasonInternal = "INTERNAL"

// codeRow ties a sentinel to what a client sees. Reasons are stable: programs act on them.
type codeRow struct {
	sentinel error
	code     codes.Code
	reason   string
}

// codeTable is in order of precedence: an error may wrap several sentinels, and the first row that
// it is decides. The more exact ones stand before the broader ones.
var codeTable = []codeRow{
	{errs.ErrNotAllowed, codes.PermissionDenied, "NOT_ALLOWED"},
	{errs.ErrLimit, codes.ResourceExhausted, "LIMIT"},
	{errs.ErrNoDescriptors, codes.ResourceExhausted, "NO_DESCRIPTORS"},
	{errs.ErrRequestReused, codes.InvalidArgument, "REQUEST_ID_REUSED"},
	{errs.ErrVersionMismatch, codes.Aborted, "VERSION_MISMATCH"},
	{errs.ErrReferenced, codes.FailedPrecondition, "REFERENCED"},
	{errs.ErrDeleted, codes.NotFound, "DELETED"},
	{errs.ErrNoBinding, codes.NotFound, "NO_BINDING"},
	{errs.ErrExists, codes.AlreadyExists, "EXISTS"},
	{errs.ErrNotRunning, codes.FailedPrecondition, "NOT_RUNNING"},
	{errs.ErrStillRunning, codes.FailedPrecondition, "STILL_RUNNING"},

	{errs.ErrLandlockNotBuilt, codes.FailedPrecondition, "LANDLOCK_NOT_BUILT"},
	{errs.ErrLandlockDisabled, codes.FailedPrecondition, "LANDLOCK_DISABLED"},
	{errs.ErrLandlockBlocked, codes.FailedPrecondition, "LANDLOCK_BLOCKED"},
	{errs.ErrUnsupported, codes.FailedPrecondition, "UNSUPPORTED_BY_KERNEL"},
	{errs.ErrFlatten, codes.FailedPrecondition, "FLATTEN_REFUSED"},
	{errs.ErrPathRefused, codes.FailedPrecondition, "PATH_REFUSED"},
	{errs.ErrPathMissing, codes.FailedPrecondition, "PATH_MISSING"},
	{errs.ErrSmackPartly, codes.DataLoss, "SMACK_PARTLY_APPLIED"},
	{errs.ErrSmackNotBuilt, codes.FailedPrecondition, "SMACK_NOT_BUILT"},
	{errs.ErrSmackDisabled, codes.FailedPrecondition, "SMACK_DISABLED"},
	{errs.ErrSmackNotMounted, codes.FailedPrecondition, "SMACK_NOT_MOUNTED"},
	{errs.ErrSmackOnlycap, codes.FailedPrecondition, "SMACK_ONLYCAP"},
	{errs.ErrSmackPrivilege, codes.FailedPrecondition, "SMACK_NO_PRIVILEGE"},
	{errs.ErrSmackForeign, codes.FailedPrecondition, "SMACK_FOREIGN"},
	{errs.ErrSmackRefused, codes.FailedPrecondition, "SMACK_REFUSED"},
	{errs.ErrSmackUnavailable, codes.FailedPrecondition, "SMACK_UNAVAILABLE"},
	{errs.ErrContainment, codes.FailedPrecondition, "CONTAINMENT_UNAVAILABLE"},

	{errs.ErrProgramNotFound, codes.NotFound, "PROGRAM_NOT_FOUND"},
	{errs.ErrProgramRefused, codes.FailedPrecondition, "PROGRAM_REFUSED"},

	{errs.ErrWrongType, codes.FailedPrecondition, "WRONG_TYPE"},
	{errs.ErrWrongFleet, codes.FailedPrecondition, "WRONG_FLEET"},
	{errs.ErrWrongChannel, codes.FailedPrecondition, "WRONG_CHANNEL"},
	{errs.ErrTooFewSignatures, codes.FailedPrecondition, "TOO_FEW_SIGNATURES"},
	{errs.ErrTampered, codes.DataLoss, "TAMPERED"},
	{errs.ErrOlderSequence, codes.FailedPrecondition, "OLDER_SEQUENCE"},
	{errs.ErrExpired, codes.FailedPrecondition, "EXPIRED"},
	{errs.ErrHalted, codes.FailedPrecondition, "HALTED"},
	{errs.ErrFromChannel, codes.FailedPrecondition, "FROM_CHANNEL"},

	{errs.ErrStoreLocked, codes.Unavailable, "STORE_LOCKED"},
	{errs.ErrStoreCorrupt, codes.DataLoss, "STORE_CORRUPT"},
	{errs.ErrStoreFull, codes.ResourceExhausted, "STORE_FULL"},
	{errs.ErrStoreReadOnly, codes.FailedPrecondition, "STORE_READ_ONLY"},
	{errs.ErrStoreNewer, codes.FailedPrecondition, "STORE_NEWER"},
	{errs.ErrStoreFailed, codes.Unavailable, "STORE_FAILED"},
	{errs.ErrRestart, codes.Unavailable, "RESTARTING"},
	{errs.ErrShutdown, codes.Unavailable, "SHUTTING_DOWN"},

	{errs.ErrTooLarge, codes.InvalidArgument, "TOO_LARGE"},
	{errs.ErrInvalid, codes.InvalidArgument, "INVALID"},
	{errs.ErrNotFound, codes.NotFound, "NOT_FOUND"},
	{errs.ErrStart, codes.FailedPrecondition, "START_FAILED"},

	{context.Canceled, codes.Canceled, "CANCELED"},
	{context.DeadlineExceeded, codes.DeadlineExceeded, "DEADLINE_EXCEEDED"},
}

// lookupCode finds the row of an error.
func lookupCode(err error) (codeRow, bool) {
	for _, row := range codeTable {
		if errors.Is(err, row.sentinel) {
			return row, true
		}
	}
	return codeRow{}, false
}

// toStatus makes the status a client gets. known is false for an error without a row: its text
// stays here, the client gets requestID to quote.
func toStatus(err error, requestID string) (st *status.Status, known bool) {
	// Statuses come from gRPC itself: a stream that broke, a message that was not understood.
	var has interface{ GRPCStatus() *status.Status }
	if errors.As(err, &has) {
		return has.GRPCStatus(), true
	}
	row, known := lookupCode(err)
	text := err.Error()
	switch {
	// Any step may be the one that meets it. What an error without a row says besides stays here.
	case !errors.Is(err, errs.ErrNoDescriptors) && (errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE)):
		row, _ = lookupCode(errs.ErrNoDescriptors)
		text = errs.ErrNoDescriptors.Error()
		if known {
			text += ": " + err.Error()
		}
		known = true
	case !known:
		row = codeRow{code: codes.Internal, reason: ReasonInternal}
		text = "internal error; policyd's log has it under request id " + requestID
	}
	details := []protoadapt.MessageV1{&errdetails.ErrorInfo{
		Reason: row.reason, Domain: Domain, Metadata: map[string]string{"request_id": requestID},
	}}
	if known {
		for _, d := range detailsOf(err) {
			details = append(details, protoadapt.MessageV1Of(d))
		}
	}
	st = status.New(row.code, clip(text, maxStatusText))
	if with, err := st.WithDetails(details...); err == nil {
		st = with
	}
	return st, known
}

// maxStatusText keeps statuses below the size of a header frame that clients take.
const maxStatusText = 3 << 10

func clip(s string, most int) string {
	if len(s) <= most {
		return s
	}
	for most > 0 && s[most]&0xc0 == 0x80 {
		most--
	}
	return s[:most] + "..."
}
