package main

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"policyd.dev/policyd/enforce/oci"
	"policyd.dev/policyd/internal/ask"
	"policyd.dev/policyd/internal/containers"
)

// maxText bounds a config.json or a process file, bytes.
const maxText = 16 << 20

// configPath is where the runtime will read config.json: in the bundle, which is
// the working directory unless it is named, or where crun's --config says.
func (l *line) configPath() (string, error) {
	switch config := l.opts["config"]; {
	case filepath.IsAbs(config):
		return config, nil
	case config != "" && config != "config.json":
		// Relative to the bundle or not, that has changed.
		return "", fmt.Errorf("option --config: %q is no absolute path", config)
	}
	return filepath.Join(l.opts["bundle"], "config.json"), nil
}

// confineContainer edits config.json, unless the container is to run as it is.
func (s *settings) confineContainer(l *line, runtime string) error {
	path, err := l.configPath()
	if err != nil {
		return err
	}
	text, err := readText(path)
	if err != nil {
		return err
	}
	c, err := oci.ReadConfig(text)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	edited := c.Text()
	q, err := s.question(c)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if q != nil {
		p, err := s.profile(q)
		if err != nil {
			return fmt.Errorf("%s: %w", about(q, c), err)
		}
		if err := containers.AllowLabel(p.SmackLabel); err != nil {
			return fmt.Errorf("%s: %w", about(q, c), err)
		}
		if err := containers.CheckLauncher(s.Launcher); err != nil {
			return err
		}
		edited, err = c.Edited(oci.Edit{Launcher: s.Launcher, Profile: p.file, Digest: p.Digest, Version: p.Version, SmackLabel: p.SmackLabel})
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		if err := s.record(l, runtime, c, q, p); err != nil {
			return err
		}
	}
	if bytes.Equal(edited, text) {
		return nil
	}
	return replaceText(path, edited)
}

// question is what policyd is to be asked for a container, nil when it runs as
// it is.
func (s *settings) question(c *oci.Config) (*ask.Question, error) {
	ref := cmp.Or(c.Ref, s.Profile)
	switch {
	case c.Sandbox:
		return nil, nil
	case s.Select == "bindings":
		return &ask.Question{Workload: &ask.Workload{Image: c.Image, Namespace: c.Namespace, Container: c.Container, Annotations: c.Annotations}}, nil
	case ref != "":
		return &ask.Question{Ref: ref, Parameters: oci.Values(c.Parameters)}, nil
	case len(c.Parameters) > 0:
		return nil, fmt.Errorf("%s: nothing names the policy they are for", oci.About(c.Parameters))
	case s.Unannotated == "refuse":
		return nil, fmt.Errorf("the container has no annotation %s, and the configuration says to refuse such (unannotated: in %s)", oci.AnnotationProfile, s.file)
	}
	return nil, nil
}

// about names what a question is about, with the annotations that made it.
func about(q *ask.Question, c *oci.Config) string {
	if w := q.Workload; w != nil {
		return fmt.Sprintf("profile by bindings (image %q, namespace %q)", w.Image, w.Namespace)
	}
	if len(c.Parameters) > 0 {
		return fmt.Sprintf("profile %q with the annotations %s", q.Ref, oci.About(c.Parameters))
	}
	return fmt.Sprintf("profile %q", q.Ref)
}

// refuseRestore: a process that was checkpointed comes back without its Landlock
// layers, which CRIU does not know.
func (s *settings) refuseRestore(l *line) error {
	path, err := l.configPath()
	if err != nil {
		return err
	}
	text, err := readText(path)
	if err != nil {
		return err
	}
	c, err := oci.ReadConfig(text)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	q, err := s.question(c)
	if err == nil && q != nil {
		err = fmt.Errorf("%s: a restored container would not be confined; start it anew", about(q, c))
	}
	return err
}

func readText(path string) ([]byte, error) {
	st, err := os.Lstat(path)
	if err != nil {
		return nil, err
	}
	if !st.Mode().IsRegular() || st.Size() > maxText {
		return nil, fmt.Errorf("%s: not a regular file of at most %d bytes", path, maxText)
	}
	return os.ReadFile(path)
}

// replaceText puts another file in the place of one, with its mode and owner:
// at every moment there is the one or the other, whole.
func replaceText(path string, text []byte) error {
	st, err := os.Lstat(path)
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".policyd-*")
	if err != nil {
		return err
	}
	own := st.Sys().(*syscall.Stat_t)
	_, err = f.Write(text)
	err = errors.Join(err, f.Chown(int(own.Uid), int(own.Gid)), f.Chmod(st.Mode().Perm()), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		os.Remove(f.Name())
	}
	return err
}
