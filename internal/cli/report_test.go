package cli

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"testing"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
)

func statusWith(t *testing.T, code codes.Code, text string, details ...protoadapt.MessageV1) error {
	t.Helper()
	st, err := status.New(code, text).WithDetails(details...)
	if err != nil {
		t.Fatal(err)
	}
	return st.Err()
}

func TestReport(t *testing.T) {
	for _, c := range []struct {
		name string
		err  error
		want string
	}{
		{"plain", fmt.Errorf("open x: %w", fs.ErrNotExist), "policyctl: open x: file does not exist\n"},
		{"answer without words", &Exit{Code: 1}, ""},
		{"wrapped status", fmt.Errorf("web@3: %w", status.Error(codes.NotFound, "no such policy")), "policyctl: web@3: no such policy\n"},
		{
			"fields",
			statusWith(t, codes.InvalidArgument, "invalid", &errdetails.BadRequest{FieldViolations: []*errdetails.BadRequest_FieldViolation{
				{Field: "spec.abi", Description: "web.yaml:5:8: 99 is not one of 1 to 11"}, {Description: "and 3 more"},
			}}),
			"policyctl: invalid\n  spec.abi: web.yaml:5:8: 99 is not one of 1 to 11\n  and 3 more\n",
		},
		{
			"findings",
			statusWith(t, codes.InvalidArgument, "a.yaml:5:8: error: 99 is wrong [bad-abi] at spec.abi\n    5 | abi: 99\n      |      ^\nb.yaml:1: error: twice [x]\nand 3 more", &errdetails.BadRequest{FieldViolations: []*errdetails.BadRequest_FieldViolation{
				{Field: "spec.abi", Description: "a.yaml:5:8: 99 is wrong", Reason: "bad-abi"}, {Description: "b.yaml:1: twice", Reason: "x"}, {Description: "another", Reason: "y"},
			}}),
			"a.yaml:5:8: error: 99 is wrong [bad-abi] at spec.abi\n    5 | abi: 99\n      |      ^\nb.yaml:1: error: twice [x]\nand 3 more\n",
		},
		{
			"findings of something",
			statusWith(t, codes.InvalidArgument, "policy a@1: a.yaml:5: error: wrong [x]", &errdetails.BadRequest{FieldViolations: []*errdetails.BadRequest_FieldViolation{
				{Description: "a.yaml:5: wrong", Reason: "x"},
			}}),
			"policyctl: policy a@1: a.yaml:5: error: wrong [x]\n",
		},
		{
			"fields that the text says already",
			statusWith(t, codes.InvalidArgument, "web.yaml:5:8: error: 99 is not one of 1 to 11 [abi] at spec.abi\n    5 | abi: 99\n      |      ^", &errdetails.BadRequest{FieldViolations: []*errdetails.BadRequest_FieldViolation{
				{Field: "spec.abi", Description: "web.yaml:5:8: 99 is not one of 1 to 11"},
			}}),
			"policyctl: web.yaml:5:8: error: 99 is not one of 1 to 11 [abi] at spec.abi\n      5 | abi: 99\n        |      ^\n",
		},
		{
			"rights this kernel lacks",
			statusWith(t, codes.FailedPrecondition, "this kernel cannot enforce the policy", &errdetails.PreconditionFailure{Violations: []*errdetails.PreconditionFailure_Violation{
				{Type: "LANDLOCK_RIGHT", Subject: "host/fs/resolve_unix", Description: "needs ABI 9"},
				{Type: "LANDLOCK_RIGHT", Subject: "host/net/bind_udp", Description: "needs ABI 10"},
			}}),
			"policyctl: this kernel cannot enforce the policy\n  host/fs/resolve_unix: needs ABI 9\n  host/net/bind_udp: needs ABI 10\n",
		},
		{
			"quota and resource",
			statusWith(t, codes.ResourceExhausted, "limit reached", &errdetails.QuotaFailure{Violations: []*errdetails.QuotaFailure_Violation{{Subject: "uid:1000", Description: "sandboxes: 100 of 100"}}},
				&errdetails.ResourceInfo{ResourceType: "LandlockPolicy", ResourceName: "web"}),
			"policyctl: limit reached\n  limit of uid:1000: sandboxes: 100 of 100\n  about: LandlockPolicy/web\n",
		},
		{"terminal escapes", fmt.Errorf("no policy %s", "\x1b[2Jx"), "policyctl: no policy \\x1b[2Jx\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var b bytes.Buffer
			Report(&b, false, c.err)
			if b.String() != c.want {
				t.Errorf("got\n%s\nwant\n%s", b.String(), c.want)
			}
		})
	}
}

func TestUnreachableNamesSocketAndWayOut(t *testing.T) {
	for _, c := range []struct {
		err  error
		exit int
		want string
	}{
		{&os.PathError{Op: "dial", Err: fs.ErrNotExist}, ExitUnreachable, "start it with `policyd`"},
		{&os.PathError{Op: "dial", Err: fs.ErrPermission}, ExitNotAllowed, "members of its group"},
	} {
		err := error(&Unreachable{Socket: "/run/x.sock", Err: c.err})
		if !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "/run/x.sock") {
			t.Errorf("%v", err)
		}
		if got := ExitCode(err); got != c.exit {
			t.Errorf("%v: exit %d, want %d", c.err, got, c.exit)
		}
	}
}

func TestMessagesAreStable(t *testing.T) {
	m := &apiv1.VersionInfo{Kind: "LandlockPolicy", Name: "web", Number: 3, Labels: map[string]string{"b": "2", "a": "1"}}
	const want = `{
  "kind": "LandlockPolicy",
  "name": "web",
  "number": "3",
  "digest": "",
  "author": "",
  "message": "",
  "parent": "0",
  "tags": [],
  "labels": {
    "a": "1",
    "b": "2"
  },
  "description": "",
  "deleted": false,
  "pins": [],
  "origin": ""
}
`
	var b bytes.Buffer
	if err := WriteMessage(&b, JSON, m); err != nil {
		t.Fatal(err)
	}
	if b.String() != want {
		t.Errorf("got\n%s", b.String())
	}
	b.Reset()
	if err := WriteMessage(&b, YAML, m); err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(b.String(), "kind: LandlockPolicy\nname: web\nnumber: \"3\"\n") {
		t.Errorf("got\n%s", b.String())
	}
}

func TestClean(t *testing.T) {
	tests := map[string]string{
		"/srv/www": "/srv/www", "größe": "größe", "a\x1b[31mb": `a\x1b[31mb`, "two\nlines": `two\nlines`,
		"\u202egnp.exe": `\u202egnp.exe`, "zero\u200bwidth": `zero\u200bwidth`, "\u2066a": `\u2066a`, "\u0085": `\u0085`, "a\u2028b": `a\u2028b`,
	}
	for in, want := range tests {
		if got := Clean(in); got != want {
			t.Errorf("Clean(%q) = %s, want %s", in, got, want)
		}
	}
}

func TestRowsAreCleanAndAligned(t *testing.T) {
	var b bytes.Buffer
	r := NewRows(&b, "A", "LONGER")
	r.Add("x\ty\x1b[1m", "")
	r.Add("ünï", "z")
	if err := r.Flush(); err != nil {
		t.Fatal(err)
	}
	if want := "A            LONGER\nx\\ty\\x1b[1m  -\nünï          z\n"; b.String() != want {
		t.Errorf("got\n%q want\n%q", b.String(), want)
	}
}

func TestFormats(t *testing.T) {
	if f, err := ParseFormat("", YAML, JSON); f != YAML || err != nil {
		t.Error(f, err)
	}
	if f, err := ParseFormat("json", YAML, JSON); f != JSON || err != nil {
		t.Error(f, err)
	}
	if _, err := ParseFormat("xml", YAML, JSON); ExitCode(err) != ExitUsage {
		t.Error(err)
	}
}

func TestColor(t *testing.T) {
	t.Setenv("NO_COLOR", "")
	for _, c := range []struct {
		mode string
		want Painter
	}{{"always", true}, {"never", false}, {"auto", false}} {
		if p, err := NewPainter(c.mode, new(bytes.Buffer)); p != c.want || err != nil {
			t.Errorf("%s: %v %v", c.mode, p, err)
		}
	}
	if _, err := NewPainter("blue", nil); ExitCode(err) != ExitUsage {
		t.Error(err)
	}
	if got := Painter(true).Paint("x", Red); got != "\x1b[31mx\x1b[0m" {
		t.Errorf("%q", got)
	}
}

func TestParseSignal(t *testing.T) {
	for in, want := range map[string]int{"9": 9, "KILL": 9, "SIGHUP": 1, "usr1": 10, "sigterm": 15, "64": 64} {
		if got, err := ParseSignal(in); int(got) != want || err != nil {
			t.Errorf("%s: %v %v", in, got, err)
		}
	}
	for _, in := range []string{"", "0", "65", "-1", "FOO", "SIG"} {
		if _, err := ParseSignal(in); ExitCode(err) != ExitUsage {
			t.Errorf("%q: %v", in, err)
		}
	}
}
