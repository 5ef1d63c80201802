package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v4"

	"policyd.dev/policyd/internal/cli"
	"policyd.dev/policyd/internal/errs"
	"policyd.dev/policyd/internal/fleet"
	"policyd.dev/policyd/internal/paths"
)

// fleetSettings is fleet.yaml. Its keys are those of the section fleet: of
// policyd.yaml where both have them.
type fleetSettings struct {
	Name        string   `yaml:"name"`
	Endpoints   []string `yaml:"endpoints,flow"`
	CA          string   `yaml:"ca,omitempty"`
	Certificate string   `yaml:"certificate,omitempty"`
	Key         string   `yaml:"key,omitempty"`
	// User and PasswordFile are for an etcd without client certificates.
	User         string `yaml:"user,omitempty"`
	PasswordFile string `yaml:"passwordFile,omitempty"`
	// Channel is the one meant when none is named.
	Channel string `yaml:"channel,omitempty"`
	// WithoutRBAC: etcd's users and roles are not policyd's business.
	WithoutRBAC bool    `yaml:"withoutRBAC,omitempty"`
	ContentKeys keyRole `yaml:"contentKeys"`
	RolloutKeys keyRole `yaml:"rolloutKeys"`
}

// keyRole is one of the two sets of keys.
type keyRole struct {
	Threshold int      `yaml:"threshold"`
	Keys      []string `yaml:"keys"`
	// SignWith are private keys in these hands: files, or credential:NAME.
	SignWith []string `yaml:"signWith,omitempty"`
}

func (k keyRole) signers() fleet.Signers {
	return fleet.Signers{Threshold: k.Threshold, Keys: k.Keys}
}

// path is the file of settings.
func (f *fleetApp) path() string {
	if f.file != "" {
		return f.file
	}
	return filepath.Join(filepath.Dir(paths.Default().Config), "fleet.yaml")
}

// load reads the file, which need not exist when the command line says enough,
// and puts what the command line says over it.
func (f *fleetApp) load() error {
	raw, err := os.ReadFile(f.path())
	switch {
	case errors.Is(err, fs.ErrNotExist) && f.file == "":
	case err != nil:
		return fmt.Errorf("settings: %w", err)
	default:
		if f.settings.fleetSettings, err = parseFleetSettings(f.path(), raw); err != nil {
			return err
		}
	}
	s := &f.settings.fleetSettings
	for _, o := range []struct {
		to   *string
		from string
	}{{&s.Name, f.flags.Name}, {&s.CA, f.flags.CA}, {&s.Certificate, f.flags.Certificate}, {&s.Key, f.flags.Key}} {
		if o.from != "" {
			*o.to = o.from
		}
	}
	if len(f.flags.Endpoints) > 0 {
		s.Endpoints = f.flags.Endpoints
	}
	return nil
}

func parseFleetSettings(name string, raw []byte) (fleetSettings, error) {
	var s fleetSettings
	var docs []yaml.Node
	err := yaml.Load(raw, &docs, yaml.WithAllDocuments())
	switch {
	case err == nil && len(docs) > 1:
		err = errors.New("more than one document")
	case err == nil && len(docs) == 1:
		err = docs[0].Load(&s, yaml.WithKnownFields())
	}
	if err != nil {
		return s, fmt.Errorf("%w: %s: %s", errs.ErrInvalid, name, unknownKey.ReplaceAllString(err.Error(), "$1 is no setting"))
	}
	return s, nil
}

// unknownKey is how the YAML library says that a key does not exist, in terms of Go.
var unknownKey = regexp.MustCompile(`field (\S+) not found in type \S+`)

const settingsHead = `# Settings of policyctl fleet: where etcd is, whom to believe, what to sign with.
# The keys under keys: are public; nodes have the same in their policyd.yaml.
`

// save writes the file of settings, which must not exist.
func (f *fleetApp) save(s fleetSettings) error {
	path := f.path()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	body, err := yaml.Dump(s, yaml.WithIndent(2))
	if err != nil {
		return err
	}
	return cli.WriteAtomically(path, 0o600, func(w io.Writer) error {
		_, err := io.WriteString(w, settingsHead+string(body))
		return err
	})
}

func trimLine(s string) string { return strings.TrimRight(s, "\r\n") }
