package peer

import (
	"context"
	"slices"
	"strconv"

	"google.golang.org/grpc/credentials"
	grpcpeer "google.golang.org/grpc/peer"
)

// Identity is who a connection comes from. It never changes while the connection lives:
// the kernel recorded it at connect(2), the certificate was verified in the handshake.
type Identity struct {
	// Local: the peer is a process of this host, and UID, GID, Groups, PID and SmackLabel hold.
	Local bool
	// UID and GID are the effective ones the process had when it connected, as seen
	// from policyd's user namespace (65534 where they do not map into it).
	UID, GID uint32
	// Groups are its supplementary groups then, sorted.
	Groups []uint32
	// PID is for messages only: a number may have been used again since.
	PID int32
	// SmackLabel is its label, empty where the kernel has no Smack.
	SmackLabel string
	// Certificate is the name in the client's verified certificate: its first URI name, else
	// its first DNS name, else its common name. Empty for local peers.
	Certificate string
	// Confined is why the peer must not act as its user: it runs in a sandbox, or that cannot be ruled out. Empty for
	// any other, and for clients of the network.
	Confined string

	pidfd *pidfd
}

// String names the identity for people, authors of versions and owners: "uid:1000" or "cert:ci.example.org".
func (id *Identity) String() string {
	if id.Local {
		return "uid:" + strconv.FormatUint(uint64(id.UID), 10)
	}
	return "cert:" + id.Certificate
}

// InGroup says whether the process was in the group, as its own or a supplementary one.
func (id *Identity) InGroup(gid uint32) bool {
	if !id.Local {
		return false
	}
	if id.GID == gid {
		return true
	}
	_, found := slices.BinarySearch(id.Groups, gid)
	return found
}

// Program returns the short name of the peer's program, for logs, or "" when it cannot be told
// for certain: the process that connected is gone, or the kernel gave no pidfd.
func (id *Identity) Program() string {
	if id.pidfd == nil {
		return ""
	}
	return id.pidfd.program(id.PID)
}

// AuthInfo carries an [Identity] through gRPC.
type AuthInfo struct {
	credentials.CommonAuthInfo
	Identity *Identity
}

// AuthType names the kind of identity: "unix" or "tls".
func (a AuthInfo) AuthType() string {
	if a.Identity.Local {
		return "unix"
	}
	return "tls"
}

// FromContext returns the identity of the peer of the RPC in whose handler ctx was given.
func FromContext(ctx context.Context) (*Identity, bool) {
	p, ok := grpcpeer.FromContext(ctx)
	if !ok {
		return nil, false
	}
	a, ok := p.AuthInfo.(AuthInfo)
	return a.Identity, ok && a.Identity != nil
}
