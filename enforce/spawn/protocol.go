package spawn

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"policyd.dev/policyd/internal/errs"
)

// What policyd and a supervisor say to each other, over a socket pair inherited
// as descriptor 3: JSON values, one after the other. Nothing is in arguments or
// environment. Descriptors 4, 5 and 6 are the program's stdio, the rulesets
// follow; the program's pidfd comes back beside the startReply.

const (
	superFD   = 3
	stdioFD   = 4
	rulesetFD = 7
)

type startRequest struct {
	Path       string
	Argv, Env  []string
	Dir        string
	Credential *Credential
	Umask      *int
	Limits     []Limit
	TTY        bool
	SmackLabel string
	StatusFile string
	Layers     []layerRequest

	SmackRelabel []string
}

type layerRequest struct {
	Name  string
	Flags uint32
}

type startReply struct {
	PID   int
	Class string // of the error: a key of classes
	Error string
}

type endReply struct{ Status Status }

// classes are the sentinels that go over the socket by name.
var classes = map[string]error{
	"not_found": errs.ErrProgramNotFound,
	"refused":   errs.ErrProgramRefused,
	"smack":     errs.ErrSmackUnavailable,
	"start":     errs.ErrStart,
}

func classOf(err error) string {
	for name, sentinel := range classes {
		if errors.Is(err, sentinel) {
			return name
		}
	}
	return "start"
}

// remoteError is an error that came over the socket: its own text, its class.
type remoteError struct {
	text  string
	class error
}

func (e *remoteError) Error() string { return e.text }
func (e *remoteError) Unwrap() error { return e.class }

func (r *startReply) err() error {
	if r.Error == "" {
		return nil
	}
	class, ok := classes[r.Class]
	if !ok {
		class = errs.ErrStart
	}
	return &remoteError{r.Error, class}
}

// writeStatusFile puts the file in place whole or not at all.
func writeStatusFile(path string, st Status) error {
	b, err := json.Marshal(st)
	if err != nil {
		return err
	}
	tmp, err := os.CreateTemp(filepath.Dir(path), ".status-*")
	if err != nil {
		return err
	}
	_, err = tmp.Write(append(b, '\n'))
	err = errors.Join(err, tmp.Close())
	if err == nil {
		err = os.Rename(tmp.Name(), path)
	}
	if err != nil {
		os.Remove(tmp.Name())
	}
	return err
}

// ReadStatusFile reads the exit status a supervisor left at Command.StatusFile.
// fs.ErrNotExist when it left none.
func ReadStatusFile(path string) (Status, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return Status{}, err
	}
	var st Status
	if err := json.Unmarshal(b, &st); err != nil {
		return Status{}, fmt.Errorf("%s: %w", path, err)
	}
	return st, nil
}
