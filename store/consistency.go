package store

import (
	"bytes"
	"encoding/binary"

	bolt "go.etcd.io/bbolt"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
)

// each calls fn with every record of a bucket (nil: none) whose seal is good; the others are reported already.
func (c *checker) each(b *bolt.Bucket, fn func(key, payload []byte)) error {
	if b == nil {
		return nil
	}
	return b.ForEach(func(k, v []byte) error {
		if err := c.ctx.Err(); err != nil {
			return err
		}
		if v == nil {
			return nil
		}
		if payload, err := unseal(k, v); err == nil {
			fn(k, payload)
		}
		return nil
	})
}

func has(b *bolt.Bucket, key []byte) bool { return b != nil && b.Get(key) != nil }

// documents verifies that heads, versions, contents, tags and digests agree.
func (c *checker) documents() error {
	for _, kind := range Kinds() {
		heads, infos := kindBucket(c.tx, bucketKeyHeads, kind), kindBucket(c.tx, bucketKeyInfos, kind)
		contents, tags := kindBucket(c.tx, bucketKeyContents, kind), kindBucket(c.tx, bucketKeyTags, kind)
		newest := make(map[string]*apiv1.VersionInfo)
		err := c.each(heads, func(k, _ []byte) {
			head := &apiv1.VersionInfo{}
			if err := unsealMessage(k, heads.Get(k), head); err != nil {
				c.problem("head of %s/%s: %v", kind, k, err)
				return
			}
			newest[string(k)] = head
			if head.GetKind() != kind || head.GetName() != string(k) || head.GetNumber() == 0 {
				c.problem("head of %s/%s says that it is %s", kind, k, subject(head))
			}
			if head.GetDigest() != "" && !has(infos, versionKey(string(k), head.GetNumber())) {
				c.problem("newest version %s is missing", subject(head))
			}
		})
		if err != nil {
			return err
		}
		err = c.each(infos, func(k, _ []byte) {
			info := &apiv1.VersionInfo{}
			name, n, ok := splitVersionKey(k)
			if err := unsealMessage(k, infos.Get(k), info); err != nil || !ok {
				c.problem("version %s/%q: %v", kind, k, err)
				return
			}
			if info.GetKind() != kind || info.GetName() != name || info.GetNumber() != n {
				c.problem("version %s/%s@%d says that it is %s", kind, name, n, subject(info))
			}
			if head := newest[name]; head == nil || head.GetDigest() == "" || head.GetNumber() < n ||
				head.GetNumber() == n && head.GetDigest() != info.GetDigest() {
				c.problem("version %s does not agree with the head of its document", subject(info))
			}
			if !has(contents, k) {
				c.problem("version %s has no content", subject(info))
			}
			for _, pin := range info.GetPins() {
				if !has(c.tx.Bucket(bucketKeyPinRefs), pinRefKey(pin.GetDigest(), info)) || !has(c.tx.Bucket(bucketKeyPinned), []byte(pin.GetDigest())) {
					c.problem("version %s includes %s %s, whose content is not kept", subject(info), pin.GetName(), pin.GetDigest())
				}
			}
		})
		if err != nil {
			return err
		}
		if err := c.digests(kind, infos); err != nil {
			return err
		}
		err = c.each(contents, func(k, _ []byte) {
			v := &apiv1.Version{}
			name, n, ok := splitVersionKey(k)
			if err := unsealMessage(k, contents.Get(k), v); err != nil || !ok || metadataOf(v.GetResource(), kind).GetName() != name {
				c.problem("content %s/%q is not a document of that name (%v)", kind, k, err)
			} else if !has(infos, k) {
				c.problem("content %s/%s@%d is of no version", kind, name, n)
			}
		})
		if err != nil {
			return err
		}
		err = c.each(tags, func(k, payload []byte) {
			name, tag, ok := bytes.Cut(k, []byte{0})
			if !ok || len(payload) != 8 {
				c.problem("tag %s/%q is not a tag", kind, k)
			} else if n := binary.BigEndian.Uint64(payload); !has(infos, versionKey(string(name), n)) {
				c.problem("tag %s/%s@%s points at version %d, which is missing", kind, name, tag, n)
			}
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// digests verifies that versions are listed by their digests, once each.
func (c *checker) digests(kind string, infos *bolt.Bucket) error {
	if c.schema < 2 {
		return nil
	}
	n := 0
	listed := kindBucket(c.tx, bucketKeyDigests, kind)
	err := c.each(infos, func(k, _ []byte) {
		info := &apiv1.VersionInfo{}
		if unsealMessage(k, infos.Get(k), info) == nil && has(listed, digestKey(info)) {
			n++
		} else {
			c.problem("version %s/%q is not listed by its digest", kind, k)
		}
	})
	if err != nil {
		return err
	}
	err = c.each(listed, func([]byte, []byte) { n-- })
	if n != 0 {
		c.problem("versions of %s and their list by digest differ by %d", kind, n)
	}
	return err
}

// pins verifies that every pinned content is a fragment that a version pins, and every reference is of a version.
func (c *checker) pins() error {
	pinned := c.tx.Bucket(bucketKeyPinned)
	err := c.each(pinned, func(k, _ []byte) {
		if err := unsealMessage(k, pinned.Get(k), &apiv1.Fragment{}); err != nil {
			c.problem("pinned content %s: %v", k, err)
		}
		if !isPinned(c.tx, string(k)) {
			c.problem("pinned content %s is pinned by no version", k)
		}
	})
	if err != nil {
		return err
	}
	return c.each(c.tx.Bucket(bucketKeyPinRefs), func(k, _ []byte) {
		digest, rest, ok := bytes.Cut(k, []byte{0})
		kind, version, ok2 := bytes.Cut(rest, []byte{0})
		if !ok || !ok2 || !has(kindBucket(c.tx, bucketKeyInfos, string(kind)), version) || !has(pinned, digest) {
			c.problem("reference %q to a pinned content is of no version or to no content", k)
		}
	})
}

// requests verifies that remembered answers decode and are listed by time, once each.
func (c *checker) requests() error {
	requests, byTime := c.tx.Bucket(bucketKeyRequests), c.tx.Bucket(bucketKeyRequestsByTime)
	n := 0
	err := c.each(requests, func(k, payload []byte) {
		n++
		r, err := decodeRemembered(payload)
		if err != nil {
			c.problem("request %q: %v", k, err)
		} else if !has(byTime, append(number(uint64(r.at)), k...)) {
			c.problem("request %q is not listed by its time", k)
		}
	})
	if err != nil {
		return err
	}
	err = c.each(byTime, func([]byte, []byte) { n-- })
	if n != 0 {
		c.problem("requests and their list by time differ by %d", n)
	}
	return err
}

// profiles verifies that cached profiles are listed by age, once each.
func (c *checker) profiles() error {
	profiles := c.tx.Bucket(bucketKeyProfiles)
	n := 0
	err := c.each(c.tx.Bucket(bucketKeyProfilesOrder), func(k, payload []byte) {
		n++
		if len(payload) < 8 || !has(profiles, payload[8:]) {
			c.problem("cached profile number %x is missing", k)
		}
	})
	if err != nil {
		return err
	}
	err = c.each(profiles, func([]byte, []byte) { n-- })
	if n != 0 {
		c.problem("cached profiles and their list by age differ by %d", n)
	}
	return err
}

// sandboxes verifies that the records decode and are of their key.
func (c *checker) sandboxes() error {
	b := c.tx.Bucket(bucketKeySandboxes)
	return c.each(b, func(k, _ []byte) {
		sb := &apiv1.Sandbox{}
		if err := unsealMessage(k, b.Get(k), sb); err != nil {
			c.problem("sandbox %q: %v", k, err)
		} else if sb.GetId() != string(k) {
			c.problem("sandbox %q says that it is %q", k, sb.GetId())
		}
	})
}

// smack verifies that the state of the host's smackfs decodes and that the versions it names are there.
func (c *checker) smack() error {
	st, err := smackState(c.tx)
	if err != nil {
		c.problem("state of smackfs: %v", err)
		return nil
	}
	for _, ref := range smackRefs(st) {
		if !has(kindBucket(c.tx, bucketKeyInfos, KindSmackPolicy), versionKey(ref.Name, ref.Number)) {
			c.problem("state of smackfs names %s/%s, which is missing", KindSmackPolicy, ref)
		}
	}
	return nil
}
