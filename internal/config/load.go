package config

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"regexp"
	"strings"
	"syscall"

	"go.yaml.in/yaml/v4"
)

// maxFile bounds the file; a configuration is far smaller.
const maxFile = 1 << 20

// Load reads the file for a policyd of that user. A file that does not exist gives the defaults when it is optional.
// A file of root's that others could have written is refused.
func Load(path string, optional bool, uid int) (*Config, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) && optional {
		return Default(uid), nil
	}
	if err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("configuration: %s is not a regular file", path)
	}
	if info.Mode()&0o002 != 0 {
		return nil, fmt.Errorf("configuration: %s can be written by everyone (mode %04o); chmod o-w it", path, info.Mode().Perm())
	}
	if owner := info.Sys().(*syscall.Stat_t).Uid; owner != 0 && int(owner) != uid {
		return nil, fmt.Errorf("configuration: %s belongs to uid %d, not to root or uid %d", path, owner, uid)
	}
	src, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	if len(src) > maxFile {
		return nil, fmt.Errorf("configuration: %s is larger than %d bytes", path, maxFile)
	}
	return Parse(path, src, uid)
}

// Parse is Load of bytes; name stands in the messages. The error joins every mistake found.
func Parse(name string, src []byte, uid int) (*Config, error) {
	cfg := Default(uid)
	var docs []yaml.Node
	if err := yaml.Load(src, &docs, yaml.WithAllDocuments()); err != nil {
		return nil, positioned(name, err)
	}
	if len(docs) > 1 {
		return nil, fmt.Errorf("%s: the configuration is one document, not %d", name, len(docs))
	}
	var raw file
	v := &validator{name: name}
	if len(docs) == 1 {
		v.root = &docs[0]
		if err := docs[0].Load(&raw, yaml.WithKnownFields()); err != nil {
			return nil, positioned(name, err)
		}
	}
	raw.into(cfg, v)
	if err := errors.Join(v.problems...); err != nil {
		return nil, err
	}
	return cfg, nil
}

// unknownField is how the YAML library says that a key does not exist, in terms of Go.
var unknownField = regexp.MustCompile(`(?s)^field (.*?) not found in type .*$`)

// positioned puts file:line:column before each message of a YAML error.
func positioned(name string, err error) error {
	var all *yaml.LoadErrors
	var one *yaml.LoadError
	switch {
	case errors.As(err, &all):
		one = all.Errors[0]
		if len(all.Errors) > 1 {
			joined := make([]error, 0, len(all.Errors))
			for _, e := range all.Errors {
				joined = append(joined, positioned(name, e))
			}
			return errors.Join(joined...)
		}
	case !errors.As(err, &one):
		return fmt.Errorf("%s: %w", name, err)
	}
	message := one.Message
	if m := unknownField.FindStringSubmatch(message); m != nil {
		message = fmt.Sprintf("unknown key %q", m[1])
	}
	return fmt.Errorf("%s:%d:%d: %s", name, max(one.Mark.Line, 1), max(one.Mark.Column, 1), message)
}

// validator collects the mistakes of values with the places they stand at.
type validator struct {
	name     string
	root     *yaml.Node
	problems []error
}

// bad notes a mistake in the value at a path of keys (string) and indexes (int).
func (v *validator) bad(path []any, format string, args ...any) {
	n := v.root
	if n.Kind == yaml.DocumentNode {
		n = n.Content[0]
	}
	var key strings.Builder
	for _, step := range path {
		switch step := step.(type) {
		case int:
			fmt.Fprintf(&key, "[%d]", step)
			if n.Kind == yaml.SequenceNode && step < len(n.Content) {
				n = n.Content[step]
			}
		case string:
			if key.Len() > 0 {
				key.WriteByte('.')
			}
			key.WriteString(step)
			for i := 0; n.Kind == yaml.MappingNode && i+1 < len(n.Content); i += 2 {
				if n.Content[i].Value == step {
					n = n.Content[i+1]
					break
				}
			}
		}
		if n.Kind == yaml.AliasNode {
			n = n.Alias
		}
	}
	v.problems = append(v.problems, fmt.Errorf("%s:%d:%d: %s: %s", v.name, n.Line, n.Column, &key, fmt.Sprintf(format, args...)))
}
