package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
)

// Over the network the name in a verified certificate has the roles, and nothing else lets in.
func TestNetwork(t *testing.T) {
	dir := folder(t)
	ca, caKey := issue(t, nil, nil, &x509.Certificate{Subject: pkix.Name{CommonName: "ca"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign})
	srv, srvKey := issue(t, ca, caKey, &x509.Certificate{DNSNames: []string{"localhost"}})
	writePEM(t, filepath.Join(dir, "ca.pem"), "CERTIFICATE", ca.Raw)
	writePEM(t, filepath.Join(dir, "srv.pem"), "CERTIFICATE", srv.Raw)
	der, err := x509.MarshalECPrivateKey(srvKey)
	if err != nil {
		t.Fatal(err)
	}
	writePEM(t, filepath.Join(dir, "srv.key"), "EC PRIVATE KEY", der)
	probe, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := probe.Addr().String()
	probe.Close()
	file := filepath.Join(dir, "policyd.yaml")
	text := strings.NewReplacer("DIR", dir, "ADDRESS", address).Replace(`
tcp: {listen: "ADDRESS", certificate: DIR/srv.pem, key: DIR/srv.key, clientCA: DIR/ca.pem}
roles: [{role: viewer, certificates: [monitor]}, {role: admin, everyone: true}]
`)
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	p := launch(t, dir, "--config", file)
	pool := x509.NewCertPool()
	pool.AddCert(ca)
	call := func(name string) (*apiv1.StatusResponse, error) {
		cfg := &tls.Config{RootCAs: pool, ServerName: "localhost"}
		if name != "" {
			cert, key := issue(t, ca, caKey, &x509.Certificate{DNSNames: []string{name}})
			cfg.Certificates = []tls.Certificate{{Certificate: [][]byte{cert.Raw}, PrivateKey: key}}
		}
		return apiv1.NewAdminServiceClient(dial(t, "passthrough:///"+address, credentials.NewTLS(cfg))).Status(ctx(t), &apiv1.StatusRequest{})
	}
	if st, err := call("monitor"); err != nil || st.GetCaller() != "cert:monitor" || strings.Join(st.GetRoles(), " ") != "viewer" {
		t.Errorf("%v, %v", st, err)
	}
	if _, err := call("stranger"); status.Code(err) != codes.PermissionDenied {
		t.Errorf("stranger: %v", err)
	}
	if _, err := call(""); status.Code(err) != codes.Unavailable {
		t.Errorf("no certificate: %v", err)
	}
	plain := apiv1.NewAdminServiceClient(dial(t, "passthrough:///"+address, insecure.NewCredentials()))
	if _, err := plain.Status(ctx(t), &apiv1.StatusRequest{}); status.Code(err) != codes.Unavailable {
		t.Errorf("without TLS: %v", err)
	}
	p.signal(syscall.SIGTERM)
	if code := p.ended(); code != exitOK {
		t.Errorf("exit %d\n%s", code, p.out)
	}
}

func writePEM(t *testing.T, path, kind string, der []byte) {
	t.Helper()
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
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
