package server

import (
	"errors"
	"fmt"
	"strings"

	"google.golang.org/protobuf/proto"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/internal/errs"
	"policyd.dev/policyd/internal/policy"
)

// problems collects findings that are errors, over files and documents.
type problems struct {
	found []*apiv1.Finding
	large bool
}

// add takes the findings of an error; another kind of error comes back.
func (p *problems) add(err error) error { return p.addAt("", err) }

// addAt is add for a document given as a message: fields are below prefix.
func (p *problems) addAt(prefix string, err error) error {
	var e *policy.Errors
	if err == nil {
		return nil
	}
	if !errors.As(err, &e) {
		return err
	}
	p.large = p.large || errors.Is(err, errs.ErrTooLarge)
	for _, f := range e.Findings() {
		if prefix != "" {
			f = proto.CloneOf(f)
			f.Field = prefix + "." + f.GetField()
		}
		p.found = append(p.found, f)
	}
	return nil
}

func (p *problems) finding(d *policy.Document, code, field, message string) {
	p.found = append(p.found, &apiv1.Finding{
		Severity: apiv1.Finding_SEVERITY_ERROR, Code: code, Message: message, File: d.File, Line: uint32(d.FirstLine), Field: field,
	})
}

func (p *problems) err() error {
	if len(p.found) == 0 {
		return nil
	}
	return &findingsError{found: p.found, large: p.large}
}

// findingsError is the error of a request whose documents have findings.
type findingsError struct {
	found []*apiv1.Finding
	large bool
}

// maxFindingsText bounds the text of findings, bytes, so that a status cuts none of them in two.
const maxFindingsText = maxStatusText - 64

// Error gives the findings as people read them, each on lines of its own, and counts those that a status has no room for.
func (e *findingsError) Error() string {
	var b strings.Builder
	for i, f := range e.found {
		text := policy.FormatFinding(f)
		if i > 0 {
			if b.Len()+1+len(text) > maxFindingsText {
				fmt.Fprintf(&b, "\nand %d more", len(e.found)-i)
				break
			}
			b.WriteByte('\n')
		}
		b.WriteString(text)
	}
	return b.String()
}

func (e *findingsError) Unwrap() []error {
	out := []error{withDetails(errs.ErrInvalid, badRequest(e.found))}
	if e.large {
		out = append(out, errs.ErrTooLarge)
	}
	return out
}
