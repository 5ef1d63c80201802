package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	bolt "go.etcd.io/bbolt"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/internal/errs"
)

// tagsOf reads the tags of a document by the number of the version they point at, each list ascending.
func tagsOf(tx *bolt.Tx, kind, name string) (map[uint64][]string, error) {
	b := kindBucket(tx, bucketKeyTags, kind)
	if b == nil {
		return nil, nil
	}
	var tags map[uint64][]string
	prefix := joinKey(name, "")
	c := b.Cursor()
	for k, v := c.Seek(prefix); bytes.HasPrefix(k, prefix); k, v = c.Next() {
		n, err := unsealNumber(k, v)
		if err != nil {
			return nil, err
		}
		if tags == nil {
			tags = make(map[uint64][]string)
		}
		tags[n] = append(tags[n], string(k[len(prefix):]))
	}
	return tags, nil
}

// addTags fills in the tags that point at a version, and whether it comes from the fleet's channel.
func addTags(tx *bolt.Tx, info *apiv1.VersionInfo) error {
	tags, err := tagsOf(tx, info.GetKind(), info.GetName())
	if err != nil {
		return err
	}
	info.Tags = tags[info.GetNumber()]
	info.Origin, err = originOf(tx, info)
	return err
}

// tagOf reads the number of the version a tag points at. Errors wrap errs.ErrNotFound.
func tagOf(tx *bolt.Tx, kind, name, tag string) (uint64, error) {
	key := joinKey(name, tag)
	if b := kindBucket(tx, bucketKeyTags, kind); b != nil {
		if value := b.Get(key); value != nil {
			return unsealNumber(key, value)
		}
	}
	return 0, fmt.Errorf("%w: %s/%s has no tag %s", errs.ErrNotFound, kind, name, tag)
}

// SetTag points a tag at the version ref names, moving it when it is there, or removes it (ref is then the name alone).
// expect is the number the tag points at now (nil: any; 0: there is no such tag). It returns the version the tag points
// at, or pointed at. Errors wrap errs.ErrInvalid, errs.ErrNotFound, errs.ErrDeleted, errs.ErrVersionMismatch,
// errs.ErrFromChannel, errs.ErrReferenced for a tag by which a Binding names its policy.
func (s *Store) SetTag(ctx context.Context, a Actor, kind, ref, tag string, remove bool, expect *uint64) (*apiv1.VersionInfo, error) {
	r, err := ParseRef(kind, ref)
	if err != nil {
		return nil, err
	}
	if err := CheckTag(tag); err != nil {
		return nil, err
	}
	if remove {
		if r != (Ref{Name: r.Name}) {
			return nil, fmt.Errorf("%w: to remove a tag, give the name alone, not %s", errs.ErrInvalid, quote(ref))
		}
		r.Tag = tag
	}
	return s.updateInfo(ctx, a, "tag", func(t *wtx) (*apiv1.VersionInfo, error) {
		info, err := resolve(t.tx, kind, r)
		if err != nil {
			return nil, err
		}
		key := joinKey(r.Name, tag)
		old, err := tagOf(t.tx, kind, r.Name, tag)
		if err != nil && !errors.Is(err, errs.ErrNotFound) {
			return nil, err
		}
		if err := checkExpectTag(old, kind, r.Name, tag, expect); err != nil {
			return nil, err
		}
		if old == info.GetNumber() && !remove {
			return info, nil
		}
		if err := checkFleet(t.tx, kind, r.Name, false); err != nil {
			return nil, err
		}
		if remove {
			if err := t.checkTagUnbound(kind, r.Name, tag); err != nil {
				return nil, err
			}
		}
		b, err := t.kind(bucketKeyTags, kind)
		if err != nil {
			return nil, err
		}
		attributes := map[string]string{"tag": tag}
		if remove {
			attributes["removed"] = "true"
			err = t.del(b, key)
		} else {
			err = t.put(b, key, number(info.GetNumber()))
		}
		if err != nil {
			return nil, err
		}
		return info, t.log(event(EventTag, a, subject(info), attributes))
	})
}

// checkExpectTag compares the number a tag points at (0: no tag) with the one a writer expects (nil: any).
func checkExpectTag(now uint64, kind, name, tag string, expect *uint64) error {
	switch {
	case expect == nil || *expect == now:
		return nil
	case now == 0:
		return fmt.Errorf("%w: %s/%s has no tag %s, expected it at version %d", errs.ErrVersionMismatch, kind, name, tag, *expect)
	case *expect == 0:
		return fmt.Errorf("%w: %s/%s has a tag %s already, at version %d", errs.ErrVersionMismatch, kind, name, tag, now)
	}
	return fmt.Errorf("%w: tag %s of %s/%s is at version %d, expected %d", errs.ErrVersionMismatch, tag, kind, name, now, *expect)
}
