package policytest

import (
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"policyd.dev/policyd/enforce/profile"
	"policyd.dev/policyd/internal/cli/decide"
)

func TestJudge(t *testing.T) {
	const ok = syscall.Errno(0)
	for _, c := range []struct {
		kind           profile.OpKind
		without, under syscall.Errno
		want           string // "allow", "deny ERRNO", or "unclear"
	}{
		{profile.OpOpen, ok, ok, "allow"},
		{profile.OpOpen, ok, unix.EACCES, "deny EACCES"},
		{profile.OpOpen, unix.ENOENT, unix.ENOENT, "unclear"},         // Landlock was not asked
		{profile.OpOpen, unix.EACCES, unix.EACCES, "unclear"},         // file permissions
		{profile.OpOpen, unix.ENXIO, unix.ENXIO, "allow"},             // a socket: the error comes later
		{profile.OpOpen, unix.ENXIO, unix.EACCES, "deny EACCES"},      //
		{profile.OpOpen, ok, unix.EPERM, "unclear"},                   // no error of Landlock's
		{profile.OpOpen, unix.EACCES, ok, "unclear"},                  // the tree was not the same
		{profile.OpExec, unix.ENOEXEC, unix.ENOEXEC, "allow"},         // no program, but executed
		{profile.OpRename, unix.EISDIR, unix.EACCES, "deny EACCES"},   // Landlock's check precedes
		{profile.OpRename, ok, unix.EXDEV, "deny EXDEV"},              //
		{profile.OpRename, unix.EXDEV, unix.EXDEV, "unclear"},         // between mounts
		{profile.OpLink, unix.EXDEV, unix.EACCES, "deny EACCES"},      //
		{profile.OpRmdir, unix.ENOTEMPTY, unix.ENOTEMPTY, "allow"},    //
		{profile.OpRename, unix.ENOTEMPTY, unix.ENOTEMPTY, "unclear"}, // may come before Landlock
		{profile.OpMknod, unix.EPERM, unix.EPERM, "allow"},            // a device, not as root
		{profile.OpMknod, unix.EPERM, unix.EACCES, "deny EACCES"},     //
		{profile.OpMount, unix.ENODEV, unix.EPERM, "deny EPERM"},      //
		{profile.OpMount, unix.EPERM, unix.EPERM, "unclear"},          // not as root
		{profile.OpConnectTCP, unix.ECONNREFUSED, unix.EINPROGRESS, "allow"},
		{profile.OpConnectTCP, unix.ENETUNREACH, unix.EACCES, "deny EACCES"},
		{profile.OpBindTCP, unix.EACCES, unix.EACCES, "unclear"}, // a port below 1024
		{profile.OpBindTCP, unix.EADDRINUSE, ok, "allow"},
		{profile.OpSignal, ok, unix.EPERM, "deny EPERM"},
		{profile.OpStat, ok, ok, "allow"},
	} {
		says := judge(c.kind, c.without, c.under)
		got := says.String()
		if says.unclear != "" {
			got = "unclear"
		}
		if got != c.want {
			t.Errorf("%v: %s, under the policy %s: %s, want %s", c.kind, errnoName(c.without), errnoName(c.under), got, c.want)
		}
	}
}

// TestEnforced: a pass needs the kernel, the decision and the expectation to agree.
func TestEnforced(t *testing.T) {
	const ok = syscall.Errno(0)
	allow, deny := &decide.Answer{Verdict: decide.Allow}, &decide.Answer{Verdict: decide.Deny, Errno: "EACCES"}
	xdev := &decide.Answer{Verdict: decide.Deny, Errno: "EXDEV"}
	for _, c := range []struct {
		name    string
		want    Want
		decided *decide.Answer // for the test's ABI
		here    *decide.Answer // for this kernel
		outcome outcome
		status  Status
		says    string
	}{
		{"all agree", Want{Verdict: "deny"}, deny, deny, outcome{ok, unix.EACCES, "", ""}, Passed, ""},
		{"all agree on allow", Want{Verdict: "allow"}, allow, allow, outcome{}, Passed, ""},
		{"the kernel allows what was decided denied", Want{Verdict: "deny"}, deny, deny, outcome{}, Failed, "the kernel answers allow, decided was deny EACCES"},
		{"the kernel denies what was decided allowed", Want{Verdict: "allow"}, allow, allow, outcome{ok, unix.EACCES, "", ""}, Failed, "the kernel answers deny EACCES"},
		{"another errno", Want{Verdict: "deny"}, xdev, xdev, outcome{ok, unix.EACCES, "", ""}, Failed, "the kernel answers deny EACCES"},
		{"unclear is no pass", Want{Verdict: "deny"}, deny, deny, outcome{unix.EACCES, unix.EACCES, "", ""}, Skipped, "without the policy too"},
		{"unclear, and let through", Want{Verdict: "deny"}, deny, deny, outcome{unix.EACCES, ok, "", ""}, Failed, "lets it through"},
		{"newer than this kernel", Want{Verdict: "deny"}, deny, allow, outcome{}, Skipped, "of a newer one"},
		{"newer, but the kernel is wrong besides", Want{Verdict: "deny"}, deny, allow, outcome{ok, unix.EACCES, "", ""}, Failed, "decided was allow"},
		{"not performed", Want{Verdict: "deny"}, deny, deny, outcome{ok, ok, "why", ""}, Skipped, "why"},
	} {
		x := Expectation{Want: c.want, Answer: c.decided, Status: Passed}
		x.enforced(profile.OpRename, c.here, c.outcome, 7)
		if x.Status != c.status || !strings.Contains(x.Text, c.says) {
			t.Errorf("%s: %s %q, want %s %q", c.name, x.Status, x.Text, c.status, c.says)
		}
		// What has failed stays failed, whatever the kernel does.
		failed := Expectation{Want: c.want, Answer: c.decided}
		failed.fail("before")
		if failed.enforced(profile.OpRename, c.here, c.outcome, 7); failed.Status != Failed {
			t.Errorf("%s: after a failure it is %s", c.name, failed.Status)
		}
	}
}
