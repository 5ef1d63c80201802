package spawn

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"policyd.dev/policyd/enforce/profile"
	"policyd.dev/policyd/internal/testkernel"
)

// What of linux/audit.h the tests of the kernel's log need.
const (
	auditGroupReadLog   = 1
	auditUser           = 1005
	auditLandlockAccess = 1423
)

// auditLog reads the kernel's audit records.
type auditLog struct {
	fd    int
	marks int
}

// openAuditLog skips the test where the kernel does not audit from boot on.
func openAuditLog(t *testing.T) *auditLog {
	t.Helper()
	cmdline, err := os.ReadFile("/proc/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(strings.Fields(string(cmdline)), "audit=1") {
		t.Skip("of guests only: this kernel was booted without audit=1")
	}
	testkernel.RequireRoot(t)
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_AUDIT)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	if err := unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_ADD_MEMBERSHIP, auditGroupReadLog); err != nil {
		t.Fatal(err)
	}
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 30}); err != nil {
		t.Fatal(err)
	}
	return &auditLog{fd: fd}
}

var auditField = regexp.MustCompile(`\b(blockers|path|dest|opid)=("[^"]*"|\S+)`)

// denials gives what was logged as denied since the last call: "fs.read_file /path". Records are in one queue, so
// all before a record of our own have come when that one comes.
func (a *auditLog) denials(t *testing.T) []string {
	t.Helper()
	a.marks++
	mark := fmt.Sprintf("policyd-test-%d-%d", time.Now().UnixNano(), a.marks)
	msg := binary.NativeEndian.AppendUint32(nil, uint32(unix.NLMSG_HDRLEN+len(mark)+1))
	msg = binary.NativeEndian.AppendUint16(msg, auditUser)
	msg = binary.NativeEndian.AppendUint16(msg, unix.NLM_F_REQUEST)
	msg = append(msg, make([]byte, 8)...)
	msg = append(append(msg, mark...), 0)
	if err := unix.Sendto(a.fd, msg, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		t.Fatal(err)
	}
	var out []string
	buf := make([]byte, 64<<10)
	for {
		n, _, err := unix.Recvfrom(a.fd, buf, 0)
		if err != nil || n < unix.NLMSG_HDRLEN {
			t.Fatalf("audit record of %d bytes: %v", n, err)
		}
		text := buf[unix.NLMSG_HDRLEN:n]
		switch typ := binary.NativeEndian.Uint16(buf[4:]); {
		case typ == unix.NLMSG_ERROR:
			t.Fatalf("audit answers with an error: %x", text)
		case typ == auditUser && bytes.Contains(text, []byte(mark)):
			return out
		case typ == auditLandlockAccess:
			var line []string
			for _, f := range auditField.FindAllSubmatch(text, -1) {
				line = append(line, strings.Trim(string(f[2]), `"`))
			}
			out = append(out, strings.Join(line, " "))
		}
	}
}

// auditProfile grants programs what they need to run, and makes of each layer's denied paths what no rule grants.
func auditProfile(t *testing.T, layers []profile.Layer, change func(b *profile.Builder), denied ...string) *profile.Profile {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	b := profile.NewBuilder(layers)
	for l := range layers {
		for _, path := range append([]string{"/usr", "/lib", "/lib64", "/etc", "/proc", "/sys", exe}, denied...) {
			access := readExec
			if path == exe {
				access &= profile.FileRights(profile.MaxABI)
			}
			if l < len(denied) && path == denied[l] {
				continue
			}
			b.AddPath(l, path, access&layers[l].FS, false, profile.Skip)
		}
	}
	if change != nil {
		change(b)
	}
	p, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestQuietInAuditLog: of denials those are missing in the kernel's log that profile.Decision calls quiet: all of what
// the denying layer denies is in its quiet mask, and a quiet rule of it covers the object.
func TestQuietInAuditLog(t *testing.T) {
	testkernel.Each(t, testkernel.Landlock, func(t *testing.T) {
		log := openAuditLog(t)
		sup := support(t)
		if sup.ABI < 10 {
			testkernel.Skip(t, "Landlock ABI 10", "make kernels")
		}
		s := newTestSpawner(t, 2)
		quiet, loud := place(t), place(t)
		readWrite := profile.FSReadFile | profile.FSWriteFile
		questions := []struct {
			op     string
			decide func(p *profile.Profile) profile.Decision
			record string
			quiet  bool // under the masks and rules of the second round
		}{
			{"read " + quiet + "/file", onPath(quiet+"/file", profile.FSReadFile), "fs.read_file " + quiet + "/file", true},
			{"list " + quiet + "/dir", onPath(quiet+"/dir", profile.FSReadDir), "fs.read_dir " + quiet + "/dir", true},
			{"write " + quiet + "/file", onPath(quiet+"/file", profile.FSWriteFile), "fs.write_file " + quiet + "/file", false},
			{"update " + quiet + "/file", onPath(quiet+"/file", readWrite), "fs.write_file,fs.read_file " + quiet + "/file", false},
			{"read " + loud + "/file", onPath(loud+"/file", profile.FSReadFile), "fs.read_file " + loud + "/file", false},
			{"conntcp 7001", onPort(7001, profile.NetConnectTCP), "net.connect_tcp 7001", true},
			{"conntcp 7002", onPort(7002, profile.NetConnectTCP), "net.connect_tcp 7002", false},
			{fmt.Sprintf("signal %d", os.Getpid()), onSignal, fmt.Sprintf("scope.signal %d", os.Getpid()), true},
		}
		for _, on := range []bool{false, true} {
			layer := layerFor("quiet", sup.ABI)
			layer.Scope, layer.Log = profile.ScopeSignal, profile.LogNewExecOn
			rules := func(*profile.Builder) {}
			if on {
				layer.QuietFS, layer.QuietNet, layer.QuietScope = readAll, layer.Net, layer.Scope
				rules = func(b *profile.Builder) {
					b.AddPath(0, quiet, 0, true, profile.Fail)
					b.AddPorts(0, 7001, 7001, 0, true)
				}
			}
			p := auditProfile(t, []profile.Layer{layer}, rules)
			rs := build(t, p, sup)
			log.denials(t)
			for _, q := range questions {
				if got := try(t, s, rs, q.op); got[0] != "EACCES" && got[0] != "EPERM" {
					t.Errorf("%s: %s, want a denial", q.op, got[0])
				}
				records := log.denials(t)
				d := q.decide(p)
				if d.Allowed || d.Quiet != (on && q.quiet) {
					t.Errorf("%s: decided %+v, want a denial that is quiet: %v", q.op, d, on && q.quiet)
				}
				if slices.Contains(records, q.record) == d.Quiet {
					t.Errorf("quiet rules %v: %s is logged as %q, decided quiet: %v", on, q.op, records, d.Quiet)
				}
			}
		}
	}, testkernel.Audit())
}

func onPath(path string, access profile.Access) func(*profile.Profile) profile.Decision {
	return func(p *profile.Profile) profile.Decision { return p.DecidePath(path, access) }
}

func onPort(port uint16, access profile.Access) func(*profile.Profile) profile.Decision {
	return func(p *profile.Profile) profile.Decision { return p.DecidePort(port, access) }
}

func onSignal(p *profile.Profile) profile.Decision { return p.DecideScope(profile.ScopeSignal, 0) }

// TestLogFlagsInAuditLog: what comes before the program (its own execution that is refused) is logged but for
// same_exec_off, the program's denials only with new_exec_on, those of domains inside, the next layers' among them,
// but for subdomains_off.
func TestLogFlagsInAuditLog(t *testing.T) {
	testkernel.Each(t, testkernel.Landlock, func(t *testing.T) {
		log := openAuditLog(t)
		sup := support(t)
		if sup.ABI < 7 {
			testkernel.Skip(t, "Landlock ABI 7", "make kernels")
		}
		s := newTestSpawner(t, 2)
		first, second, open := place(t), place(t), place(t)
		const same, program, inside = profile.LogSameExecOff, profile.LogNewExecOn, profile.LogSubdomainsOff
		for _, c := range []struct {
			one, two profile.LogFlags
			// Denied by the first layer: the program's execution, a file of it; by the second layer; by a domain of the program.
			exec, first, second, nested bool
		}{
			{0, 0, true, false, false, true},
			{same, 0, false, false, false, true},
			{program, 0, true, true, false, true},
			{program, program, true, true, true, true},
			{same | program, same | program, false, true, true, true},
			{inside, 0, true, false, false, false},
			{program | inside, program, true, true, false, false},
			{program, program | inside, true, true, true, false},
		} {
			name := fmt.Sprintf("%v then %v", c.one.Names(), c.two.Names())
			layers := []profile.Layer{layerFor("one", sup.ABI), layerFor("two", sup.ABI)}
			layers[0].Log, layers[1].Log = c.one, c.two
			p := auditProfile(t, layers, func(b *profile.Builder) {
				b.AddPath(0, open, readExec, false, profile.Fail)
				b.AddPath(1, open, readExec, false, profile.Fail)
			}, first, second)
			rs := build(t, p, sup)
			log.denials(t)
			refused := filepath.Join(first, "true")
			if child, err := s.Start(&Command{Path: refused, Argv: []string{"true"}}, rs); err == nil {
				t.Errorf("%s: %s was executed: %+v", name, refused, wait(t, child))
			}
			got := try(t, s, rs, "read "+first+"/file", "read "+second+"/file", "nested "+open+"/file")
			if !slices.Equal(got, []string{"EACCES", "EACCES", "EACCES"}) {
				t.Errorf("%s: %v", name, got)
			}
			records := log.denials(t)
			for record, want := range map[string]bool{
				"fs.execute,fs.read_file " + refused: c.exec,
				"fs.read_file " + first + "/file":    c.first,
				"fs.read_file " + second + "/file":   c.second,
				"fs.read_file " + open + "/file":     c.nested,
			} {
				if slices.Contains(records, record) != want {
					t.Errorf("%s: logged %q; %s logged: want %v", name, records, record, want)
				}
			}
		}
	}, testkernel.Audit())
}
