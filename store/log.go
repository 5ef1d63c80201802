package store

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"maps"
	"slices"
	"sync"

	bolt "go.etcd.io/bbolt"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
)

// Types of log entries.
const (
	EventApply    = "apply"
	EventRollback = "rollback"
	EventTag      = "tag"
	EventDelete   = "delete"
	EventStart    = "start"
	EventExit     = "exit"
	EventGC       = "gc"
	EventCreate   = "create"
	EventMigrate  = "migrate"
	EventRestore  = "restore"

	EventSmackLoad   = "smack_load"
	EventSmackUnload = "smack_unload"
	EventSmackRevoke = "smack_revoke"

	EventFleetActivate = "fleet_activate"
	EventFleetRefuse   = "fleet_refuse"
	EventFleetFail     = "fleet_fail"
	EventFleetLeave    = "fleet_leave"
	EventFleetHalt     = "fleet_halt"
)

// canonicalEvent is what an entry's hash is taken over, after the hash of the entry before it:
//
//	"policyd-event-1\n"
//	seq, seconds, nanoseconds            8 bytes each, big-endian
//	type, actor, subject, message, request_id    each: length, 8 bytes big-endian, then its bytes
//	number of attributes                 8 bytes, then each key and value, as above, by ascending key
//
// The first entry's previous hash is 32 zero bytes. Hashes are SHA-256.
func canonicalEvent(e *apiv1.Event) []byte {
	b := []byte("policyd-event-1\n")
	num := func(n uint64) { b = binary.BigEndian.AppendUint64(b, n) }
	text := func(s string) {
		num(uint64(len(s)))
		b = append(b, s...)
	}
	num(e.GetSeq())
	num(uint64(e.GetTime().GetSeconds()))
	num(uint64(e.GetTime().GetNanos()))
	for _, s := range []string{e.GetType(), e.GetActor(), e.GetSubject(), e.GetMessage(), e.GetRequestId()} {
		text(s)
	}
	num(uint64(len(e.GetAttributes())))
	for _, k := range slices.Sorted(maps.Keys(e.GetAttributes())) {
		text(k)
		text(e.GetAttributes()[k])
	}
	return b
}

func hashEvent(e *apiv1.Event) []byte {
	h := sha256.New()
	h.Write(e.GetPreviousHash())
	h.Write(canonicalEvent(e))
	return h.Sum(nil)
}

func event(kind string, a Actor, subject string, attributes map[string]string) *apiv1.Event {
	return &apiv1.Event{Type: kind, Actor: a.Name, Subject: subject, Message: a.Message, RequestId: a.RequestID, Attributes: attributes}
}

// logHead reads sequence number and hash of the newest entry: 0 and zeros when there is none.
func logHead(tx *bolt.Tx) (uint64, []byte, error) {
	value := tx.Bucket(bucketKeyMeta).Get(keyLogHead)
	if value == nil {
		return 0, make([]byte, sha256.Size), nil
	}
	payload, err := unseal(keyLogHead, value)
	if err != nil {
		return 0, nil, err
	}
	if len(payload) != 8+sha256.Size {
		return 0, nil, corrupt("head of the log has %d bytes", len(payload))
	}
	return binary.BigEndian.Uint64(payload), bytes.Clone(payload[8:]), nil
}

// log appends entries to the chain. They are filled in: number, time when it is not set, hashes.
func (t *wtx) log(events ...*apiv1.Event) error {
	if len(events) == 0 {
		return nil
	}
	seq, head, err := logHead(t.tx)
	if err != nil {
		return err
	}
	b := t.bucket(bucketKeyLog)
	b.FillPercent = 1 // keys only ever ascend
	for _, e := range events {
		seq++
		e.Seq, e.PreviousHash = seq, head
		if e.GetTime() == nil {
			e.Time = timestamppb.New(t.now)
		}
		e.Hash = hashEvent(e)
		head = e.Hash
		payload, err := marshal(e)
		if err != nil {
			return err
		}
		if err := t.put(b, number(seq), payload); err != nil {
			return err
		}
	}
	return t.put(t.bucket(bucketKeyMeta), keyLogHead, append(number(seq), head...))
}

// Append appends entries to the log. Seq and the hashes are filled in, the time where it is nil; the events given are
// not changed.
func (s *Store) Append(ctx context.Context, events ...*apiv1.Event) error {
	return s.update(ctx, func(t *wtx) error { return t.log(cloneEvents(events)...) })
}

func cloneEvents(events []*apiv1.Event) []*apiv1.Event {
	out := make([]*apiv1.Event, len(events))
	for i, e := range events {
		out[i] = proto.CloneOf(e)
	}
	return out
}

// Events returns entries of the log from number from on (0: the first), at most limit (0: all).
func (s *Store) Events(from uint64, limit int) ([]*apiv1.Event, error) {
	var events []*apiv1.Event
	err := s.view(func(tx *bolt.Tx) error {
		c := tx.Bucket(bucketKeyLog).Cursor()
		for k, v := c.Seek(number(from)); k != nil && (limit <= 0 || len(events) < limit); k, v = c.Next() {
			e := &apiv1.Event{}
			if err := unsealMessage(k, v, e); err != nil {
				return err
			}
			events = append(events, e)
		}
		return nil
	})
	return events, err
}

// LastSeq returns the number of the newest entry of the log.
func (s *Store) LastSeq() (seq uint64, err error) {
	err = s.view(func(tx *bolt.Tx) error {
		seq, _, err = logHead(tx)
		return err
	})
	return seq, err
}

// watchers are the channels to wake after a commit.
type watchers struct {
	mu     sync.Mutex
	chans  map[chan struct{}]struct{}
	closed bool
}

// Watch returns a channel that gets a token after commits (one for many when the reader is slow), and is closed with
// the store; readers read the log anew from where they were. cancel ends it.
func (s *Store) Watch() (wake <-chan struct{}, cancel func()) {
	w := &s.watchers
	c := make(chan struct{}, 1)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		close(c)
		return c, func() {}
	}
	if w.chans == nil {
		w.chans = make(map[chan struct{}]struct{})
	}
	w.chans[c] = struct{}{}
	return c, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.chans, c)
	}
}

func (w *watchers) wake() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for c := range w.chans {
		select {
		case c <- struct{}{}:
		default:
		}
	}
}

func (w *watchers) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	for c := range w.chans {
		close(c)
	}
	w.chans = nil
}
