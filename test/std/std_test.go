package std

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"policyd.dev/policyd/enforce/profile"
	"policyd.dev/policyd/internal/testkernel"
)

func TestBase(t *testing.T) {
	testkernel.Each(t, testkernel.Landlock, func(t *testing.T) {
		cat := program(t, "apt-get install coreutils", "/usr/bin/cat", "/bin/cat")
		with := "include: [std/base]\npaths:\n  - {allow: [read_file, execute], at: [" + cat + "]}"
		without := "paths:\n  - {allow: [read_file, execute], at: [" + cat + "]}"

		out, code := run(t, with, "", cat, "/proc/version")
		want(t, out, code, "Linux version")
		out, code = run(t, with, "", cat, "/etc/fstab")
		refused(t, out, code)
		out, code = run(t, without, "", cat, "/proc/version")
		if code == 0 {
			t.Errorf("cat ran without its loader: %q", out)
		}
		// Libraries may be read and must not be executed.
		out, code = run(t, with, "", "/usr/bin/true")
		if code == 0 {
			t.Errorf("true was executed, nobody granted it: %q", out)
		}
		date := program(t, "apt-get install coreutils", "/usr/bin/date", "/bin/date")
		out, code = run(t, "include: [std/base]\npaths:\n  - {allow: [read_file, execute], at: ["+date+"]}", "", date, "-d", "TZ=\"America/New_York\" 2026-01-01 00:00")
		want(t, out, code, "2026")
	})
}

func TestShell(t *testing.T) {
	testkernel.Each(t, testkernel.Landlock, func(t *testing.T) {
		dir := t.TempDir()
		layer := "include: [std/shell]\npaths:\n  - {allow: [read, modify], at: [" + dir + "]}"
		script := `set -e
			seq 1 20 | sort -rn | head -n 3 | tr '\n' ' ' > list
			mkdir sub && mv list sub/list && cp sub/list copy
			test "$(cat copy)" = "$(cat sub/list)"
			echo "user $(id -u), $(wc -c < copy) bytes, $(grep -c root: /etc/passwd) root"
			find . -type f | sed 's/^/found /'
			tar cf - sub | tar tf - > /dev/null
			awk 'BEGIN { print "awk", 6 * 7 }'`
		for _, shell := range []string{"/bin/sh", "/bin/bash"} {
			shell = program(t, "apt-get install bash dash", shell)
			work := filepath.Join(dir, filepath.Base(shell))
			if err := os.Mkdir(work, 0o755); err != nil {
				t.Fatal(err)
			}
			out, code := run(t, layer, work, shell, "-c", script)
			want(t, out, code, "awk 42")
			want(t, out, code, "found ./sub/list")
		}
		out, code := run(t, layer, dir, "/bin/sh", "-c", "cat /etc/fstab")
		refused(t, out, code)
		out, code = run(t, layer, dir, "/bin/sh", "-c", "/usr/bin/perl -e 1 || /usr/bin/dpkg --version")
		refused(t, out, code)
		out, code = run(t, layer, dir, "/bin/sh", "-c", "echo x > /var/tmp/policyd-test-std")
		refused(t, out, code)
	})
}

func TestExec(t *testing.T) {
	testkernel.Each(t, testkernel.Landlock, func(t *testing.T) {
		perl := program(t, "apt-get install perl", "/usr/bin/perl", "/bin/perl")
		out, code := run(t, "include: [std/exec]", "", perl, "-MData::Dumper", "-e", `print "perl ", 6 * 7, "\n"; exec "/bin/sh", "-c", "echo and sh"`)
		want(t, out, code, "and sh")
		out, code = run(t, "include: [std/exec]", "", perl, "-e", `open(my $f, "<", "/etc/fstab") or die $!`)
		refused(t, out, code)
	})
}

func TestPython(t *testing.T) {
	testkernel.Each(t, testkernel.Landlock, func(t *testing.T) {
		python := program(t, "apt-get install python3", "/usr/bin/python3", "/usr/local/bin/python3")
		dir := t.TempDir()
		script := filepath.Join(dir, "script.py")
		text := "#!/usr/bin/env python3\nimport json, hashlib, sqlite3, ctypes, datetime, email, decimal, sys\n" +
			"print(json.dumps({'sum': hashlib.sha256(b'x').hexdigest()[:4], 'db': sqlite3.connect(':memory:').execute('select 6*7').fetchone()[0]}))\n" +
			"open('/etc/fstab').read() if len(sys.argv) > 1 else None\n"
		if err := os.WriteFile(script, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
		layer := "include: [std/python]\npaths:\n  - {allow: [read, execute], at: [" + dir + "]}"
		out, code := run(t, layer, dir, python, script)
		want(t, out, code, `"db": 42`)
		out, code = run(t, layer, dir, script) // by its #! line
		want(t, out, code, `"db": 42`)
		out, code = run(t, layer, dir, python, script, "fstab")
		refused(t, out, code)
		out, code = run(t, layer, dir, python, "-c", "import subprocess; subprocess.run(['/bin/sh', '-c', 'true'])")
		refused(t, out, code)
	})
}

func TestDNS(t *testing.T) {
	testkernel.Each(t, testkernel.Landlock, func(t *testing.T) {
		getent := program(t, "apt-get install libc-bin", "/usr/bin/getent")
		grant := "paths:\n  - {allow: [read_file, execute], at: [" + getent + "]}"
		out, code := run(t, "include: [std/base, std/dns]\n"+grant, "", getent, "hosts", "localhost")
		want(t, out, code, "localhost")
		out, code = run(t, "include: [std/base, std/dns]\n"+grant, "", getent, "services", "443/tcp")
		want(t, out, code, "https")
		out, code = run(t, "include: [std/base]\n"+grant, "", getent, "services", "443/tcp")
		if code == 0 {
			t.Errorf("/etc/services was read, nobody granted it: %q", out)
		}
	})
}

func TestTLS(t *testing.T) {
	testkernel.Each(t, testkernel.Landlock, func(t *testing.T) {
		openssl := program(t, "apt-get install openssl ca-certificates", "/usr/bin/openssl")
		bundle := "/etc/ssl/certs/ca-certificates.crt"
		if _, err := os.Stat(bundle); err != nil {
			testkernel.Skip(t, bundle, "apt-get install ca-certificates")
		}
		grant := "paths:\n  - {allow: [read_file, execute], at: [" + openssl + "]}"
		verify := []string{openssl, "verify", "-CAfile", bundle, firstCertificate(t)}
		out, code := run(t, "include: [std/base, std/tls]\n"+grant, "", verify...)
		want(t, out, code, ": OK")
		out, code = run(t, "include: [std/base]\n"+grant, "", verify...)
		if code == 0 {
			t.Errorf("certificates were read, nobody granted them: %q", out)
		}
		key := privateKey(t)
		check := []string{openssl, "pkey", "-in", key, "-noout", "-check"}
		out, code = run(t, "include: [std/base, std/tls]\n"+grant+"\n  - {allow: [read_file], at: ["+key+"]}", "", check...)
		want(t, out, code, "Key is valid")
		out, code = run(t, "include: [std/base, std/tls]\n"+grant, "", check...)
		refused(t, out, code)
	})
}

// privateKey makes a key where private keys are kept, if the machine is only the test's (a guest), or else in a
// folder of the test.
func privateKey(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	cmdline, err := os.ReadFile("/proc/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	const private = "/etc/ssl/private"
	if _, err := os.Stat(private); err == nil && strings.Contains(string(cmdline), "rootfstype=hostfs") {
		if err := unix.Mount("tmpfs", private, "tmpfs", 0, ""); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := unix.Unmount(private, 0); err != nil {
				t.Error(err)
			}
		})
		dir = private
	}
	secret, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(secret)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "test.key")
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestNoPrivateKeys: std/tls grants nothing in the folders of private keys, whatever this machine has in them.
func TestNoPrivateKeys(t *testing.T) {
	p := compile(t, "include: [std/base, std/tls]", profile.MaxABI)
	for _, path := range []string{"/etc/ssl/private/a.key", "/etc/pki/tls/private/a.key", "/etc/letsencrypt/live/a/privkey.pem"} {
		if d := p.DecidePath(path, profile.FSReadFile); d.Allowed {
			t.Errorf("%s may be read", path)
		}
	}
}

// firstCertificate is one of the authorities' own, through its link in /etc/ssl/certs.
func firstCertificate(t *testing.T) string {
	found, err := filepath.Glob("/etc/ssl/certs/*.pem")
	if err != nil || len(found) == 0 {
		testkernel.Skip(t, "certificates in /etc/ssl/certs", "apt-get install ca-certificates")
	}
	return found[0]
}

func TestTmp(t *testing.T) {
	testkernel.Each(t, testkernel.Landlock, func(t *testing.T) {
		script := `set -e; d=$(mktemp -d /tmp/policyd-std.XXXXXX); echo x > $d/a; mkdir $d/s; mv $d/a $d/s/b; ln -s b $d/s/c; mkfifo $d/p; cat $d/s/c; rm -r $d; echo gone`
		out, code := run(t, "include: [std/shell, std/tmp]", "", "/bin/sh", "-c", script)
		want(t, out, code, "gone")
		out, code = run(t, "include: [std/shell]", "", "/bin/sh", "-c", script)
		refused(t, out, code)
	})
}

func TestTTY(t *testing.T) {
	testkernel.Each(t, testkernel.Landlock, func(t *testing.T) {
		python := program(t, "apt-get install python3", "/usr/bin/python3", "/usr/local/bin/python3")
		script := "import os, pty, fcntl, termios, struct, curses\n" +
			"m, s = pty.openpty()\nfcntl.ioctl(s, termios.TIOCSWINSZ, struct.pack('HHHH', 24, 80, 0, 0))\n" +
			"curses.setupterm('xterm', s)\nprint('terminal', os.ttyname(s), curses.tigetnum('colors'))\n"
		out, code := run(t, "include: [std/python, std/tty]", "", python, "-c", script)
		want(t, out, code, "terminal /dev/pts/")
		out, code = run(t, "include: [std/python]", "", python, "-c", script)
		if code == 0 {
			t.Errorf("a terminal was opened, nobody granted it: %q", out)
		}
	})
}

func TestUsers(t *testing.T) {
	testkernel.Each(t, testkernel.Landlock, func(t *testing.T) {
		id := program(t, "apt-get install coreutils", "/usr/bin/id", "/bin/id")
		grant := "paths:\n  - {allow: [read_file, execute], at: [" + id + "]}"
		out, code := run(t, "include: [std/base, std/users]\n"+grant, "", id, "root")
		want(t, out, code, "uid=0(root)")
		out, code = run(t, "include: [std/base]\n"+grant, "", id, "root")
		if code == 0 {
			t.Errorf("names of users were read, nobody granted them: %q", out)
		}
	})
}

// TestDatagram sends a question as a resolver does: only ABI 10 restricts that.
func TestDatagram(t *testing.T) {
	testkernel.Each(t, testkernel.Landlock, func(t *testing.T) {
		python := program(t, "apt-get install python3", "/usr/bin/python3", "/usr/local/bin/python3")
		if err := loopbackUp(); err != nil {
			t.Logf("loopback: %v", err)
		}
		ask := "import socket\ns = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\ns.sendto(b'?', ('127.0.0.1', %PORT%))\nprint('sent')"
		out, code := run(t, "include: [std/python, std/dns]", "", python, "-c", strings.ReplaceAll(ask, "%PORT%", "53"))
		want(t, out, code, "sent")
	})
}

// loopbackUp brings lo up in a guest that has just booted.
func loopbackUp() error {
	i, err := net.InterfaceByName("lo")
	if err != nil || i.Flags&net.FlagUp != 0 {
		return err
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	req, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	req.SetUint16(unix.IFF_UP)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, req)
}
