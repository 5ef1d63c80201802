package store

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"strings"
	"time"

	bolt "go.etcd.io/bbolt"
	"google.golang.org/protobuf/proto"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/internal/errs"
)

const (
	requestKept  = 24 * time.Hour
	maxRequestID = 128
	// forgetAtOnce is how many old answers each new one may remove, so that they never pile up.
	forgetAtOnce = 16
)

// remembered is the answer of a request with an id:
//
//	unix nanoseconds, 8 bytes big-endian; method, hash: each length (uvarint) and bytes; answer
type remembered struct {
	at     int64
	method string
	hash   []byte
	answer []byte
}

func (r remembered) encode() []byte {
	b := binary.BigEndian.AppendUint64(nil, uint64(r.at))
	b = append(binary.AppendUvarint(b, uint64(len(r.method))), r.method...)
	b = append(binary.AppendUvarint(b, uint64(len(r.hash))), r.hash...)
	return append(b, r.answer...)
}

func decodeRemembered(b []byte) (r remembered, err error) {
	bad := func() (remembered, error) { return remembered{}, corrupt("a remembered answer is cut off") }
	if len(b) < 8 {
		return bad()
	}
	r.at, b = int64(binary.BigEndian.Uint64(b)), b[8:]
	var parts [2][]byte
	for i := range parts {
		n, used := binary.Uvarint(b)
		if used <= 0 || n > uint64(len(b)-used) {
			return bad()
		}
		parts[i], b = b[used:used+int(n)], b[used+int(n):]
	}
	r.method, r.hash, r.answer = string(parts[0]), bytes.Clone(parts[1]), bytes.Clone(b)
	return r, nil
}

func requestKey(a Actor) ([]byte, error) {
	if len(a.RequestID) > maxRequestID || strings.Contains(a.Name, "\x00") {
		return nil, fmt.Errorf("%w: request id has %d bytes, at most %d are allowed", errs.ErrInvalid, len(a.RequestID), maxRequestID)
	}
	return joinKey(a.Name, a.RequestID), nil
}

// recall reads the answer of an earlier request of this id: nil when there is none or it was to be forgotten.
func recall(tx *bolt.Tx, a Actor, method string, now time.Time) ([]byte, error) {
	key, err := requestKey(a)
	if err != nil {
		return nil, err
	}
	value := tx.Bucket(bucketKeyRequests).Get(key)
	if value == nil {
		return nil, nil
	}
	payload, err := unseal(key, value)
	if err != nil {
		return nil, err
	}
	r, err := decodeRemembered(payload)
	if err != nil {
		return nil, err
	}
	if now.Sub(time.Unix(0, r.at)) >= requestKept {
		return nil, nil
	}
	if r.method != method || !bytes.Equal(r.hash, a.RequestHash) {
		return nil, fmt.Errorf("%w: %s", errs.ErrRequestReused, quote(a.RequestID))
	}
	return r.answer, nil
}

// remember keeps an answer for a day and forgets some of those that are older.
func (t *wtx) remember(a Actor, method string, answer []byte) error {
	key, err := requestKey(a)
	if err != nil {
		return err
	}
	requests, byTime := t.bucket(bucketKeyRequests), t.bucket(bucketKeyRequestsByTime)
	forget := func(at int64, key []byte) error {
		if err := t.del(requests, key); err != nil {
			return err
		}
		return t.del(byTime, append(number(uint64(at)), key...))
	}
	if value := requests.Get(key); value != nil { // of an older day, else it had been recalled
		payload, err := unseal(key, value)
		if err != nil {
			return err
		}
		old, err := decodeRemembered(payload)
		if err != nil {
			return err
		}
		if err := forget(old.at, key); err != nil {
			return err
		}
	}
	oldest := t.now.Add(-requestKept).UnixNano()
	for range forgetAtOnce {
		k, _ := byTime.Cursor().First()
		if len(k) < 8 || int64(binary.BigEndian.Uint64(k)) > oldest {
			break
		}
		k = bytes.Clone(k)
		if err := forget(int64(binary.BigEndian.Uint64(k)), k[8:]); err != nil {
			return err
		}
	}
	r := remembered{at: t.now.UnixNano(), method: method, hash: a.RequestHash, answer: answer}
	if err := t.put(requests, key, r.encode()); err != nil {
		return err
	}
	return t.put(byTime, append(number(uint64(r.at)), key...), nil)
}

// once runs fn unless the request was answered before; both answer alike. Without a request id it always runs fn.
func (t *wtx) once(a Actor, method string, fn func() (*apiv1.ApplyResponse, error)) (*apiv1.ApplyResponse, error) {
	if a.RequestID == "" {
		return fn()
	}
	old, err := recall(t.tx, a, method, t.now)
	if err != nil {
		return nil, err
	}
	if old != nil {
		answer := &apiv1.ApplyResponse{}
		if err := proto.Unmarshal(old, answer); err != nil {
			return nil, corrupt("answer of request %s: %v", quote(a.RequestID), err)
		}
		return answer, nil
	}
	answer, err := fn()
	if err != nil {
		return nil, err
	}
	encoded, err := marshal(answer)
	if err != nil {
		return nil, err
	}
	return answer, t.remember(a, method, encoded)
}

// Recall returns the answer remembered for a request of this actor, id and method: nil when there is none. It is for
// requests whose effect is not a method of the store (a start). Errors wrap errs.ErrRequestReused.
func (s *Store) Recall(a Actor, method string) (answer []byte, err error) {
	if a.RequestID == "" {
		return nil, nil
	}
	err = s.view(func(tx *bolt.Tx) (err error) {
		answer, err = recall(tx, a, method, s.options.Now())
		return err
	})
	return answer, err
}

// Remember keeps the answer (not empty) of a request for a day. When one of another content is kept already the error
// wraps errs.ErrRequestReused.
func (s *Store) Remember(ctx context.Context, a Actor, method string, answer []byte) error {
	if a.RequestID == "" {
		return nil
	}
	return s.update(ctx, func(t *wtx) error {
		old, err := recall(t.tx, a, method, t.now)
		if err != nil || old != nil {
			return err
		}
		return t.remember(a, method, answer)
	})
}
