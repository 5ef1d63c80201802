// Package paths says where policyd keeps its files: the system's folders for
// root, the XDG base directories for anybody else.
//
// It imports only the standard library, so that the daemon and its clients
// agree on the socket without talking first.
package paths

import (
	"os"
	"path/filepath"
	"strconv"
)

// SocketEnv names the environment variable that tells clients where policyd listens.
const SocketEnv = "POLICYD_SOCKET"

// Layout is where one policyd keeps its files. All paths are absolute.
type Layout struct {
	// State holds the store and the sandboxes' logs; kept for good.
	State string
	// Runtime holds the socket and what a reboot may take away.
	Runtime string
	// Config is the configuration file, which need not exist.
	Config string
}

// Default returns the layout of the calling user: the system's for root, else
// XDG_STATE_HOME, XDG_RUNTIME_DIR and XDG_CONFIG_HOME with the defaults of the
// XDG base directory specification. Without XDG_RUNTIME_DIR the runtime folder
// lies in the state folder: a shared /tmp would let another user sit on the name.
func Default() Layout {
	if os.Geteuid() == 0 {
		return System()
	}
	return User()
}

// System returns the layout of the system's policyd, whoever runs it.
func System() Layout {
	return Layout{State: "/var/lib/policyd", Runtime: "/run/policyd", Config: "/etc/policyd/policyd.yaml"}
}

// User returns the layout of the calling user's own policyd, also for root.
func User() Layout {
	l := Layout{
		State:  filepath.Join(xdg("XDG_STATE_HOME", ".local/state"), "policyd"),
		Config: filepath.Join(xdg("XDG_CONFIG_HOME", ".config"), "policyd", "policyd.yaml"),
	}
	l.Runtime = l.RuntimeIn(os.Getenv("XDG_RUNTIME_DIR"))
	return l
}

// RuntimeIn returns the runtime folder for an XDG runtime directory, or the one
// in the state folder when there is none.
func (l Layout) RuntimeIn(xdgRuntime string) string {
	if filepath.IsAbs(xdgRuntime) {
		return filepath.Join(xdgRuntime, "policyd")
	}
	return filepath.Join(l.State, "run")
}

// WithState returns the layout of a policyd started with a state folder of its
// own: its runtime folder then lies inside, so that two such daemons never meet.
func (l Layout) WithState(dir string) Layout {
	l.State = dir
	l.Runtime = filepath.Join(dir, "run")
	return l
}

// Store is the path of the bbolt file.
func (l Layout) Store() string { return filepath.Join(l.State, "policyd.db") }

// Sandboxes is the folder with one folder of logs per sandbox.
func (l Layout) Sandboxes() string { return filepath.Join(l.State, "sandboxes") }

// Socket is the path of the unix socket.
func (l Layout) Socket() string { return filepath.Join(l.Runtime, "policyd.sock") }

// Target is the address for gRPC clients: $POLICYD_SOCKET when set, else the
// default socket, as unix:///path.
func Target() string {
	if t := os.Getenv(SocketEnv); t != "" {
		return t
	}
	return "unix://" + Default().Socket()
}

func xdg(env, fallback string) string {
	if d := os.Getenv(env); filepath.IsAbs(d) {
		return d
	}
	home, err := os.UserHomeDir()
	if err != nil || !filepath.IsAbs(home) {
		// No home: a folder of the user's own under /var/tmp, checked for its
		// owner when it is made.
		home = filepath.Join("/var/tmp", "policyd-"+strconv.Itoa(os.Getuid()))
	}
	return filepath.Join(home, fallback)
}
