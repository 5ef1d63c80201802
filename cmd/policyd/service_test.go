package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/internal/config"
)

func TestWatchdogInterval(t *testing.T) {
	pid := strconv.Itoa(os.Getpid())
	for _, tc := range []struct {
		usec, pid string
		want      time.Duration
	}{
		{"", "", 0},
		{"3000000", "", 3 * time.Second},
		{"3000000", pid, 3 * time.Second},
		{"3000000", "1", 0},
		{"-1", pid, 0},
		{"0", pid, 0},
		{"soon", pid, 0},
		{"9223372036854775807", pid, 0},
	} {
		t.Setenv("WATCHDOG_USEC", tc.usec)
		t.Setenv("WATCHDOG_PID", tc.pid)
		if got := watchdogInterval(); got != tc.want {
			t.Errorf("%s for %s: %v, want %v", tc.usec, tc.pid, got, tc.want)
		}
		if os.Getenv("WATCHDOG_USEC")+os.Getenv("WATCHDOG_PID") != "" {
			t.Error("children would be told")
		}
	}
}

type probe func(context.Context) error

func (p probe) Probe(ctx context.Context) error { return p(ctx) }

// TestWorks: the answer is of the store and of the socket, whatever policyd says of its health.
func TestWorks(t *testing.T) {
	well := probe(func(context.Context) error { return nil })
	listener := func(name string) *net.UnixListener {
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(folder(t), name), Net: "unix"})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
		return l
	}
	good, silent, closed, removed := listener("good"), listener("silent"), listener("closed"), listener("removed")
	closed.SetUnlinkOnClose(false)
	closed.Close()
	if err := os.Remove(removed.Addr().String()); err != nil {
		t.Fatal(err)
	}
	network, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer network.Close()
	h := health.NewServer()
	h.SetServingStatus("", healthv1.HealthCheckResponse_NOT_SERVING)
	srv := grpc.NewServer()
	healthv1.RegisterHealthServer(srv, h)
	go func() { _ = srv.Serve(good) }()
	defer srv.Stop()

	stuck := probe(func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
	for name, tc := range map[string]struct {
		store     prober
		listeners []net.Listener
		want      string
	}{
		"well":              {well, []net.Listener{good, network}, ""},
		"stuck store":       {stuck, []net.Listener{good}, "store: context deadline exceeded"},
		"nobody accepts":    {well, []net.Listener{good, silent}, "DeadlineExceeded"},
		"socket is closed":  {well, []net.Listener{closed}, "Unavailable"},
		"file is removed":   {well, []net.Listener{removed}, "its file is gone: systemctl restart policyd.socket policyd.service"},
		"store is shutting": {probe(func(context.Context) error { return errors.New("shut") }), nil, "store: shut"},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		err := works(ctx, tc.store, tc.listeners)
		cancel()
		if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q", name, err, tc.want)
		}
	}
}

// TestServiceManager: the words that a policyd has with its service manager.
func TestServiceManager(t *testing.T) {
	dir := folder(t)
	file := filepath.Join(dir, "policyd.yaml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("")
	p := command(t, dir, "--config", file)
	p.cmd.Env = append(p.cmd.Env, "WATCHDOG_USEC=200000")
	p.run()
	p.told("WATCHDOG=1")
	p.told("WATCHDOG=1")

	var before unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &before); err != nil {
		t.Fatal(err)
	}
	write("smack: {poolSize: 7}\nlauncher: /nowhere\n")
	p.signal(syscall.SIGHUP)
	message := p.next("RELOADING=1")
	m := regexp.MustCompile(`(?m)^MONOTONIC_USEC=(\d+)$`).FindStringSubmatch(message)
	if m == nil {
		t.Fatalf("a reload without its time: %q", message)
	}
	var after unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &after); err != nil {
		t.Fatal(err)
	}
	if at, err := strconv.ParseInt(m[1], 10, 64); err != nil || at < before.Nano()/1000 || at > after.Nano()/1000 {
		t.Errorf("time of the reload: %s, want one between %d and %d", m[1], before.Nano()/1000, after.Nano()/1000)
	}
	if message = p.next("READY=1"); !strings.Contains(message, "waits for a restart: launcher, smack.poolSize") {
		t.Errorf("after a reload: %q", message)
	}
	st, err := apiv1.NewAdminServiceClient(p.dial()).Status(ctx(t), &apiv1.StatusRequest{})
	if c := st.GetConfiguration(); err != nil || c.GetFile() != file || c.GetError() != "" || !slices.Equal(c.GetRestart(), []string{"launcher", "smack.poolSize"}) {
		t.Errorf("%v, %v", c, err)
	}
	write("bogus: 1\n")
	p.signal(syscall.SIGHUP)
	p.next("RELOADING=1")
	if message = p.next("READY=1"); !strings.Contains(message, "CONFIGURATION NOT READ AGAIN: "+file+":1:1") {
		t.Errorf("after a reload of a broken file: %q", message)
	}
	st, err = apiv1.NewAdminServiceClient(p.dial()).Status(ctx(t), &apiv1.StatusRequest{})
	if c := st.GetConfiguration(); err != nil || !strings.Contains(c.GetError(), ":1:1") || len(c.GetRestart()) != 2 {
		t.Errorf("%v, %v", c, err)
	}
	p.signal(syscall.SIGTERM)
	p.told("STOPPING=1")
}

// next waits for a message with a word and gives all of it.
func (p *process) next(word string) string {
	p.t.Helper()
	b := make([]byte, 4096)
	for {
		if err := p.notify.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
			p.t.Fatal(err)
		}
		n, err := p.notify.Read(b)
		if err != nil {
			p.t.Fatalf("policyd did not say %s: %v\n%s", word, err, p.out)
		}
		if strings.Contains(string(b[:n]), word) {
			return string(b[:n])
		}
	}
}

func TestNeedRestart(t *testing.T) {
	old := config.Default(1000)
	now := config.Default(1000)
	now.Grants, now.Limits.Connections, now.StopDeadline, now.Unmatched = []config.Grant{{Role: config.RoleUser, Everyone: true}}, 1, time.Minute, "web"
	now.TCP = &config.TCP{Listen: ":1"}
	now.Log.Format = "text"
	if got := needRestart(old, now); !slices.Equal(got, []string{"log.format", "tcp.listen"}) {
		t.Errorf("%q", got)
	}
	old.TCP = &config.TCP{Listen: ":1", Key: "/other"}
	if got := needRestart(old, now); !slices.Equal(got, []string{"log.format"}) {
		t.Errorf("with other files: %q", got)
	}
}

// TestCertificates: a reload takes new ones, and keeps the old ones when they cannot be used.
func TestCertificates(t *testing.T) {
	dir := folder(t)
	t.Setenv(config.CredentialsEnv, dir)
	ca, caKey := issue(t, nil, nil, &x509.Certificate{Subject: pkix.Name{CommonName: "ca"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign})
	writePEM(t, filepath.Join(dir, "ca.pem"), "CERTIFICATE", ca.Raw)
	section := &config.TCP{Listen: ":0", Certificate: "credential:srv.pem", Key: "credential:srv.key", ClientCA: filepath.Join(dir, "ca.pem")}
	renew := func() *big.Int {
		cert, key := issue(t, ca, caKey, &x509.Certificate{DNSNames: []string{"localhost"}})
		der, err := x509.MarshalECPrivateKey(key)
		if err != nil {
			t.Fatal(err)
		}
		writePEM(t, filepath.Join(dir, "srv.pem"), "CERTIFICATE", cert.Raw)
		writePEM(t, filepath.Join(dir, "srv.key"), "EC PRIVATE KEY", der)
		return cert.SerialNumber
	}
	c := &certificates{}
	if c.config() != nil {
		t.Error("a listener without certificates")
	}
	first := renew()
	if err := c.load(section); err != nil {
		t.Fatal(err)
	}
	serving := c.config()
	l, err := tls.Listen("tcp", "127.0.0.1:0", serving)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				_ = conn.(*tls.Conn).Handshake() // the client looks at what it got
				conn.Close()
			}()
		}
	}()
	pool := x509.NewCertPool()
	pool.AddCert(ca)
	client, clientKey := issue(t, ca, caKey, &x509.Certificate{DNSNames: []string{"me"}})
	shows := func(want *big.Int) {
		t.Helper()
		conn, err := tls.Dial("tcp", l.Addr().String(), &tls.Config{RootCAs: pool, ServerName: "localhost", Certificates: []tls.Certificate{{Certificate: [][]byte{client.Raw}, PrivateKey: clientKey}}})
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if got := conn.ConnectionState().PeerCertificates[0].SerialNumber; got.Cmp(want) != 0 {
			t.Errorf("certificate %v, want %v", got, want)
		}
	}
	shows(first)
	second := renew()
	if err := c.load(section); err != nil {
		t.Fatal(err)
	}
	shows(second)
	for name, spoil := range map[string]func(){
		"tcp.certificate: x509":      func() { writePEM(t, filepath.Join(dir, "srv.pem"), "CERTIFICATE", []byte("garbage")) },
		"tcp.clientCA: open":         func() { renew(); os.Remove(filepath.Join(dir, "ca.pem")) },
		"holds no certificate":       func() { writePEM(t, filepath.Join(dir, "ca.pem"), "OTHER", nil) },
		"LoadCredential=srv.pem:/PA": func() { os.Remove(filepath.Join(dir, "srv.pem")) },
	} {
		writePEM(t, filepath.Join(dir, "ca.pem"), "CERTIFICATE", ca.Raw)
		renew()
		spoil()
		if err := c.load(section); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
		shows(second)
	}
}
