package fleettest

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
)

// etcd is one server, a process of its own, which can be killed and started again where it was.
type etcd struct {
	t      testing.TB
	dir    string
	client string // host:port
	peer   string
	tls    *tlsFiles // nil: without TLS
	name   string    // of the member, "" where it is the only one
	all    string    // name=url of every member
	// metrics is host:port where it tells its counters. Such a server is one to measure: what it acknowledges is on the disk.
	metrics string
	cmd     *exec.Cmd
	in      io.Closer
}

// memberEnv and clusterEnv make a server one of several, metricsEnv one to measure.
const (
	memberEnv  = "POLICYD_FLEET_TEST_MEMBER"
	clusterEnv = "POLICYD_FLEET_TEST_CLUSTER"
	metricsEnv = "POLICYD_FLEET_TEST_METRICS"
)

// startCluster starts servers that are one etcd.
func startCluster(t *testing.T, size int) []*etcd {
	t.Helper()
	var list []*etcd
	var all []string
	for i := range size {
		e := newEtcd(t)
		e.name = fmt.Sprint("m", i)
		all = append(all, e.name+"=http://"+e.peer)
		list = append(list, e)
	}
	var started sync.WaitGroup
	for _, e := range list { // none is ready before most are there
		e.all = strings.Join(all, ",")
		started.Go(e.start)
	}
	started.Wait()
	return list
}

// tlsFiles are those of the server; clients must have a certificate of ca.
type tlsFiles struct{ cert, key, ca string }

// freeAddress is a port of the loopback interface that nobody listens on now.
func freeAddress(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func newEtcd(t testing.TB) *etcd {
	t.Helper()
	e := &etcd{t: t, dir: filepath.Join(t.TempDir(), "etcd"), client: freeAddress(t), peer: freeAddress(t)}
	t.Cleanup(e.kill)
	return e
}

// startEtcd starts a new server without TLS.
func startEtcd(t testing.TB) *etcd {
	t.Helper()
	e := newEtcd(t)
	e.start()
	return e
}

func (e *etcd) scheme() string {
	if e.tls != nil {
		return "https"
	}
	return "http"
}

func (e *etcd) url() string { return e.scheme() + "://" + e.client }

// command is the server's, not started.
func (e *etcd) command() *exec.Cmd {
	exe, err := os.Executable()
	if err != nil {
		e.t.Fatal(err)
	}
	args := []string{e.dir, e.client, e.peer}
	if e.tls != nil {
		args = append(args, e.tls.cert, e.tls.key, e.tls.ca)
	}
	cmd := exec.Command(exe, args...)
	cmd.Env = append(os.Environ(), childEnv+"=etcd", memberEnv+"="+e.name, clusterEnv+"="+e.all, metricsEnv+"="+e.metrics)
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return cmd
}

func (e *etcd) start() { e.startAs(e.command()) }

// startAs starts the server's command and waits until it says that it is ready.
func (e *etcd) startAs(cmd *exec.Cmd) {
	e.t.Helper()
	out, err := cmd.StdoutPipe()
	if err != nil {
		e.t.Fatal(err)
	}
	if e.in, err = cmd.StdinPipe(); err != nil {
		e.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		e.t.Fatal(err)
	}
	e.cmd = cmd
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "ready\n" {
		e.t.Fatalf("etcd: %q %v", line, err)
	}
}

// kill ends it with SIGKILL.
func (e *etcd) kill() {
	if e.cmd == nil {
		return
	}
	_ = e.cmd.Process.Kill()
	_ = e.cmd.Wait()
	e.in.Close()
	e.cmd = nil
}

// backup stops it for a moment, and gives a folder with what it holds.
func (e *etcd) backup() string {
	e.t.Helper()
	e.kill()
	to := filepath.Join(e.t.TempDir(), "backup")
	if err := os.CopyFS(to, os.DirFS(e.dir)); err != nil {
		e.t.Fatal(err)
	}
	e.start()
	return to
}

// restore starts it anew as it was when the backup was made.
func (e *etcd) restore(backup string) {
	e.t.Helper()
	e.kill()
	if err := errors.Join(os.RemoveAll(e.dir), os.CopyFS(e.dir, os.DirFS(backup))); err != nil {
		e.t.Fatal(err)
	}
	e.start()
}

// childEtcd is the server until its standard input ends.
func childEtcd(args []string) error {
	c := embed.NewConfig()
	c.Dir = args[0]
	c.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.NewNop())
	if addr := os.Getenv(metricsEnv); addr != "" {
		c.ListenMetricsUrls = []url.URL{{Scheme: "http", Host: addr}}
	} else {
		c.UnsafeNoFsync = true // what is tested is the fleet, not etcd's durability
	}
	scheme := "http"
	if len(args) > 3 {
		scheme = "https"
		c.ClientTLSInfo = transport.TLSInfo{CertFile: args[3], KeyFile: args[4], TrustedCAFile: args[5], ClientCertAuth: true}
	}
	c.ListenClientUrls = []url.URL{{Scheme: scheme, Host: args[1]}}
	c.AdvertiseClientUrls = c.ListenClientUrls
	c.ListenPeerUrls = []url.URL{{Scheme: "http", Host: args[2]}}
	c.AdvertisePeerUrls = c.ListenPeerUrls
	c.InitialCluster = c.InitialClusterFromName(c.Name)
	if name := os.Getenv(memberEnv); name != "" {
		c.Name, c.InitialCluster = name, os.Getenv(clusterEnv)
	}
	server, err := embed.StartEtcd(c)
	if err != nil {
		return err
	}
	<-server.Server.ReadyNotify()
	fmt.Println("ready")
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

// dial makes a client of the test's own, with root's rights.
func (e *etcd) dial(t testing.TB, c *tls.Config) *clientv3.Client {
	t.Helper()
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{e.url()}, TLS: c, Logger: zap.NewNop(), DialTimeout: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	return client
}

// compact forgets everything before now.
func compact(t testing.TB, c *clientv3.Client) {
	t.Helper()
	r, err := c.Get(t.Context(), "x")
	if err == nil {
		_, err = c.Compact(t.Context(), r.Header.Revision, clientv3.WithCompactPhysical())
	}
	if err != nil {
		t.Fatal(err)
	}
}

// within waits until what holds, or fails the test with what it said last.
func within(t *testing.T, most time.Duration, what func() error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), most)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		err := what()
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("not within %v: %v", most, err)
		case <-tick.C:
		}
	}
}

// stays fails the test as soon as what does not hold any more.
func stays(t *testing.T, long time.Duration, what func() error) {
	t.Helper()
	for end := time.Now().Add(long); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if err := what(); err != nil {
			t.Fatal(err)
		}
	}
}

func equal[T comparable](what string, got, want T) error {
	if got != want {
		return fmt.Errorf("%s is %v, want %v", what, got, want)
	}
	return nil
}
