package cli

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"policyd.dev/policyd/internal/errs"
)

func withReason(t *testing.T, code codes.Code, reason string) error {
	t.Helper()
	st, err := status.New(code, "text").WithDetails(&errdetails.ErrorInfo{Reason: reason})
	if err != nil {
		t.Fatal(err)
	}
	return st.Err()
}

func TestExitCode(t *testing.T) {
	for _, c := range []struct {
		name       string
		err        error
		exit, runs int // of a common command, and of one that starts programs
	}{
		{"none", nil, 0, 0},
		{"any", errors.New("x"), 1, 125},
		{"usage", Usage(errors.New("x")), 2, 125},
		{"status of a program", &Exit{Code: 3}, 3, 3},
		{"wrapped status of a program", fmt.Errorf("w: %w", &Exit{Code: 77}), 77, 77},
		{"unavailable", status.Error(codes.Unavailable, "x"), 3, 125},
		{"not allowed", status.Error(codes.PermissionDenied, "x"), 4, 125},
		{"unauthenticated", status.Error(codes.Unauthenticated, "x"), 4, 125},
		{"invalid", status.Error(codes.InvalidArgument, "x"), 1, 125},
		{"deadline", status.Error(codes.DeadlineExceeded, "x"), 124, 124},
		{"own deadline", fmt.Errorf("w: %w", context.DeadlineExceeded), 124, 124},
		{"canceled", status.Error(codes.Canceled, "x"), 130, 130},
		{"not found", status.Error(codes.NotFound, "x"), 1, 125},
		{"no program", withReason(t, codes.NotFound, "PROGRAM_NOT_FOUND"), 127, 127},
		{"no exec", withReason(t, codes.FailedPrecondition, "PROGRAM_REFUSED"), 126, 126},
		{"other reason", withReason(t, codes.FailedPrecondition, "UNSUPPORTED_BY_KERNEL"), 1, 125},
		{"own no program", fmt.Errorf("w: %w", errs.ErrProgramNotFound), 127, 127},
		{"own no exec", fmt.Errorf("w: %w", errs.ErrProgramRefused), 126, 126},
		{"wrapped status", fmt.Errorf("w: %w", status.Error(codes.Unavailable, "x")), 3, 125},
		{"socket missing", &Unreachable{"/s", errs.ErrNotFound}, 3, 125},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := ExitCode(c.err); got != c.exit {
				t.Errorf("ExitCode = %d, want %d", got, c.exit)
			}
			if got := StartExitCode(c.err); got != c.runs {
				t.Errorf("StartExitCode = %d, want %d", got, c.runs)
			}
		})
	}
}

// Every code of gRPC has an exit code, and every exit code is documented.
func TestExitCodesWhole(t *testing.T) {
	documented := map[int]bool{}
	for _, d := range ExitDocs() {
		documented[d.Code] = true
	}
	for code := codes.OK; code <= codes.Unauthenticated; code++ {
		exit, ok := codeExits[code]
		if !ok {
			t.Errorf("%v has no exit code", code)
		}
		if !documented[exit] {
			t.Errorf("%v: exit code %d is not documented", code, exit)
		}
	}
	for reason, exit := range reasonExits {
		if !documented[exit] {
			t.Errorf("%s: exit code %d is not documented", reason, exit)
		}
	}
}
