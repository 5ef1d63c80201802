package main

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/containerd/nri/pkg/api"
	"go.yaml.in/yaml/v4"

	"policyd.dev/policyd/internal/containers"
	"policyd.dev/policyd/internal/owned"
	"policyd.dev/policyd/internal/paths"
)

// defaultConfig need not exist.
const defaultConfig = "/etc/policyd/nri.yaml"

// settings is the configuration file; docs/nri.md says what each is.
type settings struct {
	NRISocket        string   `yaml:"nriSocket"`
	Index            string   `yaml:"index"`
	Launcher         string   `yaml:"launcher"`
	Socket           string   `yaml:"socket"`
	State            string   `yaml:"state"`
	Records          string   `yaml:"records"`
	RuntimeRoot      string   `yaml:"runtimeRoot"`
	Select           string   `yaml:"select"`
	Profile          string   `yaml:"profile"`
	Unannotated      string   `yaml:"unannotated"`
	RuntimeHandlers  []string `yaml:"runtimeHandlers"`
	ExceptNamespaces []string `yaml:"exceptNamespaces"`

	file string
	node string
}

// loadSettings reads a configuration, the default one when none is named.
func loadSettings(named string) (*settings, error) {
	s := &settings{file: cmp.Or(named, defaultConfig)}
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
	if s.node, err = os.Hostname(); err != nil {
		return nil, fmt.Errorf("name of this host: %w", err)
	}
	return s, s.complete()
}

// trusted refuses a file that others may write: it says what containers run under.
func (s *settings) trusted() error {
	st, err := os.Stat(s.file)
	if err != nil {
		return fmt.Errorf("configuration: %w", err)
	}
	if err := owned.Check(s.file, st); err != nil {
		return fmt.Errorf("configuration: %w", err)
	}
	return nil
}

func (s *settings) complete() error {
	wrong := func(format string, args ...any) error {
		return fmt.Errorf("configuration: %s: %s", s.file, fmt.Sprintf(format, args...))
	}
	if s.Launcher == "" {
		self, err := os.Executable()
		if err != nil {
			return err
		}
		s.Launcher = filepath.Join(filepath.Dir(self), "policyd-launch")
	}
	layout := paths.Default()
	s.NRISocket = cmp.Or(s.NRISocket, api.DefaultSocketPath)
	s.Index = cmp.Or(s.Index, "99")
	s.State = cmp.Or(s.State, filepath.Join(layout.State, "nri"))
	s.Records = cmp.Or(s.Records, containers.Dir(layout.Runtime))
	s.Select = cmp.Or(s.Select, "annotations")
	if s.Select == "bindings" && s.Profile+s.Unannotated != "" {
		return wrong("profile and unannotated mean nothing with select: bindings, where policyd decides")
	}
	s.Unannotated = cmp.Or(s.Unannotated, "run")
	for _, c := range []struct{ key, value, a, b string }{
		{"select", s.Select, "annotations", "bindings"}, {"unannotated", s.Unannotated, "run", "refuse"},
	} {
		if c.value != c.a && c.value != c.b {
			return wrong("%s: %q is neither %s nor %s", c.key, c.value, c.a, c.b)
		}
	}
	for _, c := range []struct{ key, path string }{
		{"nriSocket", s.NRISocket}, {"launcher", s.Launcher}, {"state", s.State}, {"records", s.Records}, {"runtimeRoot", cmp.Or(s.RuntimeRoot, "/")},
	} {
		if !filepath.IsAbs(c.path) {
			return wrong("%s: %q is no absolute path", c.key, c.path)
		}
	}
	if len(s.Index) != 2 || strings.Trim(s.Index, "0123456789") != "" {
		return wrong("index: %q is not two digits", s.Index)
	}
	if slices.Contains(s.ExceptNamespaces, "") {
		return wrong("exceptNamespaces: there is no namespace without a name")
	}
	return containers.CheckLauncher(s.Launcher)
}
