// Package peer tells who is at the other end of a connection: what the kernel
// says of the process behind a unix socket, or the name in the certificate of a
// mutual TLS connection.
//
// It plugs into gRPC as transport credentials, so that an identity exists before
// the first byte of a request is read. It decides nothing: roles are the server's.
// It imports nothing of policyd's.
package peer
