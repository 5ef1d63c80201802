package main

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"sync/atomic"

	"policyd.dev/policyd/internal/config"
)

// certificates are those of the network's listener. A reload replaces them; connections that are open keep theirs.
type certificates struct{ current atomic.Pointer[tls.Config] }

// load reads the files of the tcp section.
func (c *certificates) load(t *config.TCP) error {
	var paths [3]string
	for i, f := range []struct{ key, value string }{
		{"tcp.certificate", t.Certificate}, {"tcp.key", t.Key}, {"tcp.clientCA", t.ClientCA},
	} {
		path, err := config.File(f.value)
		if err != nil {
			return fmt.Errorf("%s: %w", f.key, err)
		}
		paths[i] = path
	}
	cert, err := tls.LoadX509KeyPair(paths[0], paths[1])
	if err != nil {
		return fmt.Errorf("tcp.certificate: %w", err)
	}
	pem, err := os.ReadFile(paths[2])
	if err != nil {
		return fmt.Errorf("tcp.clientCA: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return fmt.Errorf("tcp.clientCA: %s holds no certificate", t.ClientCA)
	}
	c.current.Store(&tls.Config{
		Certificates: []tls.Certificate{cert}, ClientCAs: pool, NextProtos: []string{"h2"},
		ClientAuth: tls.RequireAndVerifyClientCert, MinVersion: tls.VersionTLS13,
	})
	return nil
}

// config is for a listener: each handshake takes the certificates of its time. It is nil without any.
func (c *certificates) config() *tls.Config {
	first := c.current.Load()
	if first == nil {
		return nil
	}
	out := first.Clone()
	out.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) { return c.current.Load(), nil }
	return out
}
