package store

import (
	"context"
	"fmt"

	bolt "go.etcd.io/bbolt"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/internal/errs"
)

// Apply stores documents as new versions, all or none, in one transaction. A document whose digest is that of its
// newest version makes no new one. Results are in the order of puts.
//
// Errors wrap errs.ErrInvalid, errs.ErrVersionMismatch, errs.ErrRequestReused, errs.ErrFromChannel or one of the store's; for a Binding
// whose policy is not there errs.ErrNotFound or errs.ErrDeleted.
func (s *Store) Apply(ctx context.Context, a Actor, puts []Put) ([]Applied, error) {
	if err := checkPuts(puts); err != nil {
		return nil, err
	}
	var answer *apiv1.ApplyResponse
	err := s.update(ctx, func(t *wtx) (err error) {
		answer, err = t.once(a, "apply", func() (*apiv1.ApplyResponse, error) { return t.apply(a, puts) })
		return err
	})
	if err != nil {
		return nil, err
	}
	applied := make([]Applied, len(answer.GetResults()))
	for i, r := range answer.GetResults() {
		applied[i] = Applied{Info: r.GetVersion(), Outcome: r.GetOutcome()}
	}
	return applied, nil
}

func checkPuts(puts []Put) error {
	seen := make(map[[2]string]bool, len(puts))
	for _, p := range puts {
		if err := CheckName(p.Kind, p.Name); err != nil {
			return err
		}
		id := [2]string{p.Kind, p.Name}
		if seen[id] {
			return fmt.Errorf("%w: %s/%s is given twice", errs.ErrInvalid, p.Kind, p.Name)
		}
		seen[id] = true
		meta := metadataOf(p.Resource, p.Kind)
		if meta.GetName() != p.Name {
			return fmt.Errorf("%w: %s/%s: the document is not of this kind and name", errs.ErrInvalid, p.Kind, p.Name)
		}
		if err := checkDigest(p.Digest); err != nil {
			return fmt.Errorf("%s/%s: %w", p.Kind, p.Name, err)
		}
		for _, pin := range p.Pins {
			if err := CheckName(KindFragment, pin.GetName()); err != nil {
				return fmt.Errorf("%s/%s: pin: %w", p.Kind, p.Name, err)
			}
			if err := checkDigest(pin.GetDigest()); err != nil {
				return fmt.Errorf("%s/%s: pin %s: %w", p.Kind, p.Name, pin.GetName(), err)
			}
		}
	}
	return nil
}

// applicable gives the heads of what puts are to follow, or the reason why one of them may not.
func (t *wtx) applicable(puts []Put) ([]*apiv1.VersionInfo, error) {
	heads := make([]*apiv1.VersionInfo, len(puts))
	for i, p := range puts {
		head, err := headOf(t.tx, p.Kind, p.Name)
		if err != nil {
			return nil, err
		}
		if err := checkExpect(head, p.Kind, p.Name, p.Expect); err != nil {
			return nil, err
		}
		for _, pin := range p.Pins {
			if p.PinContents[pin.GetDigest()] == nil && t.bucket(bucketKeyPinned).Get([]byte(pin.GetDigest())) == nil {
				return nil, fmt.Errorf("%w: %s/%s pins %s %s, whose content was not given", errs.ErrInvalid, p.Kind, p.Name, pin.GetName(), pin.GetDigest())
			}
		}
		heads[i] = head
	}
	return heads, t.checkBound(puts)
}

func (t *wtx) apply(a Actor, puts []Put) (*apiv1.ApplyResponse, error) {
	if err := t.checkFleetPuts(puts); err != nil {
		return nil, err
	}
	heads, err := t.applicable(puts) // all refusals before the first write
	if err != nil {
		return nil, err
	}
	answer := &apiv1.ApplyResponse{}
	for i, p := range puts {
		info, outcome := heads[i], apiv1.ApplyResponse_OUTCOME_UNCHANGED
		if !alive(info) || info.GetDigest() != p.Digest {
			outcome = apiv1.ApplyResponse_OUTCOME_CHANGED
			if !alive(info) {
				outcome = apiv1.ApplyResponse_OUTCOME_CREATED
			}
			if info, err = t.addVersion(a, info, p); err != nil {
				return nil, err
			}
			if err := t.log(event(EventApply, a, subject(info), map[string]string{"digest": info.GetDigest()})); err != nil {
				return nil, err
			}
		}
		if err := addTags(t.tx, info); err != nil {
			return nil, err
		}
		answer.Results = append(answer.Results, &apiv1.ApplyResponse_Result{Version: info, Outcome: outcome})
	}
	return answer, nil
}

// addVersion writes p as the version after head (nil: the first).
func (t *wtx) addVersion(a Actor, head *apiv1.VersionInfo, p Put) (*apiv1.VersionInfo, error) {
	meta := metadataOf(p.Resource, p.Kind)
	info := &apiv1.VersionInfo{
		Kind: p.Kind, Name: p.Name, Number: head.GetNumber() + 1, Digest: p.Digest,
		Author: a.Name, Created: timestamppb.New(t.now), Message: a.Message,
		Labels: meta.GetLabels(), Description: meta.GetDescription(), Pins: p.Pins,
	}
	if head.GetDigest() != "" { // not purged
		info.Parent = head.GetNumber()
	}
	info = proto.CloneOf(info) // the answer shares nothing with what the caller gave
	key := versionKey(p.Name, info.GetNumber())
	content := &apiv1.Version{Resource: p.Resource, Source: p.Source, SourceName: p.SourceName, SourceLine: p.SourceLine}
	for _, w := range []struct {
		top, key []byte
		m        proto.Message
	}{
		{bucketKeyHeads, []byte(p.Name), info},
		{bucketKeyInfos, key, info},
		{bucketKeyContents, key, content},
	} {
		b, err := t.kind(w.top, p.Kind)
		if err != nil {
			return nil, err
		}
		if err := t.putMessage(b, w.key, w.m); err != nil {
			return nil, err
		}
	}
	if err := t.addDigest(info); err != nil {
		return nil, err
	}
	return info, t.addPins(info, p.PinContents)
}

// addDigest lists a version by its digest.
func (t *wtx) addDigest(info *apiv1.VersionInfo) error {
	b, err := t.kind(bucketKeyDigests, info.GetKind())
	if err != nil {
		return err
	}
	return t.put(b, digestKey(info), nil)
}

func digestKey(info *apiv1.VersionInfo) []byte {
	return append(joinKey(info.GetName(), ""), versionKey(info.GetDigest(), info.GetNumber())...)
}

func (t *wtx) putMessage(b *bolt.Bucket, key []byte, m proto.Message) error {
	payload, err := marshal(m)
	if err != nil {
		return fmt.Errorf("%w: %w", errs.ErrInvalid, err)
	}
	return t.put(b, key, payload)
}

// addPins keeps the contents a version pins, by digest.
func (t *wtx) addPins(info *apiv1.VersionInfo, contents map[string]*apiv1.Fragment) error {
	pinned, refs := t.bucket(bucketKeyPinned), t.bucket(bucketKeyPinRefs)
	for _, pin := range info.GetPins() {
		key := []byte(pin.GetDigest())
		if pinned.Get(key) == nil {
			if err := t.putMessage(pinned, key, contents[pin.GetDigest()]); err != nil {
				return err
			}
		}
		if err := t.put(refs, pinRefKey(pin.GetDigest(), info), nil); err != nil {
			return err
		}
	}
	return nil
}

func pinRefKey(digest string, info *apiv1.VersionInfo) []byte {
	return append(joinKey(digest, info.GetKind(), ""), versionKey(info.GetName(), info.GetNumber())...)
}

// alive tells whether the newest version of a document is there to be used.
func alive(head *apiv1.VersionInfo) bool { return head != nil && !head.GetDeleted() }

// checkExpect compares the newest version's number with the one a writer expects (nil: any; 0: no document).
func checkExpect(head *apiv1.VersionInfo, kind, name string, expect *uint64) error {
	var newest uint64
	if alive(head) {
		newest = head.GetNumber()
	}
	if expect == nil || *expect == newest {
		return nil
	}
	switch {
	case newest == 0:
		return fmt.Errorf("%w: %s/%s does not exist, expected version %d", errs.ErrVersionMismatch, kind, name, *expect)
	case *expect == 0:
		return fmt.Errorf("%w: %s/%s exists, its newest version is %d", errs.ErrVersionMismatch, kind, name, newest)
	}
	return fmt.Errorf("%w: the newest version of %s/%s is %d, expected %d", errs.ErrVersionMismatch, kind, name, newest, *expect)
}

func subject(info *apiv1.VersionInfo) string {
	return fmt.Sprintf("%s/%s@%d", info.GetKind(), info.GetName(), info.GetNumber())
}

// Rollback makes the content of version to the newest version, with the pins it had. When it is the newest content
// already no version is made. A deleted document is there again afterwards.
func (s *Store) Rollback(ctx context.Context, a Actor, kind, name string, to uint64, expect *uint64) (*apiv1.VersionInfo, error) {
	if err := CheckName(kind, name); err != nil {
		return nil, err
	}
	return s.updateInfo(ctx, a, "rollback", func(t *wtx) (*apiv1.VersionInfo, error) {
		head, err := headOf(t.tx, kind, name)
		if err != nil {
			return nil, err
		}
		if head == nil || head.GetDigest() == "" {
			return nil, fmt.Errorf("%w: %s/%s", errs.ErrNotFound, kind, name)
		}
		if err := checkExpect(head, kind, name, expect); err != nil {
			return nil, err
		}
		if err := checkFleet(t.tx, kind, name, false); err != nil {
			return nil, err
		}
		old, err := versionOf(t.tx, kind, name, to)
		if err != nil {
			return nil, err
		}
		if alive(head) && old.GetInfo().GetDigest() == head.GetDigest() {
			return head, nil
		}
		if a.Message == "" {
			a.Message = fmt.Sprintf("rollback to version %d", to)
		}
		put := putOf(old)
		if err := t.checkBound([]Put{put}); err != nil {
			return nil, err
		}
		info, err := t.addVersion(a, head, put)
		if err != nil {
			return nil, err
		}
		return info, t.log(event(EventRollback, a, subject(info), map[string]string{"to": fmt.Sprint(to), "digest": info.GetDigest()}))
	})
}

// putOf is a stored version to be stored again.
func putOf(v *apiv1.Version) Put {
	return Put{
		Kind: v.GetInfo().GetKind(), Name: v.GetInfo().GetName(), Resource: v.GetResource(),
		Source: v.GetSource(), SourceName: v.GetSourceName(), SourceLine: v.GetSourceLine(),
		Digest: v.GetInfo().GetDigest(), Pins: v.GetInfo().GetPins(),
	}
}

// updateInfo is update for changes that answer with one version, remembered by request id.
func (s *Store) updateInfo(ctx context.Context, a Actor, method string, fn func(*wtx) (*apiv1.VersionInfo, error)) (*apiv1.VersionInfo, error) {
	var answer *apiv1.ApplyResponse
	err := s.update(ctx, func(t *wtx) (err error) {
		answer, err = t.once(a, method, func() (*apiv1.ApplyResponse, error) {
			info, err := fn(t)
			if err != nil {
				return nil, err
			}
			if info != nil {
				if err := addTags(t.tx, info); err != nil {
					return nil, err
				}
			}
			return &apiv1.ApplyResponse{Results: []*apiv1.ApplyResponse_Result{{Version: info}}}, nil
		})
		return err
	})
	if err != nil {
		return nil, err
	}
	return answer.GetResults()[0].GetVersion(), nil
}
