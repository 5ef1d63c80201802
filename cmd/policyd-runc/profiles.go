package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/enforce/profile"
	"policyd.dev/policyd/internal/cli"
)

// patience bounds the question to policyd; engines wait a few seconds longer.
const patience = 10 * time.Second

// known is a profile that is there as a file.
type known struct {
	Digest  string `json:"digest"`
	Version string `json:"version"` // NAME@NUMBER
	// SmackLabel is that of the container's processes, "" for none.
	SmackLabel string `json:"smackLabel,omitempty"`

	file string
}

// profile asks policyd for a profile and keeps it as a file. One by Bindings is
// never one from earlier: which it was depended on all that was known then.
func (s *settings) profile(q *apiv1.GetProfileRequest) (*known, error) {
	ref := q.GetRef()
	res, err := s.ask(q)
	switch code := status.Code(err); {
	case err == nil:
	case s.Unreachable == "last-known" && ref != "" && (code == codes.Unavailable || code == codes.DeadlineExceeded):
		k, err2 := s.lastKnown(q)
		if err2 != nil {
			return nil, fmt.Errorf("%s; and none is known from earlier: %w", status.Convert(err).Message(), err2)
		}
		return k, nil
	default:
		return nil, errors.New(status.Convert(err).Message()) // without gRPC's own words
	}
	if why := res.GetSmackError(); why != "" {
		return nil, fmt.Errorf("its Smack label %s: %s", res.GetSmackLabel(), why)
	}
	encoded := res.GetProfile()
	if len(encoded) == 0 {
		return nil, errors.New("this kernel can enforce nothing of it")
	}
	if profile.Digest(encoded) != res.GetProfileDigest() {
		return nil, errors.New("policyd's answer does not match its digest")
	}
	k := &known{Digest: res.GetProfileDigest(), Version: fmt.Sprintf("%s@%d", res.GetVersion().GetName(), res.GetVersion().GetNumber()), SmackLabel: res.GetSmackLabel()}
	k.file = s.profileFile(k.Digest)
	if have, err := os.ReadFile(k.file); err != nil || !bytes.Equal(have, encoded) {
		if err := keep(k.file, encoded); err != nil {
			return nil, fmt.Errorf("keep it: %w", err)
		}
	}
	if s.Unreachable == "last-known" && ref != "" {
		text, err := json.Marshal(k)
		if err == nil {
			err = keep(s.lastFile(q), text)
		}
		if err != nil {
			return nil, fmt.Errorf("keep it: %w", err)
		}
	}
	return k, nil
}

func (s *settings) ask(q *apiv1.GetProfileRequest) (*apiv1.GetProfileResponse, error) {
	c, err := cli.Dial(s.Socket)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return c.Profiles.GetProfile(ctx, q)
}

// lastKnown gives what policyd said of this reference when it was last asked.
func (s *settings) lastKnown(q *apiv1.GetProfileRequest) (*known, error) {
	text, err := os.ReadFile(s.lastFile(q))
	if err != nil {
		return nil, err
	}
	k := &known{}
	if err := json.Unmarshal(text, k); err != nil {
		return nil, err
	}
	k.file = s.profileFile(k.Digest)
	encoded, err := os.ReadFile(k.file)
	if err != nil {
		return nil, err
	}
	if profile.Digest(encoded) != k.Digest {
		return nil, fmt.Errorf("%s is not what it was", k.file)
	}
	return k, nil
}

// profileFile is named by the digest, so that containers of one profile share it.
func (s *settings) profileFile(digest string) string {
	return filepath.Join(s.State, "profiles", strings.ReplaceAll(digest, ":", "-"))
}

// lastFile is named by what was asked: the reference and each parameter.
func (s *settings) lastFile(q *apiv1.GetProfileRequest) string {
	text := q.GetRef()
	for _, name := range slices.Sorted(maps.Keys(q.GetParameters())) {
		text += "\x00" + name + "=" + q.GetParameters()[name]
	}
	sum := sha256.Sum256([]byte(text))
	return filepath.Join(s.State, "last", hex.EncodeToString(sum[:]))
}

// keep writes a file whole, for everybody to read: a container's user must.
func keep(path string, content []byte) error {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, ".new-*")
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	err = errors.Join(err, f.Chmod(0o444), f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		os.Remove(f.Name())
	}
	return err
}
