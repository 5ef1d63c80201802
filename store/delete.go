package store

import (
	"bytes"
	"context"
	"fmt"
	"strings"

	bolt "go.etcd.io/bbolt"
	"google.golang.org/protobuf/proto"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/internal/errs"
)

// Delete removes a document; its history is kept and its numbers go on when it is applied again. purge removes the
// history too (also of a document deleted before), and still no number is given twice.
//
// Errors wrap errs.ErrReferenced while the newest version of another document includes the fragment, or a sandbox of
// the policy is alive, a Binding names it, or the host's smackfs holds it; errs.ErrNotFound, errs.ErrDeleted, errs.ErrVersionMismatch; errs.ErrFromChannel.
func (s *Store) Delete(ctx context.Context, a Actor, kind, name string, expect *uint64, purge bool) error {
	if err := CheckName(kind, name); err != nil {
		return err
	}
	_, err := s.updateInfo(ctx, a, "delete", func(t *wtx) (*apiv1.VersionInfo, error) {
		return nil, t.delete(a, kind, name, expect, purge)
	})
	return err
}

func (t *wtx) delete(a Actor, kind, name string, expect *uint64, purge bool) error {
	head, err := headOf(t.tx, kind, name)
	if err != nil {
		return err
	}
	if head == nil || head.GetDigest() == "" {
		return fmt.Errorf("%w: %s/%s", errs.ErrNotFound, kind, name)
	}
	if head.GetDeleted() && !purge {
		return fmt.Errorf("%w: %s/%s", errs.ErrDeleted, kind, name)
	}
	newest := proto.CloneOf(head)
	newest.Deleted = false // of what was deleted, the number that its history ends with is expected
	if err := checkExpect(newest, kind, name, expect); err != nil {
		return err
	}
	if err := checkFleet(t.tx, kind, name, true); err != nil {
		return err
	}
	users, err := usersOf(t.tx, kind, name)
	if err != nil {
		return err
	}
	if len(users) > 0 {
		const most = 5
		more := ""
		if len(users) > most {
			more = fmt.Sprintf(" and %d more", len(users)-most)
			users = users[:most]
		}
		return fmt.Errorf("%w: %s/%s by %s%s", errs.ErrReferenced, kind, name, strings.Join(users, ", "), more)
	}
	attributes := map[string]string{}
	heads, err := t.kind(bucketKeyHeads, kind)
	if err != nil {
		return err
	}
	what := subject(head)
	head.Deleted = true
	if purge {
		attributes["purged"] = "true"
		if err := t.purge(kind, name); err != nil {
			return err
		}
		head = &apiv1.VersionInfo{Kind: kind, Name: name, Number: head.GetNumber(), Deleted: true}
	}
	if err := t.putMessage(heads, []byte(name), head); err != nil {
		return err
	}
	return t.log(event(EventDelete, a, what, attributes))
}

// purge removes all versions and tags of a document.
func (t *wtx) purge(kind, name string) error {
	var versions []*apiv1.VersionInfo
	err := eachVersion(t.tx, kind, name, func(info *apiv1.VersionInfo) error {
		versions = append(versions, info)
		return nil
	})
	if err != nil {
		return err
	}
	for _, info := range versions {
		if err := t.removeVersion(info); err != nil {
			return err
		}
	}
	tags, err := tagsOf(t.tx, kind, name)
	if err != nil {
		return err
	}
	for _, list := range tags {
		for _, tag := range list {
			if err := t.del(kindBucket(t.tx, bucketKeyTags, kind), joinKey(name, tag)); err != nil {
				return err
			}
		}
	}
	return nil
}

// removeVersion removes a version, and the pinned contents that no other version pins.
func (t *wtx) removeVersion(info *apiv1.VersionInfo) error {
	key := versionKey(info.GetName(), info.GetNumber())
	for _, top := range [][]byte{bucketKeyInfos, bucketKeyContents} {
		if err := t.del(kindBucket(t.tx, top, info.GetKind()), key); err != nil {
			return err
		}
	}
	if err := t.del(kindBucket(t.tx, bucketKeyDigests, info.GetKind()), digestKey(info)); err != nil {
		return err
	}
	refs := t.bucket(bucketKeyPinRefs)
	for _, pin := range info.GetPins() {
		if err := t.del(refs, pinRefKey(pin.GetDigest(), info)); err != nil {
			return err
		}
		if !isPinned(t.tx, pin.GetDigest()) {
			if err := t.del(t.bucket(bucketKeyPinned), []byte(pin.GetDigest())); err != nil {
				return err
			}
		}
	}
	return nil
}

// isPinned tells whether a version pins the fragment content of that digest.
func isPinned(tx *bolt.Tx, digest string) bool {
	prefix := joinKey(digest, "")
	k, _ := tx.Bucket(bucketKeyPinRefs).Cursor().Seek(prefix)
	return bytes.HasPrefix(k, prefix)
}

// GC removes versions that nothing needs: older than the newest Options.KeepVersions of their document, without a tag,
// recorded by no sandbox, not in the host's smackfs or the fleet's bundle, and (fragments) pinned by no version. It returns how many.
func (s *Store) GC(ctx context.Context, a Actor) (removed int, err error) {
	err = s.update(ctx, func(t *wtx) error {
		removed = 0
		ofFleet, err := versionsOfFleet(t.tx)
		if err != nil {
			return err
		}
		for _, kind := range kinds {
			needed := func(*apiv1.VersionInfo) bool { return false }
			if kind.needed != nil {
				if needed, err = kind.needed(t.tx); err != nil {
					return err
				}
			}
			victims, err := gcVictims(t.tx, kind.name, uint64(s.options.KeepVersions), func(info *apiv1.VersionInfo) bool { return needed(info) || ofFleet(info) })
			if err != nil {
				return err
			}
			for _, info := range victims {
				if err := t.removeVersion(info); err != nil {
					return err
				}
			}
			removed += len(victims)
		}
		if removed == 0 {
			return nil
		}
		return t.log(event(EventGC, a, "store", map[string]string{"versions": fmt.Sprint(removed)}))
	})
	return removed, err
}

// gcVictims finds the versions of a kind that GC removes.
func gcVictims(tx *bolt.Tx, kind string, keep uint64, needed func(*apiv1.VersionInfo) bool) ([]*apiv1.VersionInfo, error) {
	heads := kindBucket(tx, bucketKeyHeads, kind)
	if heads == nil {
		return nil, nil
	}
	var victims []*apiv1.VersionInfo
	err := heads.ForEach(func(k, _ []byte) error {
		name := string(k)
		tags, err := tagsOf(tx, kind, name)
		if err != nil {
			return err
		}
		var versions []*apiv1.VersionInfo
		if err := eachVersion(tx, kind, name, func(info *apiv1.VersionInfo) error {
			versions = append(versions, info)
			return nil
		}); err != nil {
			return err
		}
		for i, info := range versions {
			if uint64(len(versions)-i) > keep && len(tags[info.GetNumber()]) == 0 && !needed(info) {
				victims = append(victims, info)
			}
		}
		return nil
	})
	return victims, err
}
