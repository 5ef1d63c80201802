package agent

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
)

// Files are PEM files of a client of etcd.
type Files struct{ Certificate, Key, CA string }

// TLS makes a configuration that reads the files again at every handshake: certificates and authorities are changed by
// changing the files. That they can be read is tried once, so that a mistake is told at the start.
func (f Files) TLS() (*tls.Config, error) {
	if _, err := f.certificate(); err != nil {
		return nil, err
	}
	if _, err := f.authorities(); err != nil {
		return nil, err
	}
	return &tls.Config{
		MinVersion:           tls.VersionTLS12, // etcd of Debian 12 speaks 1.3 too, but may be told not to
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return f.certificate() },
		// The authorities of a tls.Config are fixed once it is used. So the library's own check is left out, and the same
		// one made below with those that the file holds now.
		InsecureSkipVerify: true, //nolint:gosec // VerifyConnection verifies
		VerifyConnection:   f.verify,
	}, nil
}

func (f Files) certificate() (*tls.Certificate, error) {
	c, err := tls.LoadX509KeyPair(f.Certificate, f.Key)
	if err != nil {
		return nil, fmt.Errorf("certificate of the client of etcd: %w", err)
	}
	return &c, nil
}

func (f Files) authorities() (*x509.CertPool, error) {
	pem, err := os.ReadFile(f.CA)
	if err != nil {
		return nil, fmt.Errorf("authorities of etcd: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("authorities of etcd: %s holds no certificate", f.CA)
	}
	return pool, nil
}

// verify is what crypto/tls does by itself for a server: the chain, the time, the name.
func (f Files) verify(cs tls.ConnectionState) error {
	pool, err := f.authorities()
	if err != nil {
		return err
	}
	if len(cs.PeerCertificates) == 0 {
		return fmt.Errorf("etcd at %s has no certificate", cs.ServerName)
	}
	o := x509.VerifyOptions{Roots: pool, DNSName: cs.ServerName, Intermediates: x509.NewCertPool()}
	for _, c := range cs.PeerCertificates[1:] {
		o.Intermediates.AddCert(c)
	}
	_, err = cs.PeerCertificates[0].Verify(o)
	return err
}
