package store

import (
	"errors"
	"fmt"
	"strings"

	bolt "go.etcd.io/bbolt"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/internal/errs"
)

// Bindings reads the newest version of every Binding that is not deleted, in the order of names, as of one moment.
func (s *Store) Bindings() (list []*apiv1.Version, err error) {
	err = s.view(func(tx *bolt.Tx) error {
		return eachBinding(tx, func(v *apiv1.Version) error {
			list = append(list, v)
			return nil
		})
	})
	return list, err
}

// eachBinding calls f for the newest version of every Binding.
func eachBinding(tx *bolt.Tx, f func(*apiv1.Version) error) error {
	heads := kindBucket(tx, bucketKeyHeads, KindBinding)
	if heads == nil {
		return nil
	}
	return heads.ForEach(func(key, value []byte) error {
		head := &apiv1.VersionInfo{}
		if err := unsealMessage(key, value, head); err != nil || !alive(head) {
			return err
		}
		v, err := versionOf(tx, KindBinding, head.GetName(), head.GetNumber())
		if err != nil {
			return err
		}
		return f(v)
	})
}

// bindingsOf are the Bindings that name a policy.
func bindingsOf(tx *bolt.Tx, name string) (users []string, err error) {
	err = eachBinding(tx, func(v *apiv1.Version) error {
		if r, err := boundRef(v.GetResource()); err == nil && r.Name == name {
			users = append(users, subject(v.GetInfo()))
		}
		return nil
	})
	return users, err
}

// versionsOfBindings are those that Bindings name now.
func versionsOfBindings(tx *bolt.Tx) (func(*apiv1.VersionInfo) bool, error) {
	used := make(map[string]bool)
	err := eachBinding(tx, func(v *apiv1.Version) error {
		r, err := boundRef(v.GetResource())
		if err != nil {
			return nil //nolint:nilerr // one that names nothing keeps nothing
		}
		info, err := resolve(tx, KindLandlockPolicy, r)
		if err == nil {
			used[string(versionKey(info.GetName(), info.GetNumber()))] = true
		} else if errors.Is(err, errs.ErrNotFound) || errors.Is(err, errs.ErrDeleted) {
			return nil
		}
		return err
	})
	return func(info *apiv1.VersionInfo) bool { return used[string(versionKey(info.GetName(), info.GetNumber()))] }, err
}

func boundRef(r *apiv1.Resource) (Ref, error) {
	return parseRef(KindLandlockPolicy, r.GetBinding().GetSpec().GetPolicy())
}

// checkBound refuses Bindings whose policy is neither there nor among what is stored with them. It is asked in the
// transaction that stores them, so that nobody deletes the policy in between.
func (t *wtx) checkBound(puts []Put) error {
	for _, p := range puts {
		if p.Kind != KindBinding {
			continue
		}
		ref, err := boundRef(p.Resource)
		if err == nil {
			err = t.checkBoundRef(ref, puts)
		}
		if err != nil {
			return fmt.Errorf("%s/%s: policy: %w", p.Kind, p.Name, err)
		}
	}
	return nil
}

func (t *wtx) checkBoundRef(ref Ref, puts []Put) error {
	head, err := headOf(t.tx, KindLandlockPolicy, ref.Name)
	if err != nil {
		return err
	}
	there := alive(head)
	for _, p := range puts {
		if p.Kind != KindLandlockPolicy || p.Name != ref.Name {
			continue
		}
		there = true
		number := head.GetNumber()
		if !alive(head) || head.GetDigest() != p.Digest {
			number++
		}
		if ref == (Ref{Name: ref.Name}) || ref.Number == number || ref.Digest != "" && strings.HasPrefix(p.Digest, ref.Digest) {
			return nil
		}
	}
	info, err := resolve(t.tx, KindLandlockPolicy, ref)
	if err == nil && !there {
		err = fmt.Errorf("%w: %s", errs.ErrDeleted, subject(info))
	}
	return err
}

// checkTagUnbound refuses to take away a tag by which a Binding names a policy.
func (t *wtx) checkTagUnbound(kind, name, tag string) error {
	if kind != KindLandlockPolicy {
		return nil
	}
	return eachBinding(t.tx, func(v *apiv1.Version) error {
		if r, err := boundRef(v.GetResource()); err == nil && r.Name == name && r.Tag == tag {
			return fmt.Errorf("%w: tag %s of %s/%s by %s", errs.ErrReferenced, tag, kind, name, subject(v.GetInfo()))
		}
		return nil
	})
}

// bindings verifies that the policy that each Binding names is there. What cannot be read is told by others.
func (c *checker) bindings() error {
	heads, contents := kindBucket(c.tx, bucketKeyHeads, KindBinding), kindBucket(c.tx, bucketKeyContents, KindBinding)
	return c.each(heads, func(k, _ []byte) {
		head, v := &apiv1.VersionInfo{}, &apiv1.Version{}
		if unsealMessage(k, heads.Get(k), head) != nil || !alive(head) {
			return
		}
		key := versionKey(head.GetName(), head.GetNumber())
		if !has(contents, key) || unsealMessage(key, contents.Get(key), v) != nil {
			return
		}
		ref, err := boundRef(v.GetResource())
		if err != nil {
			c.problem("%s names no policy: %v", subject(head), err)
			return
		}
		_, err = resolve(c.tx, KindLandlockPolicy, ref)
		if policy, e := headOf(c.tx, KindLandlockPolicy, ref.Name); err == nil && e == nil && !alive(policy) {
			err = errs.ErrDeleted
		}
		if errors.Is(err, errs.ErrNotFound) || errors.Is(err, errs.ErrDeleted) {
			c.problem("%s names policy %s: %v", subject(head), ref, err)
		}
	})
}
