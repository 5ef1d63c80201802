package config

import (
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os/user"
	"path"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"policyd.dev/policyd/smack"
)

// file is the YAML as it is written. Values with a unit are text here, so that a bad one is
// told with its place.
type file struct {
	Socket *struct {
		Path  string  `yaml:"path"`
		Mode  *string `yaml:"mode"`
		Group *string `yaml:"group"`
	} `yaml:"socket"`
	TCP *struct {
		Listen      string `yaml:"listen"`
		Certificate string `yaml:"certificate"`
		Key         string `yaml:"key"`
		ClientCA    string `yaml:"clientCA"`
	} `yaml:"tcp"`
	Roles *[]struct {
		Role         string   `yaml:"role"`
		Everyone     bool     `yaml:"everyone"`
		Users        []string `yaml:"users"`
		Groups       []string `yaml:"groups"`
		SmackLabels  []string `yaml:"smackLabels"`
		Certificates []string `yaml:"certificates"`
		Policies     []string `yaml:"policies"`

		SandboxLabels []string `yaml:"sandboxLabels"`
	} `yaml:"roles"`
	Limits *struct {
		Sandboxes       *int     `yaml:"sandboxes"`
		StartsPerSecond *float64 `yaml:"startsPerSecond"`
		StartBurst      *int     `yaml:"startBurst"`
		Connections     *int     `yaml:"connections"`
		MessageSize     *string  `yaml:"messageSize"`
		LogSize         *string  `yaml:"logSize"`
		UserLogSize     *string  `yaml:"userLogSize"`
	} `yaml:"limits"`
	Store *struct {
		KeepVersions *int    `yaml:"keepVersions"`
		OpenTimeout  *string `yaml:"openTimeout"`
	} `yaml:"store"`
	Log *struct {
		Level  *string `yaml:"level"`
		Format *string `yaml:"format"`
	} `yaml:"log"`
	Bindings *struct {
		Unmatched *string `yaml:"unmatched"`
	} `yaml:"bindings"`
	Containers *struct {
		Records string `yaml:"records"`
	} `yaml:"containers"`
	Metrics *struct {
		Listen *string `yaml:"listen"`
	} `yaml:"metrics"`
	Smack *struct {
		PoolSize *int `yaml:"poolSize"`
	} `yaml:"smack"`
	Fleet        *fileFleet `yaml:"fleet"`
	StopDeadline *string    `yaml:"stopDeadline"`
	Launcher     string     `yaml:"launcher"`
}

// refuseUnmatched is the word for giving no policy to what no Binding matches.
const refuseUnmatched = "refuse"

// reference is what a policy is named by (store.ParseRef, which this package may not import).
var reference = regexp.MustCompile(`^[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?(@([1-9][0-9]{0,18}|[a-z]([a-z0-9._-]{0,61}[a-z0-9])?|sha256:[0-9a-f]{8,64}))?$`)

// maxLabelPool bounds the labels of a pool: the kernel frees none.
const maxLabelPool = 1000

// levels are the names log.level takes; slog's own parser takes more.
var levels = map[string]slog.Level{"debug": slog.LevelDebug, "info": slog.LevelInfo, "warn": slog.LevelWarn, "error": slog.LevelError}

// at is a path for validator.bad.
func at(steps ...any) []any { return steps }

func (f *file) into(c *Config, v *validator) {
	f.socketInto(c, v)
	if t := f.TCP; t != nil {
		if _, port, err := net.SplitHostPort(t.Listen); err != nil || port == "" {
			v.bad(at("tcp", "listen"), "%q is not host:port", t.Listen)
		}
		for _, p := range [][2]string{{"certificate", t.Certificate}, {"key", t.Key}, {"clientCA", t.ClientCA}} {
			if err := checkFile(p[1]); err != nil {
				v.bad(at("tcp", p[0]), "%v", err)
			}
		}
		c.TCP = &TCP{Listen: t.Listen, Certificate: t.Certificate, Key: t.Key, ClientCA: t.ClientCA}
	}
	f.rolesInto(c, v)
	f.fleetInto(c, v)
	f.limitsInto(c, v)
	if s := f.Store; s != nil {
		integer(v, at("store", "keepVersions"), s.KeepVersions, 1, 1<<30, &c.Store.KeepVersions)
		duration(v, at("store", "openTimeout"), s.OpenTimeout, &c.Store.OpenTimeout)
	}
	if l := f.Log; l != nil {
		if l.Level != nil {
			level, ok := levels[*l.Level]
			if c.Log.Level = level; !ok {
				v.bad(at("log", "level"), "%q is not one of debug, info, warn, error", *l.Level)
			}
		}
		if l.Format != nil {
			switch c.Log.Format = *l.Format; c.Log.Format {
			case "auto", "text", "json":
			default:
				v.bad(at("log", "format"), "%q is not one of auto, text, json", *l.Format)
			}
		}
	}
	if m := f.Metrics; m != nil && m.Listen != nil {
		var err error
		if c.Metrics, err = parseMetrics(*m.Listen); err != nil {
			v.bad(at("metrics", "listen"), "%v", err)
		}
	}
	if s := f.Smack; s != nil {
		integer(v, at("smack", "poolSize"), s.PoolSize, 1, maxLabelPool, &c.LabelPool)
	}
	if b := f.Bindings; b != nil && b.Unmatched != nil && *b.Unmatched != refuseUnmatched {
		if c.Unmatched = *b.Unmatched; !reference.MatchString(c.Unmatched) {
			v.bad(at("bindings", "unmatched"), "%q is neither refuse nor a policy: web, web@3, web@stable, web@sha256:...", c.Unmatched)
		}
	}
	if k := f.Containers; k != nil {
		if c.Records = k.Records; c.Records != "" && !filepath.IsAbs(c.Records) {
			v.bad(at("containers", "records"), "%q is not an absolute path", c.Records)
		}
	}
	duration(v, at("stopDeadline"), f.StopDeadline, &c.StopDeadline)
	if c.Launcher = f.Launcher; c.Launcher != "" && !filepath.IsAbs(c.Launcher) {
		v.bad(at("launcher"), "%q is not an absolute path", c.Launcher)
	}
}

func (f *file) socketInto(c *Config, v *validator) {
	s := f.Socket
	if s == nil {
		return
	}
	if c.Socket.Path = s.Path; s.Path != "" && !filepath.IsAbs(s.Path) {
		v.bad(at("socket", "path"), "%q is not an absolute path (abstract sockets have no mode and are refused)", s.Path)
	}
	if s.Mode != nil {
		mode, err := ParseMode(*s.Mode)
		if err != nil {
			v.bad(at("socket", "mode"), "%v", err)
		}
		c.Socket.Mode = mode
	}
	if s.Group != nil {
		gid, err := lookupGroup(*s.Group)
		if err != nil {
			v.bad(at("socket", "group"), "%v", err)
		}
		c.Socket.GID = int(gid)
	}
}

func (f *file) rolesInto(c *Config, v *validator) {
	if f.Roles == nil {
		return
	}
	c.Grants = []Grant{}
	for i, r := range *f.Roles {
		g := Grant{Everyone: r.Everyone, SmackLabels: r.SmackLabels, Certificates: r.Certificates, Policies: r.Policies, SandboxLabels: r.SandboxLabels}
		var err error
		if g.Role, err = ParseRole(r.Role); err != nil {
			v.bad(at("roles", i, "role"), "%v", err)
		}
		for j, name := range r.Users {
			uid, err := lookupUser(name)
			if err != nil {
				v.bad(at("roles", i, "users", j), "%v", err)
			}
			g.Users = append(g.Users, uid)
		}
		for j, name := range r.Groups {
			gid, err := lookupGroup(name)
			if err != nil {
				v.bad(at("roles", i, "groups", j), "%v", err)
			}
			g.Groups = append(g.Groups, gid)
		}
		for j, pattern := range r.Policies {
			if _, err := path.Match(pattern, ""); err != nil || pattern == "" {
				v.bad(at("roles", i, "policies", j), "%q is not a pattern", pattern)
			}
		}
		for j, pattern := range r.SandboxLabels {
			if _, err := path.Match(pattern, ""); err != nil || pattern == "" {
				v.bad(at("roles", i, "sandboxLabels", j), "%q is not a pattern", pattern)
			}
		}
		for j, label := range r.SmackLabels {
			if err := smack.CheckLabel(label); err != nil {
				v.bad(at("roles", i, "smackLabels", j), "%v", err)
			}
		}
		for j, name := range r.Certificates {
			if name == "" {
				v.bad(at("roles", i, "certificates", j), "is empty")
			}
		}
		if !g.Everyone && len(g.Users)+len(g.Groups)+len(g.SmackLabels)+len(g.Certificates) == 0 {
			v.bad(at("roles", i), "gives the role to nobody; name users, groups, smackLabels, certificates or everyone")
		}
		c.Grants = append(c.Grants, g)
	}
}

func (f *file) limitsInto(c *Config, v *validator) {
	l := f.Limits
	if l == nil {
		return
	}
	integer(v, at("limits", "sandboxes"), l.Sandboxes, 0, 1<<20, &c.Limits.Sandboxes)
	integer(v, at("limits", "startBurst"), l.StartBurst, 0, 1<<20, &c.Limits.StartBurst)
	integer(v, at("limits", "connections"), l.Connections, 0, 1<<20, &c.Limits.Connections)
	if r := l.StartsPerSecond; r != nil {
		if !(*r >= 0 && *r <= 1e6) {
			v.bad(at("limits", "startsPerSecond"), "%v is not between 0 and 1000000", *r)
		}
		c.Limits.StartsPerSecond = *r
	}
	message := uint64(c.Limits.MessageBytes)
	size(v, at("limits", "messageSize"), l.MessageSize, 64<<10, 1<<30, &message)
	c.Limits.MessageBytes = int(message)
	size(v, at("limits", "logSize"), l.LogSize, 64<<10, 1<<50, &c.Limits.LogBytes)
	size(v, at("limits", "userLogSize"), l.UserLogSize, 0, 1<<50, &c.Limits.UserLogBytes)
}

func integer(v *validator, path []any, value *int, least, most int, into *int) {
	if value == nil {
		return
	}
	if *value < least || *value > most {
		v.bad(path, "%d is not between %d and %d", *value, least, most)
	}
	*into = *value
}

func duration(v *validator, path []any, value *string, into *time.Duration) {
	if value == nil {
		return
	}
	d, err := time.ParseDuration(*value)
	if err != nil || d < 0 || d > time.Hour {
		v.bad(path, "%q is not a time between 0s and 1h such as 5s", *value)
	}
	*into = d
}

func size(v *validator, path []any, value *string, least, most uint64, into *uint64) {
	if value == nil {
		return
	}
	n, err := ParseSize(*value)
	if err != nil {
		v.bad(path, "%v", err)
	} else if n < least || n > most {
		v.bad(path, "%d bytes are not between %d and %d", n, least, most)
	}
	*into = n
}

// ParseSize reads a number of bytes with an optional unit KiB, MiB, GiB.
func ParseSize(s string) (uint64, error) {
	number, shift := s, 0
	for i, unit := range []string{"KiB", "MiB", "GiB"} {
		if n, ok := strings.CutSuffix(s, unit); ok {
			number, shift = strings.TrimSpace(n), 10*(i+1)
		}
	}
	n, err := strconv.ParseUint(number, 10, 64)
	if err != nil || n<<shift>>shift != n {
		return 0, fmt.Errorf("%q is not a size such as 65536, 64KiB, 16MiB or 1GiB", s)
	}
	return n << shift, nil
}

// ParseMode reads the permissions of a socket in octal. Connecting needs write permission.
func ParseMode(s string) (fs.FileMode, error) {
	n, err := strconv.ParseUint(s, 8, 32)
	if err != nil || n > 0o777 {
		return 0, fmt.Errorf("%q is not an octal mode such as 0660", s)
	}
	if n&0o200 == 0 {
		return 0, fmt.Errorf("mode %s keeps out the owner", s)
	}
	return fs.FileMode(n), nil
}

// noID is (uid_t)-1, which chown(2) and setresuid(2) take for "leave as it is".
const noID = 1<<32 - 1

func lookupUser(name string) (uint32, error) {
	if n, err := strconv.ParseUint(name, 10, 32); err == nil && n != noID {
		return uint32(n), nil
	}
	u, err := user.Lookup(name)
	if err != nil {
		return 0, fmt.Errorf("user %q does not exist", name)
	}
	n, err := strconv.ParseUint(u.Uid, 10, 32)
	return uint32(n), err
}

func lookupGroup(name string) (uint32, error) {
	if n, err := strconv.ParseUint(name, 10, 32); err == nil && n != noID {
		return uint32(n), nil
	}
	g, err := user.LookupGroup(name)
	if err != nil {
		return 0, fmt.Errorf("group %q does not exist", name)
	}
	n, err := strconv.ParseUint(g.Gid, 10, 32)
	return uint32(n), err
}
