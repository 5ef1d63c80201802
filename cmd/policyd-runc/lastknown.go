package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"policyd.dev/policyd/internal/ask"
	"policyd.dev/policyd/internal/owned"
)

// last is what policyd said of a question, as it is kept for when it does not
// answer: a line of JSON, and the bytes of the profile behind it.
type last struct {
	Ref        string            `json:"ref"`
	Parameters map[string]string `json:"parameters,omitempty"`
	Digest     string            `json:"digest"`
	Version    string            `json:"version"`
	SmackLabel string            `json:"smackLabel,omitempty"`
	Missing    []string          `json:"missing,omitempty"`
}

// digestOf is the digest of a profile (enforce/profile.Digest).
func digestOf(encoded []byte) string {
	sum := sha256.Sum256(encoded)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// lastFile is named by what was asked: the reference and each parameter.
func (s *settings) lastFile(q *ask.Question) string {
	text := q.Ref
	for _, name := range slices.Sorted(maps.Keys(q.Parameters)) {
		text += "\x00" + name + "=" + q.Parameters[name]
	}
	sum := sha256.Sum256([]byte(text))
	return filepath.Join(s.State, "last", hex.EncodeToString(sum[:]))
}

// remember keeps an answer, synced: it is for the time after a loss of power too.
// One that is there already costs a look at it.
func (s *settings) remember(q *ask.Question, k *known, encoded []byte) error {
	head, err := json.Marshal(last{q.Ref, q.Parameters, k.Digest, k.Version, k.SmackLabel, k.Missing})
	if err != nil {
		return err
	}
	content := append(append(head, '\n'), encoded...)
	if path := s.lastFile(q); !holds(path, content) {
		return keep(path, content, 0o600, true)
	}
	return nil
}

func (s *settings) forget(q *ask.Question) { _ = os.Remove(s.lastFile(q)) }

// lastKnown gives what policyd said of this question when it was last asked, as
// only root or this user can have written it.
func (s *settings) lastKnown(q *ask.Question) (*known, []byte, error) {
	path := s.lastFile(q)
	f, err := owned.Open(path)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxProfile+maxText))
	if err != nil {
		return nil, nil, err
	}
	head, encoded, ok := bytes.Cut(b, []byte("\n"))
	var l last
	err = json.Unmarshal(head, &l)
	switch {
	case !ok || err != nil || l.Digest != digestOf(encoded):
		return nil, nil, fmt.Errorf("%s is not what it was", path)
	case l.Ref != q.Ref || !maps.Equal(l.Parameters, q.Parameters):
		return nil, nil, errors.New("it is about another question")
	}
	return &known{Digest: l.Digest, Version: l.Version, SmackLabel: l.SmackLabel, Missing: l.Missing, Last: true}, encoded, nil
}
