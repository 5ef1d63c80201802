package server

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/internal/config"
	"policyd.dev/policyd/internal/errs"
)

// Every RPC that the server answers has a row, and every row is an RPC.
func TestEveryRPCHasARole(t *testing.T) {
	e := start(t, nil)
	have := map[string]bool{}
	for service, info := range e.grpc.GetServiceInfo() {
		for _, m := range info.Methods {
			have["/"+service+"/"+m.Name] = true
		}
	}
	for method := range have {
		if _, ok := methods[method]; !ok {
			t.Errorf("%s has no role", method)
		}
	}
	for method := range methods {
		if !have[method] {
			t.Errorf("the table has %s, which the server does not", method)
		}
	}
	// Nothing of the contract goes without a role.
	for _, sd := range []*grpc.ServiceDesc{&apiv1.PolicyService_ServiceDesc, &apiv1.ProfileService_ServiceDesc, &apiv1.SandboxService_ServiceDesc, &apiv1.ContainerService_ServiceDesc, &apiv1.AdminService_ServiceDesc, &apiv1.SmackService_ServiceDesc} {
		for _, m := range sd.Methods {
			need := methods["/"+sd.ServiceName+"/"+m.MethodName]
			if need.least < config.RoleViewer {
				t.Errorf("%s/%s needs no role", sd.ServiceName, m.MethodName)
			}
			if need.doing == "" || strings.Contains(need.doing, m.MethodName) {
				t.Errorf("%s/%s is not in a person's words: %q", sd.ServiceName, m.MethodName, need.doing)
			}
		}
	}
	if err := e.allowed(&call{caller: &Caller{Identity: nil, grants: []config.Grant{{Role: config.RoleAdmin}}}, method: "/x.Y/Z"}); !errors.Is(err, errs.ErrNotAllowed) {
		t.Errorf("an RPC without a row: %v", err)
	}
}

// Every sentinel of internal/errs has exactly one row; reasons are unique.
func TestEverySentinelHasACode(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "../errs/errs.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string]codeRow{}
	reasons := map[string]bool{ReasonInternal: true}
	for _, row := range codeTable {
		if _, twice := rows[row.sentinel.Error()]; twice || reasons[row.reason] {
			t.Errorf("row %s is there twice", row.reason)
		}
		rows[row.sentinel.Error()] = row
		reasons[row.reason] = true
		if row.code == codes.OK || row.code == codes.Internal || row.code == codes.Unknown {
			t.Errorf("%s has the code %v", row.reason, row.code)
		}
		if row.reason != strings.ToUpper(row.reason) {
			t.Errorf("reason %q is not in upper case", row.reason)
		}
	}
	n := 0
	ast.Inspect(file, func(node ast.Node) bool {
		spec, ok := node.(*ast.ValueSpec)
		if !ok || !strings.HasPrefix(spec.Names[0].Name, "Err") {
			return true
		}
		n++
		text, err := strconv.Unquote(spec.Values[0].(*ast.CallExpr).Args[0].(*ast.BasicLit).Value)
		if err != nil {
			t.Fatal(err)
		}
		if _, ok := rows[text]; !ok {
			t.Errorf("errs.%s has no row", spec.Names[0].Name)
		}
		return true
	})
	if n < 20 {
		t.Errorf("found %d sentinels only", n)
	}
}

func TestToStatus(t *testing.T) {
	for _, row := range codeTable {
		err := fmt.Errorf("outer: %w", fmt.Errorf("%w: inner", row.sentinel))
		st, known := toStatus(err, "id-1")
		if !known || st.Message() != err.Error() {
			t.Errorf("%s: known %v, %q", row.reason, known, st.Message())
		}
		wantStatus(t, st.Err(), row.code, row.reason)
		if got := detail[*errdetails.ErrorInfo](st).GetMetadata()["request_id"]; got != "id-1" {
			t.Errorf("%s: request id %q", row.reason, got)
		}
	}
	// The exact reason wins over the broad one, whatever wraps what.
	st, _ := toStatus(fmt.Errorf("%w: %w", errs.ErrStart, errs.ErrProgramNotFound), "")
	wantStatus(t, st.Err(), codes.NotFound, "PROGRAM_NOT_FOUND")

	// A want of descriptors is told whatever wraps it, and nothing else of an error without a row.
	for _, errno := range []error{syscall.EMFILE, syscall.ENFILE} {
		for _, err := range []error{
			&os.PathError{Op: "open", Path: "/var/lib/secret", Err: errno}, fmt.Errorf("%w: fork: %w", errs.ErrStart, errno),
			fmt.Errorf("%w: %w", errs.ErrContainment, errno), fmt.Errorf("%w: %w", errs.ErrNoDescriptors, errno),
		} {
			st, known := toStatus(err, "")
			if !known || strings.Contains(st.Message(), "secret") {
				t.Errorf("%v: known %v, %q", err, known, st.Message())
			}
			wantStatus(t, st.Err(), codes.ResourceExhausted, "NO_DESCRIPTORS")
		}
	}

	st, known := toStatus(errors.New("open /var/lib/secret: password is hunter2"), "id-2")
	if known || strings.Contains(st.String(), "hunter2") || !strings.Contains(st.Message(), "id-2") {
		t.Errorf("an unknown error reaches the client as %v (known %v)", st, known)
	}
	wantStatus(t, st.Err(), codes.Internal, ReasonInternal)

	st, _ = toStatus(fmt.Errorf("%w: %s", errs.ErrInvalid, strings.Repeat("ä", 1<<20)), "")
	if len(st.Message()) > maxStatusText+3 {
		t.Errorf("status of %d bytes", len(st.Message()))
	}
	st, _ = toStatus(withResource(context.DeadlineExceeded, "sandbox", "x"), "")
	wantStatus(t, st.Err(), codes.DeadlineExceeded, "DEADLINE_EXCEEDED")
	if got := detail[*errdetails.ResourceInfo](st); got.GetResourceName() != "x" {
		t.Errorf("resource %v", got)
	}
}

func TestShortMethod(t *testing.T) {
	for in, want := range map[string]string{
		"/policyd.v1.PolicyService/Apply": "PolicyService/Apply", "/Plain/M": "Plain/M", "": "", "x": "x",
	} {
		if got := shortMethod(in); got != want {
			t.Errorf("shortMethod(%q) = %q, want %q", in, got, want)
		}
	}
}

// The reference of errors has every reason with its code.
func TestReasonsAreDocumented(t *testing.T) {
	doc, err := os.ReadFile("../../docs/errors.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := append([]codeRow{{nil, codes.Internal, ReasonInternal}}, codeTable...)
	for _, row := range rows {
		name := strings.ToUpper(strings.Trim(regexp.MustCompile("[A-Z]").ReplaceAllString(row.code.String(), "_$0"), "_"))
		if name == "CANCELED" {
			name = "CANCELLED"
		}
		if !strings.Contains(string(doc), "| `"+row.reason+"` | "+name+" |") {
			t.Errorf("docs/errors.md lacks %s with %s", row.reason, name)
		}
	}
	if n := strings.Count(string(doc), "\n| `"); n != len(rows) {
		t.Errorf("docs/errors.md has %d reasons, the table %d", n, len(rows))
	}
}
