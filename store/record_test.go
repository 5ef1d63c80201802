package store

import (
	"bytes"
	"errors"
	"testing"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/internal/errs"
)

func TestSealFindsEveryFlippedBit(t *testing.T) {
	key, payload := []byte("web\x00\x00\x00\x00\x00\x00\x00\x00\x01"), []byte("what was decided")
	value := seal(key, payload)
	if got, err := unseal(key, value); err != nil || !bytes.Equal(got, payload) {
		t.Fatalf("%q %v", got, err)
	}
	for _, b := range [][]byte{key, value} {
		for i := range b {
			for bit := range 8 {
				b[i] ^= 1 << bit
				if _, err := unseal(key, value); !errors.Is(err, errs.ErrStoreCorrupt) {
					t.Errorf("bit %d of byte %d: %v", bit, i, err)
				}
				b[i] ^= 1 << bit
			}
		}
	}
	for n := range value {
		if _, err := unseal(key, value[:n]); !errors.Is(err, errs.ErrStoreCorrupt) {
			t.Errorf("cut to %d bytes: %v", n, err)
		}
	}
}

func FuzzRecords(f *testing.F) {
	info, err := marshal(&apiv1.VersionInfo{Kind: KindLandlockPolicy, Name: "web", Number: 3})
	if err != nil {
		f.Fatal(err)
	}
	f.Add([]byte("web"), seal([]byte("web"), info))
	f.Add([]byte("web"), seal([]byte("web"), number(7)))
	f.Add([]byte("k"), seal([]byte("k"), remembered{1, "apply", []byte("h"), []byte("answer")}.encode()))
	f.Add([]byte{}, []byte{recordFormat})
	f.Fuzz(func(t *testing.T, key, value []byte) {
		corruptOrNil := func(err error) bool {
			if err != nil && !errors.Is(err, errs.ErrStoreCorrupt) {
				t.Errorf("error %v", err)
			}
			return err == nil
		}
		payload, err := unseal(key, value)
		if corruptOrNil(err) && !bytes.Equal(seal(key, payload), value) {
			t.Errorf("value %x is sealed as %x", value, seal(key, payload))
		}
		// The fuzzer does not find checksums: what lies under a good seal is tried too.
		sealed := seal(key, value)
		corruptOrNil(unsealMessage(key, sealed, &apiv1.Version{}))
		corruptOrNil(unsealMessage(key, sealed, &apiv1.Event{}))
		n, err := unsealNumber(key, sealed)
		if corruptOrNil(err) && !bytes.Equal(number(n), value) {
			t.Errorf("number %d of %x", n, value)
		}
		if r, err := decodeRemembered(value); corruptOrNil(err) {
			if again, err := decodeRemembered(r.encode()); err != nil || again.method != r.method || !bytes.Equal(again.answer, r.answer) || again.at != r.at {
				t.Errorf("answer %+v is read as %+v %v", r, again, err)
			}
		}
		if name, n, ok := splitVersionKey(key); ok && !bytes.Equal(versionKey(name, n), key) {
			t.Errorf("key %x is %s@%d", key, name, n)
		}
	})
}
