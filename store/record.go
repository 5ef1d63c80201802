package store

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"google.golang.org/protobuf/proto"

	"policyd.dev/policyd/internal/errs"
)

// bbolt has checksums on its two meta pages only. So every value is sealed: a flipped bit in a key or a value is found
// when it is read, not acted on.
const (
	recordFormat = 1
	recordHeader = 1 + 4
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func recordSum(key, payload []byte) uint32 {
	return crc32.Update(crc32.Update(0, castagnoli, key), castagnoli, payload)
}

// seal makes the value that is stored under key.
func seal(key, payload []byte) []byte {
	value := make([]byte, recordHeader, recordHeader+len(payload))
	value[0] = recordFormat
	binary.BigEndian.PutUint32(value[1:], recordSum(key, payload))
	return append(value, payload...)
}

// unseal gives the payload of a value; it shares memory with value. Errors wrap errs.ErrStoreCorrupt.
func unseal(key, value []byte) ([]byte, error) {
	if len(value) < recordHeader || value[0] != recordFormat {
		return nil, fmt.Errorf("%w: record %q is not a record of format %d", errs.ErrStoreCorrupt, key, recordFormat)
	}
	payload := value[recordHeader:]
	if binary.BigEndian.Uint32(value[1:]) != recordSum(key, payload) {
		return nil, fmt.Errorf("%w: record %q does not match its checksum", errs.ErrStoreCorrupt, key)
	}
	return payload, nil
}

func marshal(m proto.Message) ([]byte, error) {
	return proto.MarshalOptions{Deterministic: true}.Marshal(m)
}

// unsealMessage decodes the message stored under key into m, which shares no memory with value.
func unsealMessage(key, value []byte, m proto.Message) error {
	payload, err := unseal(key, value)
	if err != nil {
		return err
	}
	if err := proto.Unmarshal(payload, m); err != nil {
		return fmt.Errorf("%w: record %q: %w", errs.ErrStoreCorrupt, key, err)
	}
	return nil
}

func unsealNumber(key, value []byte) (uint64, error) {
	payload, err := unseal(key, value)
	if err != nil {
		return 0, err
	}
	if len(payload) != 8 {
		return 0, fmt.Errorf("%w: record %q holds %d bytes, not a number", errs.ErrStoreCorrupt, key, len(payload))
	}
	return binary.BigEndian.Uint64(payload), nil
}

func number(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }

// joinKey puts 0x00 between parts; no part holds one (names, tags, digests and kinds are checked).
func joinKey(parts ...string) []byte {
	n := len(parts) - 1
	for _, p := range parts {
		n += len(p)
	}
	key := make([]byte, 0, n)
	for i, p := range parts {
		if i > 0 {
			key = append(key, 0)
		}
		key = append(key, p...)
	}
	return key
}

func versionKey(name string, n uint64) []byte {
	key := make([]byte, 0, len(name)+9)
	key = append(key, name...)
	key = append(key, 0)
	return binary.BigEndian.AppendUint64(key, n)
}

func splitVersionKey(key []byte) (name string, n uint64, ok bool) {
	at := len(key) - 9
	if at < 1 || key[at] != 0 {
		return "", 0, false
	}
	return string(key[:at]), binary.BigEndian.Uint64(key[at+1:]), true
}
