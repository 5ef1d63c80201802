package store

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"

	bolt "go.etcd.io/bbolt"

	"policyd.dev/policyd/internal/errs"
)

// Bounds of the cache of compiled profiles.
const (
	maxProfiles     = 1024
	maxProfileBytes = 64 << 20
	maxProfileKey   = 512
)

// CachedProfile returns the encoded profile kept under key. A damaged one is as one that is not there.
func (s *Store) CachedProfile(key string) (profile []byte, ok bool) {
	if key == "" {
		return nil, false
	}
	err := s.view(func(tx *bolt.Tx) error {
		value := tx.Bucket(bucketKeyProfiles).Get([]byte(key))
		if value == nil {
			return nil
		}
		payload, err := unseal([]byte(key), value)
		if err != nil {
			return err
		}
		profile, ok = bytes.Clone(payload), true
		return nil
	})
	return profile, ok && err == nil
}

// CacheProfile keeps an encoded profile under key, dropping the oldest ones beyond 1,024 or 64 MiB. One that is larger
// than a quarter of that is not kept. The cache is no part of the log.
func (s *Store) CacheProfile(key string, profile []byte) error {
	if key == "" || len(key) > maxProfileKey {
		return fmt.Errorf("%w: the key of a profile has 1 to %d bytes, not %d", errs.ErrInvalid, maxProfileKey, len(key))
	}
	if len(profile) > maxProfileBytes/4 {
		return nil
	}
	return s.update(context.Background(), func(t *wtx) error {
		profiles, order := t.bucket(bucketKeyProfiles), t.bucket(bucketKeyProfilesOrder)
		if old := profiles.Get([]byte(key)); old != nil {
			if _, err := unseal([]byte(key), old); err == nil {
				return nil // what a key stands for never changes
			}
			return t.put(profiles, []byte(key), profile)
		}
		if err := t.evictProfiles(len(profile)); err != nil {
			return err
		}
		seq, err := order.NextSequence()
		if err != nil {
			return err
		}
		if err := t.put(order, number(seq), append(number(uint64(len(profile))), key...)); err != nil {
			return err
		}
		return t.put(profiles, []byte(key), profile)
	})
}

// evictProfiles makes room for one profile of size bytes.
func (t *wtx) evictProfiles(size int) error {
	profiles, order := t.bucket(bucketKeyProfiles), t.bucket(bucketKeyProfilesOrder)
	type entry struct{ order, key []byte }
	var entries []entry
	var sizes []uint64
	var total uint64
	err := order.ForEach(func(k, v []byte) error {
		payload, err := unseal(k, v)
		if err != nil {
			return err
		}
		if len(payload) < 8 {
			return corrupt("order of profile %x is cut off", k)
		}
		n := binary.BigEndian.Uint64(payload)
		total += n
		sizes = append(sizes, n)
		entries = append(entries, entry{bytes.Clone(k), bytes.Clone(payload[8:])})
		return nil
	})
	if err != nil {
		return err
	}
	for i, e := range entries {
		if len(entries)-i < maxProfiles && total+uint64(size) <= maxProfileBytes {
			break
		}
		total -= sizes[i]
		if err := t.del(order, e.order); err != nil {
			return err
		}
		if err := t.del(profiles, e.key); err != nil {
			return err
		}
	}
	return nil
}
