package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"go.yaml.in/yaml/v4"

	"policyd.dev/policyd/internal/paths"
)

// Environment variables that go before the configuration file.
const (
	configEnv  = "POLICYD_RUNC_CONFIG"
	runtimeEnv = "POLICYD_RUNC_RUNTIME"
)

// defaultConfig need not exist.
const defaultConfig = "/etc/policyd/runc.yaml"

// settings is the configuration file; docs/containers.md says what each is.
type settings struct {
	Runtime     string `yaml:"runtime"`
	Launcher    string `yaml:"launcher"`
	Socket      string `yaml:"socket"`
	State       string `yaml:"state"`
	Select      string `yaml:"select"`
	Profile     string `yaml:"profile"`
	Unannotated string `yaml:"unannotated"`
	Unreachable string `yaml:"unreachable"`

	file string
}

func loadSettings() (*settings, error) {
	s := &settings{file: defaultConfig}
	named := os.Getenv(configEnv)
	if named != "" {
		s.file = named
	}
	text, err := os.ReadFile(s.file)
	if err != nil && (named != "" || !errors.Is(err, fs.ErrNotExist)) {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	if err == nil {
		if err := s.trusted(); err != nil {
			return nil, err
		}
	}
	if len(text) > 0 {
		if err := yaml.Load(text, s, yaml.WithKnownFields()); err != nil {
			return nil, fmt.Errorf("configuration: %s: %w", s.file, err)
		}
	}
	if r := os.Getenv(runtimeEnv); r != "" {
		s.Runtime = r
	}
	return s, s.complete()
}

// trusted refuses a file that others may write: it names what root runs.
func (s *settings) trusted() error {
	st, err := os.Stat(s.file)
	if err != nil {
		return fmt.Errorf("configuration: %w", err)
	}
	owner := int(st.Sys().(*syscall.Stat_t).Uid)
	if owner != 0 && owner != os.Geteuid() || st.Mode()&0o002 != 0 {
		return fmt.Errorf("configuration: %s belongs to uid %d and has mode %04o; only root and uid %d may be able to write it", s.file, owner, st.Mode().Perm(), os.Geteuid())
	}
	return nil
}

func (s *settings) complete() error {
	if s.Launcher == "" {
		self, err := os.Executable()
		if err != nil {
			return err
		}
		s.Launcher = filepath.Join(filepath.Dir(self), "policyd-launch")
	}
	if s.State == "" {
		s.State = filepath.Join(paths.Default().State, "oci")
	}
	if s.Select == "" {
		s.Select = "annotations"
	}
	if s.Select == "bindings" && s.Profile+s.Unannotated != "" {
		return fmt.Errorf("configuration: %s: profile and unannotated mean nothing with select: bindings, where policyd decides", s.file)
	}
	if s.Unannotated == "" {
		s.Unannotated = "run"
	}
	if s.Unreachable == "" {
		s.Unreachable = "refuse"
	}
	for _, c := range []struct{ key, value, a, b string }{
		{"select", s.Select, "annotations", "bindings"}, {"unannotated", s.Unannotated, "run", "refuse"}, {"unreachable", s.Unreachable, "refuse", "last-known"},
	} {
		if c.value != c.a && c.value != c.b {
			return fmt.Errorf("configuration: %s: %s: %q is neither %s nor %s", s.file, c.key, c.value, c.a, c.b)
		}
	}
	for _, c := range []struct{ key, path string }{{"launcher", s.Launcher}, {"state", s.State}} {
		if !filepath.IsAbs(c.path) {
			return fmt.Errorf("configuration: %s: %s: %q is no absolute path", s.file, c.key, c.path)
		}
	}
	return nil
}
