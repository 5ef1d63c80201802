package ask

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"syscall"
	"time"
)

// Question is what is asked: the profile of a policy, or that of the policy a workload gets by Bindings.
type Question struct {
	// Ref is NAME, NAME@VERSION or NAME@TAG, "" with a Workload.
	Ref        string
	Parameters map[string]string
	Workload   *Workload
}

// Workload is what is known of a container.
type Workload struct {
	Image, Namespace    string
	Container           string // its name in the pod
	Annotations, Labels map[string]string
}

// Answer is a profile and what it is of. Whether its digest is that of its bytes is not looked at here.
type Answer struct {
	Profile []byte
	Digest  string
	// Version is NAME@NUMBER.
	Version string
	// Missing names the rights that the kernel will not enforce, where the policy says degrade.
	Missing []string
	// Binding is the one that gave the workload its policy, "" where none did.
	Binding string
	// SmackLabel is that of the policy's process, "" for none.
	SmackLabel string
	// Process names what else the policy gives its processes: "umask", "limits", "environment".
	Process []string
	// SmackError is why nothing may be started with that label now.
	SmackError string
}

// Codes of gRPC that are told apart here (google.golang.org/grpc/codes).
const (
	codeDeadlineExceeded = 4
	codePermissionDenied = 7
	codeInternal         = 13
	codeUnavailable      = 14
)

// Error is an answer that is none: policyd's own refusal, or why there is no word of it.
type Error struct {
	// Code is gRPC's.
	Code    int
	Message string
}

// Error gives policyd's words without gRPC's.
func (e *Error) Error() string { return e.Message }

// NoAnswer tells that policyd did not say anything of the question: it is not there, not ready, or too slow.
func NoAnswer(err error) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && (e.Code == codeUnavailable || e.Code == codeDeadlineExceeded)
}

// errStopping is the answer of a policyd that takes no more questions.
var errStopping = &Error{codeUnavailable, "policyd is stopping"}

// broken is what a server cannot have meant.
func broken(format string, a ...any) error {
	return &Error{codeInternal, "policyd's answer is not understood: " + fmt.Sprintf(format, a...)}
}

// Profile asks the policyd that listens at the path of a unix socket. Errors are of type *Error.
func Profile(socket string, q *Question, patience time.Duration) (*Answer, error) {
	until := time.Now().Add(patience)
	for wait := 20 * time.Millisecond; ; wait *= 2 {
		body, lost, err := once(socket, q, until)
		if err == nil {
			return decode(body)
		}
		// A policyd that ends lets go of whom it has not answered; the service manager's socket leads to the one that
		// comes. The question changes nothing, so it can be asked again.
		if !lost || wait > time.Second || time.Until(until) < wait {
			return nil, err
		}
		time.Sleep(wait)
	}
}

// once asks on one connection. lost: it was made, and ended before there was an answer.
func once(socket string, q *Question, until time.Time) (body []byte, lost bool, err error) {
	s, err := dial(socket, until)
	if err != nil {
		return nil, false, unreachable(socket, err)
	}
	defer s.close()
	body, err = roundTrip(s, method, q.encode())
	if err != nil {
		lost := errors.Is(err, errStopping) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
		return nil, lost, s.explain(socket, err)
	}
	return body, false, nil
}

const method = "/policyd.v1.ProfileService/GetProfile"

// unreachable says what to do when no connection could be made.
func unreachable(socket string, err error) error {
	code, cause, hint := codeUnavailable, err.Error(), "nothing answers there; start it with `policyd`, or as a service"
	switch {
	case errors.Is(err, fs.ErrNotExist):
		// Not in the words of the C library: podman takes these for a program that is not in the container.
		cause = "no socket is there"
		hint = "is policyd running? start it with `policyd`, or as a service, or name another socket"
	case errors.Is(err, fs.ErrPermission):
		code, hint = codePermissionDenied, "this user may not open the socket; it is for the members of its group (see `ls -l "+socket+"`)"
	case errors.Is(err, errTimeout):
		code = codeDeadlineExceeded
	}
	return &Error{code, fmt.Sprintf("policyd is not reachable at %s: %s: %s", socket, cause, hint)}
}
