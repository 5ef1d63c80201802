package smackhost

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"google.golang.org/protobuf/proto"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/internal/errs"
	"policyd.dev/policyd/smack/smackfs"
)

// EarlyFile is the name, in the runtime folder, of what an early load leaves for the daemon.
const EarlyFile = "smack-boot.json"

// maxEarly bounds the file; owned rules of a large policy have some megabytes.
const maxEarly = 256 << 20

// Early is a Store for a load that comes before the daemon: it reads a store that was opened for reading, and keeps what
// is to be written in a file that does not outlive the boot. [AdoptEarly] brings it into the store. So the order that
// makes a change survive being killed is that of the daemon: the intent is in the file before the first write to the kernel.
type Early struct {
	Store
	path  string
	state *apiv1.SmackState // nil: as in the store
	kept  earlyRecord
}

// earlyRecord is the file.
type earlyRecord struct {
	BootID string   `json:"bootID"`
	State  []byte   `json:"state"`  // api SmackState
	Events [][]byte `json:"events"` // api Event, oldest first
}

// NewEarly keeps its file in a folder, which must exist and be the caller's.
func NewEarly(st Store, runtime string) *Early {
	return &Early{Store: st, path: filepath.Join(runtime, EarlyFile)}
}

// SmackState implements [Store].
func (e *Early) SmackState() (*apiv1.SmackState, error) {
	if e.state != nil {
		return proto.CloneOf(e.state), nil
	}
	return e.Store.SmackState()
}

// SetSmackState implements [Store].
func (e *Early) SetSmackState(_ context.Context, st *apiv1.SmackState, events ...*apiv1.Event) error {
	r := e.kept
	r.BootID = smackfs.BootID()
	var err error
	if r.State, err = proto.Marshal(st); err != nil {
		return err
	}
	for _, event := range events {
		b, err := proto.Marshal(event)
		if err != nil {
			return err
		}
		r.Events = append(r.Events, b)
	}
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	// In memory, where there is no power loss to survive: rename alone makes it whole or absent.
	if err := os.WriteFile(e.path+".new", text, 0o600); err != nil {
		return fmt.Errorf("note what is done to smackfs: %w", err)
	}
	if err := os.Rename(e.path+".new", e.path); err != nil {
		return fmt.Errorf("note what is done to smackfs: %w", err)
	}
	e.kept, e.state = r, proto.CloneOf(st)
	return nil
}

// AdoptEarly puts into the store what an early load of this boot has left in the runtime folder, unless the store knows of
// this boot already. It comes before [Manager.Boot], which then finds nothing to change. It tells whether there was any.
func AdoptEarly(ctx context.Context, st Store, runtime string) (bool, error) {
	path := filepath.Join(runtime, EarlyFile)
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if !info.Mode().IsRegular() || info.Size() > maxEarly {
		return false, fmt.Errorf("%w: %s is not what smack-boot leaves", errs.ErrStoreCorrupt, path)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return false, err
	}
	var r earlyRecord
	state := &apiv1.SmackState{}
	err = json.Unmarshal(text, &r)
	if err == nil {
		err = proto.Unmarshal(r.State, state)
	}
	if err != nil {
		return false, fmt.Errorf("%w: %s: %w", errs.ErrStoreCorrupt, path, err)
	}
	have, err := st.SmackState()
	if err != nil {
		return false, err
	}
	if r.BootID != smackfs.BootID() || have.GetBootId() == r.BootID {
		return false, nil
	}
	var events []*apiv1.Event
	for _, b := range r.Events {
		event := &apiv1.Event{}
		if err := proto.Unmarshal(b, event); err != nil {
			return false, fmt.Errorf("%w: %s: %w", errs.ErrStoreCorrupt, path, err)
		}
		events = append(events, event)
	}
	if err := st.SetSmackState(ctx, state, events...); err != nil {
		return false, fmt.Errorf("what was loaded at boot: %w", err)
	}
	return true, nil
}
