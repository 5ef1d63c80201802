package containers

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"time"
	"unicode/utf8"
)

// Limits of a record.
const (
	maxRecord = 1 << 20 // bytes of a file; Kubernetes allows 256 KiB of annotations
	maxID     = 1024    // bytes, as runc has it
	maxPath   = 4095
)

// Record is what was known of a container when it was put under a profile.
type Record struct {
	// ID is the container's, as the runtime has it.
	ID string `json:"id"`
	// Root is the folder in which the runtime keeps its state, absolute; "" when it is not known, as to an NRI plugin.
	Root string `json:"root,omitempty"`
	// Bundle is the folder with the container's config.json, absolute.
	Bundle string `json:"bundle,omitempty"`
	// PidFile is where the runtime was told to write the first process's number.
	PidFile string `json:"pidFile,omitempty"`
	// Pid and Start name the first process where whoever writes the record knows it: Start in clock ticks after boot.
	Pid   int    `json:"pid,omitempty"`
	Start uint64 `json:"start,omitempty"`
	// Runtime is the path of the runtime behind, Engine what called it: "containerd", "podman", "nri", ... as far as known.
	Runtime string `json:"runtime,omitempty"`
	Engine  string `json:"engine,omitempty"`
	// Version is what it runs under, NAME@NUMBER, and Digest that of the profile.
	Version string `json:"version"`
	Digest  string `json:"digest"`
	// Ref is the policy that was asked for by name. "" when Bindings decided, and then Binding is the one, NAME; "" there
	// too where the configuration names a policy for what none matches.
	Ref     string `json:"ref,omitempty"`
	Binding string `json:"binding,omitempty"`
	// Parameters are the values that were asked for.
	Parameters map[string]string `json:"parameters,omitempty"`
	// SmackLabel is that of its processes, "" for the runtime's own.
	SmackLabel string `json:"smackLabel,omitempty"`
	// Missing is what of the policy is not enforced, as text, where the policy says degrade.
	Missing []string `json:"missing,omitempty"`
	// LastKnown tells that the profile is one from earlier, since policyd did not answer.
	LastKnown bool      `json:"lastKnown,omitempty"`
	Created   time.Time `json:"created"`
	Workload  Workload  `json:"workload"`
}

// Workload is what was known of the container's contents; with these facts Bindings are asked again.
type Workload struct {
	Image       string            `json:"image,omitempty"`
	Namespace   string            `json:"namespace,omitempty"`
	Name        string            `json:"name,omitempty"` // of the container in its pod
	Pod         string            `json:"pod,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
	Labels      map[string]string `json:"labels,omitempty"`
}

// check refuses what cannot be a container's: ids are parts of paths in the runtime's folder.
func (r *Record) check() error {
	if err := CheckID(r.ID); err != nil {
		return err
	}
	for _, p := range []struct{ what, path string }{{"root", r.Root}, {"bundle", r.Bundle}, {"pidFile", r.PidFile}} {
		if err := checkPath(p.what, p.path); err != nil {
			return err
		}
	}
	name, number, ok := strings.Cut(r.Version, "@")
	switch {
	case !ok || name == "" || number == "" || strings.Trim(number, "0123456789") != "":
		return fmt.Errorf("%w: version %q is not NAME@NUMBER", ErrInvalid, r.Version)
	case !isDigest(r.Digest):
		return fmt.Errorf("%w: digest %q is not sha256: and 64 digits", ErrInvalid, r.Digest)
	case r.Pid < 0:
		return fmt.Errorf("%w: pid %d", ErrInvalid, r.Pid)
	case r.Created.IsZero():
		return fmt.Errorf("%w: created is not said", ErrInvalid)
	}
	return nil
}

func isDigest(s string) bool {
	hex, ok := strings.CutPrefix(s, "sha256:")
	return ok && len(hex) == 64 && strings.Trim(hex, "0123456789abcdef") == ""
}

// CheckID refuses what no runtime takes for the id of a container, or would look for outside its folder. runc takes
// letters, digits and _+-. , crun whatever is the name of a file.
func CheckID(id string) error {
	switch {
	case id == "", id == ".", id == "..", len(id) > maxID, !utf8.ValidString(id),
		strings.ContainsFunc(id, func(c rune) bool { return c == '/' || c <= ' ' || c == 0x7f }):
		return fmt.Errorf("%w: %.80q is no id of a container", ErrInvalid, id)
	}
	return nil
}

func checkPath(what, path string) error {
	if path != "" && (!filepath.IsAbs(path) || len(path) > maxPath || strings.ContainsRune(path, 0)) {
		return fmt.Errorf("%w: %s %.80q is no absolute path", ErrInvalid, what, path)
	}
	return nil
}

func (r *Record) encode() ([]byte, error) {
	if err := r.check(); err != nil {
		return nil, err
	}
	b, err := json.Marshal(r)
	if err == nil && len(b) > maxRecord {
		err = fmt.Errorf("%w: %d bytes, at most %d", ErrInvalid, len(b), maxRecord)
	}
	return b, err
}

// decode reads a record, and nothing that [Write] would not write.
func decode(b []byte) (*Record, error) {
	if len(b) > maxRecord {
		return nil, fmt.Errorf("%w: %d bytes, at most %d", ErrInvalid, len(b), maxRecord)
	}
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields()
	r := &Record{}
	if err := dec.Decode(r); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	if _, err := dec.Token(); err != io.EOF {
		return nil, fmt.Errorf("%w: there is more than the record", ErrInvalid)
	}
	return r, r.check()
}
