package peer

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"

	"google.golang.org/grpc/credentials"
)

// Credentials returns server credentials that take unix connections as they are and TCP connections
// by mutual TLS with config, which must verify client certificates. Without config TCP is refused.
// A handshake beyond the limit of open connections fails.
func Credentials(config *tls.Config, open *Connections) (credentials.TransportCredentials, error) {
	c := &transport{open: open}
	if config != nil {
		if config.ClientAuth != tls.RequireAndVerifyClientCert {
			return nil, errors.New("peer: the TLS configuration does not verify client certificates")
		}
		c.tls = credentials.NewTLS(config)
	}
	return c, nil
}

type transport struct {
	tls  credentials.TransportCredentials
	open *Connections
}

func (t *transport) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	if uc, ok := raw.(*net.UnixConn); ok {
		id, err := unixIdentity(uc)
		if err != nil {
			t.open.tell(err)
			return nil, nil, err
		}
		release, err := t.open.take(id)
		if err != nil {
			id.pidfd.close()
			return nil, nil, err
		}
		info := AuthInfo{Identity: id}
		// The bytes stay within this host's kernel.
		info.SecurityLevel = credentials.PrivacyAndIntegrity
		return &conn{Conn: raw, release: func() { id.pidfd.close(); release() }}, info, nil
	}
	if t.tls == nil {
		return nil, nil, fmt.Errorf("peer: connection of network %q has no identity", raw.LocalAddr().Network())
	}
	secure, got, err := t.tls.ServerHandshake(raw)
	if err != nil {
		return nil, nil, err
	}
	state := got.(credentials.TLSInfo).State
	if len(state.VerifiedChains) == 0 {
		secure.Close()
		return nil, nil, errors.New("peer: client certificate was not verified")
	}
	name := CertificateName(state.VerifiedChains[0][0])
	if name == "" {
		secure.Close()
		return nil, nil, errors.New("peer: client certificate names nobody")
	}
	info := AuthInfo{Identity: &Identity{Certificate: name}}
	release, err := t.open.take(info.Identity)
	if err != nil {
		secure.Close()
		return nil, nil, err
	}
	info.SecurityLevel = credentials.PrivacyAndIntegrity
	return &conn{Conn: secure, release: release}, info, nil
}

// CertificateName is the one name a certificate stands for: its first URI name, else its first DNS
// name, else its common name.
func CertificateName(c *x509.Certificate) string {
	switch {
	case len(c.URIs) > 0:
		return c.URIs[0].String()
	case len(c.DNSNames) > 0:
		return c.DNSNames[0]
	}
	return c.Subject.CommonName
}

func (t *transport) ClientHandshake(context.Context, string, net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, errors.New("peer: server credentials cannot be used by a client")
}

func (t *transport) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: "policyd-peer"}
}

func (t *transport) Clone() credentials.TransportCredentials {
	return &transport{tls: t.tls, open: t.open}
}

func (t *transport) OverrideServerName(string) error {
	return errors.New("peer: server credentials have no server name")
}
