package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"unicode"
	"unicode/utf8"

	"policyd.dev/policyd/internal/containers"
	"policyd.dev/policyd/internal/owned"
	"policyd.dev/policyd/internal/paths"
)

// Environment variables that go before the configuration file.
const (
	configEnv  = "POLICYD_RUNC_CONFIG"
	runtimeEnv = "POLICYD_RUNC_RUNTIME"
)

// defaultConfig need not exist.
const defaultConfig = "/etc/policyd/runc.yaml"

// maxConfig bounds the configuration file, bytes.
const maxConfig = 64 << 10

// settings is the configuration file; docs/containers.md says what each is.
type settings struct {
	Runtime     string
	Launcher    string
	Socket      string
	State       string
	Records     string
	Select      string
	Profile     string
	Unannotated string
	Unreachable string

	file string
}

// keys are those of the configuration file.
func (s *settings) keys() map[string]*string {
	return map[string]*string{
		"runtime": &s.Runtime, "launcher": &s.Launcher, "socket": &s.Socket, "state": &s.State, "records": &s.Records,
		"select": &s.Select, "profile": &s.Profile, "unannotated": &s.Unannotated, "unreachable": &s.Unreachable,
	}
}

// loadSettings reads what is needed to become the runtime; complete does the rest
// for those commands that need it.
func loadSettings() (*settings, error) {
	s := &settings{file: defaultConfig}
	named := os.Getenv(configEnv)
	if named != "" {
		s.file = named
	}
	text, err := s.read()
	if err != nil && (named != "" || !errors.Is(err, fs.ErrNotExist)) {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	if err := readKeys(text, s.keys()); err != nil {
		return nil, fmt.Errorf("configuration: %s: %w", s.file, err)
	}
	if r := os.Getenv(runtimeEnv); r != "" {
		s.Runtime = r
	}
	return s, nil
}

// read refuses a file that others may write: it names what root runs.
func (s *settings) read() (string, error) {
	f, err := os.OpenFile(s.file, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return "", err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return "", err
	}
	if err := owned.Check(s.file, st); err != nil {
		return "", err
	}
	b, err := io.ReadAll(io.LimitReader(f, maxConfig+1))
	if err == nil && len(b) > maxConfig {
		err = fmt.Errorf("%s has more than %d bytes", s.file, maxConfig)
	}
	return string(b), err
}

// readKeys reads the part of YAML that such a file needs, "key: value" a line:
// what it takes, YAML reads the same, and all else is refused. YAML's own reader
// takes longer to be ready than all that is done with it here.
func readKeys(text string, keys map[string]*string) error {
	seen := map[string]bool{}
	n := 0
	text = strings.ReplaceAll(text, "\r\n", "\n")
	if i := strings.IndexFunc(text, func(c rune) bool { return c == utf8.RuneError || c != '\n' && c != '\t' && !unicode.IsPrint(c) }); i >= 0 {
		return fmt.Errorf("line %d: %q is no text", strings.Count(text[:i], "\n")+1, text[i:i+1])
	}
	for line := range strings.Lines(text) {
		n++
		line = strings.TrimSuffix(line, "\n")
		if rest := strings.TrimLeft(line, " "); rest == "" || rest[0] == '#' || n == 1 && line == "---" {
			continue
		}
		key, value, ok := strings.Cut(line, ":")
		to := keys[key]
		switch {
		case !ok || value != "" && value[0] != ' ':
			return fmt.Errorf("line %d: %q is not \"key: value\"", n, line)
		case to == nil:
			return fmt.Errorf("line %d: there is no key %q", n, key)
		case seen[key]:
			return fmt.Errorf("line %d: %s is there twice", n, key)
		}
		seen[key] = true
		v, err := scalar(strings.TrimSpace(value))
		if err != nil {
			return fmt.Errorf("line %d: %s: %w", n, key, err)
		}
		*to = v
	}
	return nil
}

// plain is what a value without quotes may hold: paths, names, references.
const plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._-@+=:,~"

func scalar(v string) (string, error) {
	if v == "" || v[0] == '#' {
		return "", nil
	}
	if q := v[0]; q == '\'' || q == '"' {
		end := strings.IndexByte(v[1:], q)
		if end < 0 {
			return "", errors.New("its quotes do not end")
		}
		inner, after := v[1:end+1], v[end+2:]
		if strings.ContainsAny(inner, "\\") || strings.ContainsFunc(inner, func(c rune) bool { return c < ' ' || c > '~' }) {
			return "", errors.New("quotes hold printable ASCII without backslashes here")
		}
		if !blankOrComment(after) {
			return "", fmt.Errorf("%q behind its quotes", after)
		}
		return inner, nil
	}
	word, after, _ := strings.Cut(v, " ")
	first := strings.TrimLeft(word[:1], "/._abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
	if strings.Trim(word, plain) != "" || strings.HasSuffix(word, ":") || first != "" || !blankOrComment(" "+after) {
		return "", fmt.Errorf("%q: put it in quotes", v)
	}
	switch strings.ToLower(word) {
	case "null", "~", "true", "false", "yes", "no", "on", "off", "y", "n", ".inf", ".nan":
		return "", fmt.Errorf("%q is no text in YAML: put it in quotes", v)
	}
	if strings.Trim(word, "0123456789._") == "" {
		return "", fmt.Errorf("%q is no text in YAML: put it in quotes", v)
	}
	return word, nil
}

func blankOrComment(s string) bool {
	rest := strings.TrimLeft(s, " \t")
	return rest == "" || rest[0] == '#' && rest != s
}

// complete fills in the defaults and refuses what does not fit together.
func (s *settings) complete() error {
	if s.Launcher == "" {
		self, err := os.Executable()
		if err != nil {
			return err
		}
		s.Launcher = filepath.Join(filepath.Dir(self), "policyd-launch")
	}
	layout := paths.Default()
	if s.State == "" {
		s.State = filepath.Join(layout.State, "oci")
	}
	if s.Records == "" {
		s.Records = containers.Dir(layout.Runtime)
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
	if s.Socket == "" {
		s.Socket = paths.Target()
	}
	s.Socket = strings.TrimPrefix(strings.TrimPrefix(s.Socket, "unix:"), "//")
	for _, c := range []struct{ key, path string }{{"launcher", s.Launcher}, {"state", s.State}, {"records", s.Records}, {"socket", s.Socket}} {
		if !filepath.IsAbs(c.path) {
			return fmt.Errorf("configuration: %s: %s: %q is no absolute path", s.file, c.key, c.path)
		}
	}
	return nil
}
