package peer

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"log/slog"
	"math"
	"math/big"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"policyd.dev/policyd/internal/testkernel"
)

// TestMain lets the test binary be a client of another user.
func TestMain(m *testing.M) {
	if socket := os.Getenv("PEER_TEST_CONNECT"); socket != "" {
		err := prepareClient()
		var c net.Conn
		if err == nil {
			c, err = net.Dial("unix", socket)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		if os.Getenv("PEER_TEST_LEAVE") != "" {
			os.Exit(0)
		}
		c.Read(make([]byte, 1)) // until the server closes
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func listen(t *testing.T) (*net.UnixListener, string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "peer") //nolint:usetesting // other users must be able to enter it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "s")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	if err := os.Chmod(path, 0o666); err != nil {
		t.Fatal(err)
	}
	return l, path
}

func noLimit() *Connections { return NewConnections(math.MaxInt, slog.Default()) }

func handshake(t *testing.T, raw net.Conn) (net.Conn, *Identity) {
	t.Helper()
	creds, err := Credentials(nil, noLimit())
	if err != nil {
		t.Fatal(err)
	}
	c, info, err := creds.ServerHandshake(raw)
	if err != nil {
		t.Fatal(err)
	}
	return c, info.(AuthInfo).Identity
}

func TestOwnIdentity(t *testing.T) {
	l, path := listen(t)
	client, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	raw, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	c, id := handshake(t, raw)
	if id.UID != uint32(os.Getuid()) || id.GID != uint32(os.Getgid()) || id.PID != int32(os.Getpid()) {
		t.Errorf("identity %+v, want that of this process", id)
	}
	if want := fmt.Sprintf("uid:%d", os.Getuid()); id.String() != want {
		t.Errorf("String() = %q, want %q", id, want)
	}
	own, _ := os.Getgroups()
	for _, g := range append(own, os.Getgid()) {
		if !id.InGroup(uint32(g)) {
			t.Errorf("not in group %d", g)
		}
	}
	if id.InGroup(0xfffffff0) {
		t.Error("in a group nobody is in")
	}
	if id.pidfd != nil && id.Program() == "" {
		t.Error("program of a living peer is not told")
	}
	c.Close()
	if id.Program() != "" {
		t.Error("program is told after the connection was closed")
	}
}

func TestOtherUser(t *testing.T) {
	testkernel.RequireRoot(t)
	groups := make([]uint32, 0, 200)
	for g := uint32(70000); g < 70200; g++ {
		groups = append(groups, g)
	}
	for _, groups := range [][]uint32{nil, {7, 5}, groups} {
		l, path := listen(t)
		exe := executable(t)
		cmd := exec.Command(exe)
		cmd.Env = append(os.Environ(), "PEER_TEST_CONNECT="+path)
		cmd.Dir = "/"
		cmd.Stderr = os.Stderr
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65533, Groups: groups}}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		raw, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		c, id := handshake(t, raw)
		slices.Sort(groups)
		if id.UID != 65534 || id.GID != 65533 || !slices.Equal(id.Groups, groups) || id.PID != int32(cmd.Process.Pid) {
			t.Errorf("identity %+v, want uid 65534 gid 65533 groups %v pid %d", id, groups, cmd.Process.Pid)
		}
		c.Close()
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	}
}

// executable copies the test binary to where any user may execute it.
func executable(t *testing.T) string {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(exe)
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "peer") //nolint:usetesting // other users must be able to enter it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "client")
	if err := os.WriteFile(path, b, 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestTCPWithoutTLSIsRefused(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	client, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	raw, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	creds, err := Credentials(nil, noLimit())
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := creds.ServerHandshake(raw); err == nil {
		t.Error("a TCP connection without TLS got an identity")
	}
	if _, err := Credentials(&tls.Config{ClientAuth: tls.RequestClientCert}, noLimit()); err == nil {
		t.Error("a configuration that does not verify clients was taken")
	}
}

func TestCertificateIdentity(t *testing.T) {
	ca, caKey := issue(t, nil, nil, &x509.Certificate{Subject: pkix.Name{CommonName: "ca"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign})
	pool := x509.NewCertPool()
	pool.AddCert(ca)
	server, serverKey := issue(t, ca, caKey, &x509.Certificate{DNSNames: []string{"policyd"}})
	uri, _ := url.Parse("spiffe://example.org/ci")
	stranger, strangerKey := issue(t, nil, nil, &x509.Certificate{DNSNames: []string{"ci"}, IsCA: true, BasicConstraintsValid: true})

	for _, tc := range []struct {
		name, want string
		tmpl       *x509.Certificate
	}{
		{"uri", "cert:spiffe://example.org/ci", &x509.Certificate{URIs: []*url.URL{uri}, DNSNames: []string{"ci"}}},
		{"dns", "cert:ci.example.org", &x509.Certificate{DNSNames: []string{"ci.example.org"}, Subject: pkix.Name{CommonName: "root"}}},
		{"common name", "cert:build", &x509.Certificate{Subject: pkix.Name{CommonName: "build"}}},
		{"no name", "", &x509.Certificate{}},
		{"other authority", "", nil},
		{"no certificate", "", nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			creds, err := Credentials(&tls.Config{
				Certificates: []tls.Certificate{{Certificate: [][]byte{server.Raw}, PrivateKey: serverKey}},
				ClientCAs:    pool, ClientAuth: tls.RequireAndVerifyClientCert, MinVersion: tls.VersionTLS13,
			}, noLimit())
			if err != nil {
				t.Fatal(err)
			}
			cc := &tls.Config{RootCAs: pool, ServerName: "policyd", NextProtos: []string{"h2"}}
			switch {
			case tc.tmpl != nil:
				cert, key := issue(t, ca, caKey, tc.tmpl)
				cc.Certificates = []tls.Certificate{{Certificate: [][]byte{cert.Raw}, PrivateKey: key}}
			case tc.name == "other authority":
				cc.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
					return &tls.Certificate{Certificate: [][]byte{stranger.Raw}, PrivateKey: strangerKey}, nil
				}
			}
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			done := make(chan struct{})
			go func() {
				defer close(done)
				c, err := tls.Dial("tcp", l.Addr().String(), cc)
				if err == nil {
					c.Read(make([]byte, 1))
					c.Close()
				}
			}()
			raw, err := l.Accept()
			if err != nil {
				t.Fatal(err)
			}
			c, info, err := creds.ServerHandshake(raw)
			if (err == nil) != (tc.want != "") {
				t.Fatalf("handshake: %v, want identity %q", err, tc.want)
			}
			if err == nil {
				if got := info.(AuthInfo).Identity.String(); got != tc.want {
					t.Errorf("identity %q, want %q", got, tc.want)
				}
				c.Close()
			}
			raw.Close()
			<-done
		})
	}
}

func issue(t *testing.T, ca *x509.Certificate, caKey *ecdsa.PrivateKey, tmpl *x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl.SerialNumber = big.NewInt(time.Now().UnixNano())
	tmpl.NotBefore, tmpl.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	if ca == nil {
		ca, caKey = tmpl, key
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, ca, &key.PublicKey, caKey)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return cert, key
}
