package config

import (
	"io/fs"
	"log/slog"
	"time"
)

// Config is a whole configuration, with defaults filled in.
type Config struct {
	Socket Socket
	// TCP is nil when policyd listens on no network.
	TCP *TCP
	// Grants give roles. Nil (key absent) means the defaults of [DefaultGrants].
	Grants []Grant
	Limits Limits
	// Unmatched is a reference to the policy of workloads that no Binding matches. Empty: they get none.
	Unmatched string
	Store     Store
	Log       Log
	// Metrics is where Prometheus asks; nobody does when it is empty.
	Metrics Metrics
	// Fleet is nil when this host follows no fleet.
	Fleet *Fleet
	// StopDeadline is how long requests under way may take after SIGTERM.
	StopDeadline time.Duration
	// Launcher is the path of policyd-launch, which ends descendants where cgroups cannot. Empty: beside policyd.
	Launcher string
	// LabelPool is how many labels a pool of labels for sandboxes has.
	LabelPool int
	// Records is the folder with the records of containers. Empty: internal/containers' in the runtime folder.
	Records string
}

// DefaultLabelPool is the size of a pool of labels where the file says nothing.
const DefaultLabelPool = 64

// Socket is the unix socket.
type Socket struct {
	// Path is absolute, empty for the default of internal/paths.
	Path string
	Mode fs.FileMode
	// GID owns the socket; -1: the group policyd runs as.
	GID int
}

// TCP is a listener with mutual TLS.
type TCP struct {
	// Listen is host:port.
	Listen string
	// Certificate and Key are PEM files of the server, ClientCA one of the authorities that sign clients; see [File].
	Certificate, Key, ClientCA string
}

// Limits bound what one user may take. Zero is never "unlimited": it means none at all.
type Limits struct {
	// Sandboxes alive at once.
	Sandboxes int
	// StartsPerSecond on average, StartBurst at once.
	StartsPerSecond float64
	StartBurst      int
	// Connections open at once.
	Connections int
	// MessageBytes is the largest message a client may send; the default holds two files of the language's largest size.
	MessageBytes int
	// LogBytes is the most output kept of one sandbox, UserLogBytes of all of a user's.
	LogBytes, UserLogBytes uint64
}

// Store is how the store is opened and kept small.
type Store struct {
	// KeepVersions is how many versions of a document the garbage collection keeps at least.
	KeepVersions int
	// OpenTimeout is how long to wait for another policyd to let go of the file.
	OpenTimeout time.Duration
}

// Log is how the daemon logs.
type Log struct {
	Level slog.Level
	// Format is "text", "json", or "auto": text on a terminal.
	Format string
}

// Metrics is the listener of metrics: at most one of Path and Address is set.
type Metrics struct {
	// Path of a unix socket, absolute; it has the mode and the group of the API's socket.
	Path string
	// Address is host:port of the loopback interface, the host an address.
	Address string
}

// Grant gives a role to every caller that any of its selectors matches.
type Grant struct {
	Role Role
	// Everyone matches every process of this host that can reach the socket.
	Everyone bool
	Users    []uint32
	Groups   []uint32
	// SmackLabels are labels of the calling process.
	SmackLabels []string
	// Certificates are names as internal/peer takes them from a certificate.
	Certificates []string
	// Policies are patterns (path.Match) of names of policies and fragments the role holds for. Empty: all.
	Policies []string
	// SandboxLabels are patterns (path.Match) of Smack labels that those with the role may give to sandboxes of these
	// policies. The role operator needs none.
	SandboxLabels []string
}

// Default returns the configuration of an empty file for a policyd of that user.
// A plain user's socket is his alone.
func Default(uid int) *Config {
	c := &Config{
		Socket: Socket{Mode: 0o600, GID: -1},
		Limits: Limits{
			Sandboxes: 1000, StartsPerSecond: 100, StartBurst: 200, Connections: 256,
			MessageBytes: 16 << 20, LogBytes: 16 << 20, UserLogBytes: 4 << 30,
		},
		Store:        Store{KeepVersions: 100, OpenTimeout: 5 * time.Second},
		Log:          Log{Level: slog.LevelInfo, Format: "auto"},
		StopDeadline: 10 * time.Second,
		LabelPool:    DefaultLabelPool,
	}
	if uid == 0 {
		c.Socket.Mode = 0o660
		if gid, err := lookupGroup(SocketGroup); err == nil {
			c.Socket.GID = int(gid)
		}
	}
	return c
}

// SocketGroup is the group that owns root's socket where it exists and the file names no other.
const SocketGroup = "policyd"

// DefaultGrants are the roles of a policyd of that user whose file has no roles: root's
// lets everyone who reaches the socket start sandboxes as himself, a plain user's serves him alone.
func DefaultGrants(uid int) []Grant {
	if uid == 0 {
		return []Grant{{Role: RoleUser, Everyone: true}}
	}
	return nil
}
