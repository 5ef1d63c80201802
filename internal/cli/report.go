package cli

import (
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/status"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/internal/policy"
)

// Report prints an error of a command with everything policyd said about it:
// places in the text, rights this kernel lacks, limits, and the way out.
func Report(w io.Writer, p Painter, err error) {
	if exit, ok := errors.AsType[*Exit](err); ok && exit.Err == nil {
		return
	}
	if found, ok := errors.AsType[*policy.Errors](err); ok {
		Findings(w, p, found.Findings())
		return
	}
	message := Text(err)
	st, isStatus := statusOf(err)
	if isStatus && message == st.Message() && tellsFindings(st) {
		findingsText(w, p, message)
		return
	}
	var details []string
	if isStatus {
		for _, d := range st.Details() {
			for _, line := range detail(d) {
				if !said(message, line) && !slices.Contains(details, line) {
					details = append(details, line)
				}
			}
		}
	}
	printLines(w, p.Paint("policyctl: ", Red), message)
	for _, line := range details {
		printLines(w, "  ", line)
	}
}

// Text is the text of an error for people. That of a status error begins "rpc error: code = ...", which is left out.
func Text(err error) string {
	st, isStatus := statusOf(err)
	if _, own := errors.AsType[*Unreachable](err); !isStatus || own {
		return err.Error()
	}
	return strings.ReplaceAll(err.Error(), st.Err().Error(), st.Message())
}

// tellsFindings tells that the text of a status is findings on documents: it begins with the first violation, which
// has a finding's code.
func tellsFindings(st *status.Status) bool {
	for _, d := range st.Details() {
		bad, ok := d.(*errdetails.BadRequest)
		if !ok || len(bad.GetFieldViolations()) == 0 {
			continue
		}
		first := bad.GetFieldViolations()[0]
		if first.GetReason() == "" {
			return false
		}
		for _, severity := range []string{"error: ", "warning: "} {
			plain := strings.Replace(st.Message(), severity, "", 1)
			if strings.HasPrefix(plain, strings.TrimSuffix(first.GetDescription(), "...")) {
				return true
			}
		}
	}
	return false
}

// excerptLine is a line of an excerpt of a text, or the one with its caret.
var excerptLine = regexp.MustCompile(`^ *[0-9]* \| `)

// findingsText prints findings that come as text as Findings does.
func findingsText(w io.Writer, p Painter, text string) {
	for _, line := range strings.Split(text, "\n") {
		if excerptLine.MatchString(line) {
			fmt.Fprintln(w, Clean(strings.ReplaceAll(line, "\t", " ")))
			continue
		}
		style := Red
		if strings.Contains(line, ": warning: ") {
			style = Yellow
		}
		fmt.Fprintln(w, p.Paint(Clean(line), style))
	}
}

// said tells that a message says all parts of a detail already.
func said(message, detail string) bool {
	for _, part := range strings.Split(strings.TrimPrefix(detail, "about: "), ": ") {
		if !strings.Contains(message, part) {
			return false
		}
	}
	return true
}

// printLines writes text with a prefix on its first line and as much space on
// the others; the spaces that place a caret under a column stay.
func printLines(w io.Writer, prefix, text string) {
	for i, line := range strings.Split(strings.TrimRight(text, "\n"), "\n") {
		if i > 0 {
			prefix = "  "
		}
		fmt.Fprintf(w, "%s%s\n", prefix, Clean(strings.ReplaceAll(line, "\t", " ")))
	}
}

func detail(d any) []string {
	var lines []string
	switch d := d.(type) {
	case *errdetails.BadRequest:
		for _, v := range d.GetFieldViolations() {
			lines = append(lines, labelled(v.GetField(), v.GetDescription()))
		}
	case *errdetails.PreconditionFailure:
		for _, v := range d.GetViolations() {
			lines = append(lines, labelled(v.GetSubject(), v.GetDescription()))
		}
	case *errdetails.QuotaFailure:
		for _, v := range d.GetViolations() {
			lines = append(lines, labelled("limit of "+v.GetSubject(), v.GetDescription()))
		}
	case *errdetails.ResourceInfo:
		name := strings.Trim(d.GetResourceType()+"/"+d.GetResourceName(), "/")
		lines = append(lines, labelled("about: "+name, d.GetDescription()))
	case *errdetails.Help:
		for _, l := range d.GetLinks() {
			lines = append(lines, labelled(l.GetDescription(), l.GetUrl()))
		}
	case *errdetails.RetryInfo:
		lines = append(lines, "try again in "+d.GetRetryDelay().AsDuration().String())
	case *apiv1.Finding:
		lines = append(lines, policy.FormatFinding(d))
	}
	return lines
}

// labelled is "label: text", without saying the label twice.
func labelled(label, text string) string {
	switch {
	case label == "" || strings.Contains(text, label):
		return text
	case text == "":
		return label
	}
	return label + ": " + text
}

// Findings prints remarks on documents, errors first in red, and returns how
// many were errors.
func Findings(w io.Writer, p Painter, findings []*apiv1.Finding) (errorCount int) {
	for _, f := range findings {
		style := Yellow
		if f.GetSeverity() == apiv1.Finding_SEVERITY_ERROR {
			style = Red
			errorCount++
		}
		first, rest, more := strings.Cut(policy.FormatFinding(f), "\n")
		fmt.Fprintln(w, p.Paint(Clean(first), style))
		if more {
			for _, line := range strings.Split(rest, "\n") {
				fmt.Fprintln(w, Clean(strings.ReplaceAll(line, "\t", " ")))
			}
		}
	}
	return errorCount
}
