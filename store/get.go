package store

import (
	"bytes"
	"fmt"
	"slices"

	bolt "go.etcd.io/bbolt"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/internal/errs"
)

// kindBucket gives the bucket of a kind, nil when there is no document of it.
func kindBucket(tx *bolt.Tx, top []byte, kind string) *bolt.Bucket {
	return tx.Bucket(top).Bucket([]byte(kind))
}

// headOf reads the newest version of a document: nil when its name was never used, without digest when it was purged.
func headOf(tx *bolt.Tx, kind, name string) (*apiv1.VersionInfo, error) {
	return infoAt(kindBucket(tx, bucketKeyHeads, kind), []byte(name))
}

func infoAt(b *bolt.Bucket, key []byte) (*apiv1.VersionInfo, error) {
	if b == nil {
		return nil, nil
	}
	value := b.Get(key)
	if value == nil {
		return nil, nil
	}
	info := &apiv1.VersionInfo{}
	return info, unsealMessage(key, value, info)
}

// versionOf reads a version with its content. Errors wrap errs.ErrNotFound.
func versionOf(tx *bolt.Tx, kind, name string, n uint64) (*apiv1.Version, error) {
	key := versionKey(name, n)
	info, err := infoAt(kindBucket(tx, bucketKeyInfos, kind), key)
	if err != nil {
		return nil, err
	}
	if info == nil {
		return nil, fmt.Errorf("%w: %s/%s has no version %d", errs.ErrNotFound, kind, name, n)
	}
	value := kindBucket(tx, bucketKeyContents, kind).Get(key)
	if value == nil {
		return nil, corrupt("version %s has no content", subject(info))
	}
	v := &apiv1.Version{}
	if err := unsealMessage(key, value, v); err != nil {
		return nil, err
	}
	v.Info = info
	return v, nil
}

// resolve finds the version a reference names. A bare name of a deleted document is errs.ErrDeleted; the versions of
// one are still found by number, tag and digest and say that they are deleted.
func resolve(tx *bolt.Tx, kind string, ref Ref) (*apiv1.VersionInfo, error) {
	head, err := headOf(tx, kind, ref.Name)
	if err != nil {
		return nil, err
	}
	if head == nil || head.GetDigest() == "" {
		return nil, fmt.Errorf("%w: %s/%s", errs.ErrNotFound, kind, ref.Name)
	}
	n := ref.Number
	switch {
	case ref.Tag != "":
		n, err = tagOf(tx, kind, ref.Name, ref.Tag)
	case ref.Digest != "":
		n, err = byDigest(tx, kind, ref.Name, ref.Digest)
	case n == 0:
		if head.GetDeleted() {
			return nil, fmt.Errorf("%w: %s/%s (its newest version was %d)", errs.ErrDeleted, kind, ref.Name, head.GetNumber())
		}
		n = head.GetNumber()
	}
	if err != nil {
		return nil, err
	}
	info, err := infoAt(kindBucket(tx, bucketKeyInfos, kind), versionKey(ref.Name, n))
	if err != nil {
		return nil, err
	}
	if info == nil {
		return nil, fmt.Errorf("%w: %s/%s has no version %d (the newest is %d)", errs.ErrNotFound, kind, ref.Name, n, head.GetNumber())
	}
	info.Deleted = head.GetDeleted()
	return info, addTags(tx, info)
}

// byDigest finds the newest version whose digest begins so; versions of different digests must not be meant.
func byDigest(tx *bolt.Tx, kind, name, beginning string) (number uint64, err error) {
	if b := kindBucket(tx, bucketKeyDigests, kind); b != nil {
		digest := ""
		prefix := joinKey(name, beginning)
		c := b.Cursor()
		for k, v := c.Seek(prefix); bytes.HasPrefix(k, prefix); k, v = c.Next() {
			if _, err := unseal(k, v); err != nil {
				return 0, err
			}
			found, n, ok := splitVersionKey(k[len(name)+1:])
			if !ok {
				return 0, corrupt("list of digests holds %q", k)
			}
			if digest != "" && found != digest {
				return 0, fmt.Errorf("%w: more than one version of %s/%s has a digest that begins with %s", errs.ErrInvalid, kind, name, beginning)
			}
			digest, number = found, n
		}
	}
	if number == 0 {
		return 0, fmt.Errorf("%w: %s/%s has no version with a digest that begins with %s", errs.ErrNotFound, kind, name, beginning)
	}
	return number, nil
}

// eachVersion calls fn with the versions of a document, oldest first, as they are stored.
func eachVersion(tx *bolt.Tx, kind, name string, fn func(*apiv1.VersionInfo) error) error {
	b := kindBucket(tx, bucketKeyInfos, kind)
	if b == nil {
		return nil
	}
	prefix := joinKey(name, "")
	c := b.Cursor()
	for k, v := c.Seek(prefix); bytes.HasPrefix(k, prefix); k, v = c.Next() {
		info := &apiv1.VersionInfo{}
		if err := unsealMessage(k, v, info); err != nil {
			return err
		}
		if err := fn(info); err != nil {
			return err
		}
	}
	return nil
}

// Get returns the version a reference names, with its content. Errors wrap errs.ErrInvalid, errs.ErrNotFound or, for
// the bare name of a deleted document, errs.ErrDeleted; other references to one answer with Info.Deleted set.
func (s *Store) Get(kind, ref string) (v *apiv1.Version, err error) {
	r, err := ParseRef(kind, ref)
	if err != nil {
		return nil, err
	}
	err = s.view(func(tx *bolt.Tx) error {
		info, err := resolve(tx, kind, r)
		if err != nil {
			return err
		}
		if v, err = versionOf(tx, kind, r.Name, info.GetNumber()); err != nil {
			return err
		}
		v.Info = info
		return nil
	})
	if err != nil {
		return nil, err
	}
	return v, nil
}

// Info is Get without the content.
func (s *Store) Info(kind, ref string) (info *apiv1.VersionInfo, err error) {
	r, err := ParseRef(kind, ref)
	if err != nil {
		return nil, err
	}
	err = s.view(func(tx *bolt.Tx) (err error) {
		info, err = resolve(tx, kind, r)
		return err
	})
	if err != nil {
		return nil, err
	}
	return info, nil
}

// FragmentByDigest returns the content of a pinned fragment. Errors wrap errs.ErrNotFound when no version pins it.
func (s *Store) FragmentByDigest(digest string) (*apiv1.Fragment, error) {
	if err := checkDigest(digest); err != nil {
		return nil, err
	}
	f := &apiv1.Fragment{}
	err := s.view(func(tx *bolt.Tx) error {
		value := tx.Bucket(bucketKeyPinned).Get([]byte(digest))
		if value == nil {
			return fmt.Errorf("%w: no version pins a fragment with digest %s", errs.ErrNotFound, digest)
		}
		return unsealMessage([]byte(digest), value, f)
	})
	if err != nil {
		return nil, err
	}
	return f, nil
}

// List returns the newest versions of the documents of a kind by ascending name, and the token (Filter.After) of the
// next page, empty when there is none.
func (s *Store) List(kind string, f Filter) (infos []*apiv1.VersionInfo, next string, err error) {
	if err := checkKind(kind); err != nil {
		return nil, "", err
	}
	err = s.view(func(tx *bolt.Tx) error {
		b := kindBucket(tx, bucketKeyHeads, kind)
		if b == nil {
			return nil
		}
		c := b.Cursor()
		k, v := c.First()
		if f.After != "" {
			if k, v = c.Seek([]byte(f.After)); string(k) == f.After {
				k, v = c.Next()
			}
		}
		for ; k != nil; k, v = c.Next() {
			info := &apiv1.VersionInfo{}
			if err := unsealMessage(k, v, info); err != nil {
				return err
			}
			if info.GetDigest() == "" || info.GetDeleted() && !f.Deleted || !hasLabels(info, f.Labels) {
				continue
			}
			if f.Limit > 0 && len(infos) == f.Limit {
				next = infos[len(infos)-1].GetName()
				return nil
			}
			if err := addTags(tx, info); err != nil {
				return err
			}
			infos = append(infos, info)
		}
		return nil
	})
	if err != nil {
		return nil, "", err
	}
	return infos, next, nil
}

func hasLabels(info *apiv1.VersionInfo, labels map[string]string) bool {
	for k, v := range labels {
		if got, ok := info.GetLabels()[k]; !ok || got != v {
			return false
		}
	}
	return true
}

// History returns the versions of a document, newest first: those with numbers below before (0: all), at most limit
// (0: all). Of a deleted document they say so. Errors wrap errs.ErrNotFound when nothing is kept of the document.
func (s *Store) History(kind, name string, before uint64, limit int) (infos []*apiv1.VersionInfo, err error) {
	if err := CheckName(kind, name); err != nil {
		return nil, err
	}
	err = s.view(func(tx *bolt.Tx) error {
		head, err := headOf(tx, kind, name)
		if err != nil {
			return err
		}
		if head == nil || head.GetDigest() == "" {
			return fmt.Errorf("%w: %s/%s", errs.ErrNotFound, kind, name)
		}
		tags, err := tagsOf(tx, kind, name)
		if err != nil {
			return err
		}
		c := kindBucket(tx, bucketKeyInfos, kind).Cursor()
		if before == 0 {
			before = head.GetNumber() + 1
		}
		prefix := joinKey(name, "")
		back := c.Prev // the first step: from the first key at or behind before, or from the end
		if k, _ := c.Seek(versionKey(name, before)); k == nil {
			back = c.Last
		}
		for k, v := back(); bytes.HasPrefix(k, prefix) && (limit <= 0 || len(infos) < limit); k, v = c.Prev() {
			info := &apiv1.VersionInfo{}
			if err := unsealMessage(k, v, info); err != nil {
				return err
			}
			info.Deleted = head.GetDeleted()
			info.Tags = slices.Clone(tags[info.GetNumber()])
			if info.Origin, err = originOf(tx, info); err != nil {
				return err
			}
			infos = append(infos, info)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return infos, nil
}
