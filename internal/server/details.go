package server

import (
	"errors"
	"fmt"
	"strconv"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/protobuf/proto"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/enforce/profile"
	"policyd.dev/policyd/internal/errs"
	"policyd.dev/policyd/internal/policy"
)

// detailed is an error with messages for programs.
type detailed struct {
	error
	details []proto.Message
}

func (d *detailed) Unwrap() error { return d.error }

func withDetails(err error, details ...proto.Message) error {
	return &detailed{error: err, details: details}
}

// maxViolations bounds the violations of one status: statuses travel in headers, which clients bound.
const maxViolations = 25

// detailsOf collects the details along an error's chain.
func detailsOf(err error) []proto.Message {
	var out []proto.Message
	var found *policy.Errors
	if errors.As(err, &found) {
		out = append(out, badRequest(found.Findings()))
	}
	var d *detailed
	for errors.As(err, &d) {
		out = append(out, d.details...)
		err = d.error
	}
	return out
}

// placeOf is "file:line:column: ", with what is known of it.
func placeOf(f *apiv1.Finding) string {
	at := f.GetFile()
	for _, n := range []uint32{f.GetLine(), f.GetColumn()} {
		if n == 0 {
			break
		}
		if at != "" {
			at += ":"
		}
		at += strconv.FormatUint(uint64(n), 10)
	}
	if at == "" {
		return ""
	}
	return at + ": "
}

// badRequest tells findings by field path; the description begins with file:line:column.
func badRequest(findings []*apiv1.Finding) *errdetails.BadRequest {
	b := &errdetails.BadRequest{}
	for i, f := range findings {
		if i == maxViolations {
			b.FieldViolations = append(b.FieldViolations, &errdetails.BadRequest_FieldViolation{
				Description: fmt.Sprintf("and %d more", len(findings)-i),
			})
			break
		}
		text := placeOf(f) + f.GetMessage()
		b.FieldViolations = append(b.FieldViolations, &errdetails.BadRequest_FieldViolation{
			Field: clip(f.GetField(), 200), Description: clip(text, 200), Reason: f.GetCode(),
		})
	}
	return b
}

// invalidField is the error of a bad field of a request.
func invalidField(field, format string, args ...any) error {
	text := fmt.Sprintf(format, args...)
	return withDetails(fmt.Errorf("%w: %s: %s", errs.ErrInvalid, field, text),
		&errdetails.BadRequest{FieldViolations: []*errdetails.BadRequest_FieldViolation{{Field: field, Description: text}}})
}

// withResource adds what an error is about.
func withResource(err error, kind, name string) error {
	if err == nil {
		return nil
	}
	return withDetails(err, &errdetails.ResourceInfo{ResourceType: kind, ResourceName: name})
}

// limitReached is the error of a limit of a user.
func limitReached(subject, limit, format string, args ...any) error {
	text := fmt.Sprintf(format, args...)
	return withDetails(fmt.Errorf("%w: %s: %s", errs.ErrLimit, limit, text),
		&errdetails.QuotaFailure{Violations: []*errdetails.QuotaFailure_Violation{{
			Subject: subject, Description: limit + ": " + text, QuotaMetric: limit,
		}}})
}

// withMissing adds every right a kernel lacks.
func withMissing(err error, needs []profile.Need) error {
	p := &errdetails.PreconditionFailure{}
	for i, n := range needs {
		if i == maxViolations {
			p.Violations = append(p.Violations, &errdetails.PreconditionFailure_Violation{
				Type: "LANDLOCK_RIGHT", Description: fmt.Sprintf("and %d more", len(needs)-i),
			})
			break
		}
		p.Violations = append(p.Violations, &errdetails.PreconditionFailure_Violation{
			Type: "LANDLOCK_RIGHT", Subject: n.LayerName + "/" + n.Kind.String() + "/" + n.Name, Description: n.String(),
		})
	}
	return withDetails(err, p)
}
