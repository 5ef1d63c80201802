package units

import (
	"os"
	"path/filepath"
	"strings"

	"policyd.dev/policyd/enforce/profile"
)

// Need is a path that a unit's own settings say its service uses.
type Need struct {
	Setting string // StateDirectory=web
	Path    string
	Rights  profile.Access
}

// The rights of a folder that is a service's to read, to write, and to keep sockets in.
const (
	readFolder  = profile.FSReadFile | profile.FSReadDir
	writeFolder = readFolder | profile.FSWriteFile | profile.FSTruncate | profile.FSMakeReg | profile.FSMakeDir | profile.FSRemoveFile | profile.FSRemoveDir
	runFolder   = writeFolder | profile.FSMakeSock
)

// Needs gives what the settings of a unit say about the paths its programs use. What
// systemd itself opens is not among these: EnvironmentFile=, StandardOutput=, the
// sockets of activation.
func (s *Service) Needs(user bool) []Need {
	var all []Need
	add := func(key, value, path string, rights profile.Access) {
		all = append(all, Need{key + "=" + value, filepath.Clean(path), rights})
	}
	for _, d := range []struct {
		key    string
		rights profile.Access
	}{
		{"RuntimeDirectory", runFolder},
		{"StateDirectory", runFolder},
		{"CacheDirectory", writeFolder},
		{"LogsDirectory", writeFolder},
		{"ConfigurationDirectory", readFolder},
	} {
		for _, name := range s.List(d.key) {
			name, _, _ = strings.Cut(name, ":")
			add(d.key, name, filepath.Join(base(d.key, name, user), name), d.rights)
		}
	}
	for _, p := range s.List("ReadWritePaths") {
		optional := strings.HasPrefix(p, "-")
		path := strings.TrimLeft(p, "-+")
		if _, err := os.Stat(path); err != nil && optional {
			continue
		}
		add("ReadWritePaths", p, path, rightsOn(path, writeFolder))
	}
	if s.Is("PrivateTmp") || s.Get("PrivateTmp") == "disconnected" {
		for _, p := range []string{"/tmp", "/var/tmp"} {
			add("PrivateTmp", "yes", p, runFolder)
		}
	}
	if f := s.Get("PIDFile"); f != "" {
		add("PIDFile", f, filepath.Dir(f), profile.FSMakeReg|profile.FSWriteFile|profile.FSRemoveFile)
	}
	for _, key := range []string{"LoadCredential", "LoadCredentialEncrypted", "SetCredential", "SetCredentialEncrypted"} {
		if s.sets(key) {
			dir := "/run/credentials"
			if user {
				dir = filepath.Join(os.Getenv("XDG_RUNTIME_DIR"), "credentials")
			}
			add(key, "", filepath.Join(dir, s.ID), readFolder)
			break
		}
	}
	switch s.Get("Type") {
	case "notify", "notify-reload":
		path := "/run/systemd/notify"
		if user {
			path = filepath.Join(os.Getenv("XDG_RUNTIME_DIR"), "systemd/notify")
		}
		add("Type", s.Get("Type"), path, profile.FSResolveUnix)
	case "dbus":
		path := "/run/dbus/system_bus_socket"
		if user {
			path = filepath.Join(os.Getenv("XDG_RUNTIME_DIR"), "bus")
		}
		add("BusName", s.Get("BusName"), path, profile.FSResolveUnix)
	}
	return all
}

// rightsOn leaves out what only folders have.
func rightsOn(path string, rights profile.Access) profile.Access {
	if st, err := os.Stat(path); err == nil && !st.IsDir() {
		return rights & (profile.FSReadFile | profile.FSWriteFile | profile.FSTruncate)
	}
	return rights
}

// base is where systemd puts a folder (systemd.exec(5)).
func base(key, name string, user bool) string {
	if !user {
		return map[string]string{
			"RuntimeDirectory": "/run", "StateDirectory": "/var/lib", "CacheDirectory": "/var/cache",
			"LogsDirectory": "/var/log", "ConfigurationDirectory": "/etc",
		}[key]
	}
	config, _ := os.UserConfigDir()
	cache, _ := os.UserCacheDir()
	switch key {
	case "RuntimeDirectory":
		return os.Getenv("XDG_RUNTIME_DIR")
	case "CacheDirectory":
		return cache
	case "ConfigurationDirectory":
		return config
	}
	state := os.Getenv("XDG_STATE_HOME")
	if !filepath.IsAbs(state) {
		home, _ := os.UserHomeDir()
		state = filepath.Join(home, ".local/state")
	}
	sub := ""
	if key == "LogsDirectory" {
		sub = "log"
	}
	// Before systemd 254 these were beneath the configuration.
	if _, err := os.Stat(filepath.Join(config, sub, name)); err == nil {
		return filepath.Join(config, sub)
	}
	return filepath.Join(state, sub)
}

// Program is what the program of a command is on this host: its path, or "" when
// that is not known, since specifiers are systemd's to expand.
func (s *Service) Program(i int) string {
	c := s.Commands["ExecStart"][i]
	if !strings.Contains(c.Program, "%") {
		return c.Program
	}
	lines := s.Lines("ExecStart")
	if i >= len(lines) || len(lines) != len(s.Commands["ExecStart"]) {
		return ""
	}
	_, rest, _ := strings.Cut(lines[i], "{ path=")
	path, _, _ := strings.Cut(rest, " ;")
	if filepath.Base(path) == "policyd-launch" || path == launcherInRoot {
		return ""
	}
	return path
}

// Environment is what systemd gives its programs, as far as its files say so.
func (s *Service) Environment() []string {
	env := []string{"PATH=" + s.Search()}
	for _, e := range s.List("Environment") {
		if name, _, ok := strings.Cut(e, "="); ok && name == "PATH" {
			env[0] = e
		} else {
			env = append(env, e)
		}
	}
	return env
}

// Search is where systemd looks for programs without a path.
func (s *Service) Search() string {
	if search := s.List("ExecSearchPath"); len(search) > 0 {
		return strings.Join(search, ":")
	}
	return "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
}

// sets tells that a setting has a value. systemctl show prints "[unprintable]" for lists of pairs, empty ones too (systemd
// 252), so the unit's files say it then; where they cannot be read, it has one.
func (s *Service) sets(key string) bool {
	if v := s.Get(key); v != "[unprintable]" {
		return v != ""
	}
	settings, err := readFiles(s.Unit)
	if err != nil {
		return true
	}
	set := false
	for _, one := range settings {
		if one.Section == "Service" && one.Key == key {
			set = one.Value != "" // an empty one takes back those before it
		}
	}
	return set
}
