package store

import (
	"context"
	"fmt"
	"maps"
	"slices"

	bolt "go.etcd.io/bbolt"
	"google.golang.org/protobuf/proto"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/internal/errs"
)

var (
	keyFleetState     = []byte("state")
	prefixFleetBundle = []byte("bundle\x00")
)

func fleetBundleKey(digest string) []byte { return append(slices.Clone(prefixFleetBundle), digest...) }

// fleetState reads the record; one without fields when there is none.
func fleetState(tx *bolt.Tx) (*apiv1.FleetState, error) {
	st := &apiv1.FleetState{}
	b := tx.Bucket(bucketKeyFleet)
	if b == nil { // an older store, opened for reading
		return st, nil
	}
	if value := b.Get(keyFleetState); value != nil {
		return st, unsealMessage(keyFleetState, value, st)
	}
	return st, nil
}

// fleetDocument reads what the bundle in force says of a document, nil when it does not hold it.
func fleetDocument(tx *bolt.Tx, kind, name string) (*apiv1.FleetDocument, error) {
	b := tx.Bucket(bucketKeyFleetDocuments)
	if b == nil {
		return nil, nil
	}
	key := joinKey(kind, name)
	value := b.Get(key)
	if value == nil {
		return nil, nil
	}
	d := &apiv1.FleetDocument{}
	return d, unsealMessage(key, value, d)
}

// eachFleetDocument calls f for every document of the bundle in force, by kind and name.
func eachFleetDocument(tx *bolt.Tx, f func(*apiv1.FleetDocument) error) error {
	b := tx.Bucket(bucketKeyFleetDocuments)
	if b == nil {
		return nil
	}
	return b.ForEach(func(k, v []byte) error {
		d := &apiv1.FleetDocument{}
		if err := unsealMessage(k, v, d); err != nil {
			return err
		}
		return f(d)
	})
}

// FleetState returns what is kept of the channel that this host follows, an empty message when it follows none.
func (s *Store) FleetState() (st *apiv1.FleetState, err error) {
	err = s.view(func(tx *bolt.Tx) error {
		st, err = fleetState(tx)
		return err
	})
	return st, err
}

// Fleet returns what is kept of the channel together with the documents of the bundle in force and those of them that
// this host has its own version of, as of one moment.
func (s *Store) Fleet() (st *apiv1.FleetState, documents, overridden []*apiv1.FleetDocument, err error) {
	err = s.view(func(tx *bolt.Tx) error {
		if st, err = fleetState(tx); err != nil {
			return err
		}
		return eachFleetDocument(tx, func(d *apiv1.FleetDocument) error {
			documents = append(documents, d)
			head, err := headOf(tx, d.GetKind(), d.GetName())
			if err == nil && alive(head) && head.GetDigest() != d.GetDigest() {
				overridden = append(overridden, d)
			}
			return err
		})
	})
	return st, documents, overridden, err
}

// FleetBundle returns the bytes of a bundle that is or was in force last. Errors wrap errs.ErrNotFound.
func (s *Store) FleetBundle(digest string) (blob []byte, err error) {
	err = s.view(func(tx *bolt.Tx) error {
		key := fleetBundleKey(digest)
		value := tx.Bucket(bucketKeyFleet).Get(key)
		if value == nil {
			return fmt.Errorf("%w: bundle %s is not kept on this host", errs.ErrNotFound, digest)
		}
		payload, err := unseal(key, value)
		blob = slices.Clone(payload)
		return err
	})
	return blob, err
}

// SetFleetState keeps a pointer that was accepted and what was read of etcd; what is in force stays. A pointer older
// than the newest that was accepted on the same channel is errs.ErrVersionMismatch.
func (s *Store) SetFleetState(ctx context.Context, st *apiv1.FleetState, events ...*apiv1.Event) error {
	return s.update(ctx, func(t *wtx) error {
		old, err := fleetState(t.tx)
		if err != nil {
			return err
		}
		next, err := nextFleetState(old, st)
		if err != nil {
			return err
		}
		if !proto.Equal(old, next) {
			if err := t.putMessage(t.bucket(bucketKeyFleet), keyFleetState, next); err != nil {
				return err
			}
		}
		return t.log(cloneEvents(events)...)
	})
}

// nextFleetState is the record that follows old: what is in force is old's.
func nextFleetState(old, st *apiv1.FleetState) (*apiv1.FleetState, error) {
	next := proto.CloneOf(st)
	next.Digest, next.ActiveSeq, next.Activated, next.Previous = old.GetDigest(), old.GetActiveSeq(), old.GetActivated(), old.GetPrevious()
	next.Accepted = maps.Clone(old.GetAccepted())
	if next.GetChannel() == "" {
		return next, nil
	}
	channel := next.GetFleet() + "/" + next.GetChannel()
	if newest := old.GetAccepted()[channel].GetSeq(); next.GetSeq() < newest {
		return nil, fmt.Errorf("%w: pointer %d of channel %s is older than %d, which was accepted before", errs.ErrVersionMismatch, next.GetSeq(), next.GetChannel(), newest)
	}
	if next.Accepted == nil {
		next.Accepted = make(map[string]*apiv1.FleetAccepted)
	}
	next.Accepted[channel] = &apiv1.FleetAccepted{Seq: next.GetSeq(), PointerId: next.GetPointerId()}
	return next, nil
}

// witnessed is the key among FleetState.accepted of a channel that this host has looked at as a controller: it need not
// follow it, and the agent's own is written before it is acted on. No name of a channel has a slash.
func witnessed(fleet, channel string) string { return fleet + "/controller/" + channel }

// FleetWitnessed is the highest sequence number that this host knows of a channel, as a node and as a controller.
func (s *Store) FleetWitnessed(fleet, channel string) (seq uint64, err error) {
	st, err := s.FleetState()
	return max(st.GetAccepted()[fleet+"/"+channel].GetSeq(), st.GetAccepted()[witnessed(fleet, channel)].GetSeq()), err
}

// WitnessFleet keeps a verified pointer's number and digest that this host has seen as a controller; a lower number than
// the one kept changes nothing.
func (s *Store) WitnessFleet(ctx context.Context, fleet, channel string, seq uint64, id string) error {
	return s.update(ctx, func(t *wtx) error {
		st, err := fleetState(t.tx)
		if err != nil || st.GetAccepted()[witnessed(fleet, channel)].GetSeq() >= seq {
			return err
		}
		if st.Accepted == nil {
			st.Accepted = make(map[string]*apiv1.FleetAccepted)
		}
		st.Accepted[witnessed(fleet, channel)] = &apiv1.FleetAccepted{Seq: seq, PointerId: id}
		return t.putMessage(t.bucket(bucketKeyFleet), keyFleetState, st)
	})
}

// LeaveFleet makes the documents of the bundle in force this host's own, as they are. What was accepted of channels is
// remembered.
func (s *Store) LeaveFleet(ctx context.Context, a Actor) error {
	return s.update(ctx, func(t *wtx) error {
		st, err := fleetState(t.tx)
		if err != nil || st.GetFleet() == "" {
			return err
		}
		for _, top := range [][]byte{bucketKeyFleet, bucketKeyFleetDocuments} {
			if err := t.empty(top); err != nil {
				return err
			}
		}
		if err := t.putMessage(t.bucket(bucketKeyFleet), keyFleetState, &apiv1.FleetState{Accepted: st.GetAccepted()}); err != nil {
			return err
		}
		return t.log(event(EventFleetLeave, a, st.GetChannel(), map[string]string{"fleet": st.GetFleet(), "digest": st.GetDigest()}))
	})
}

// empty removes every record of a bucket.
func (t *wtx) empty(top []byte) error {
	b := t.bucket(top)
	var keys [][]byte
	err := b.ForEach(func(k, _ []byte) error {
		keys = append(keys, slices.Clone(k))
		return nil
	})
	for _, k := range keys {
		if err == nil {
			err = t.del(b, k)
		}
	}
	return err
}

// CheckFleet tells whether this host may change a document, or with remove delete it. Errors wrap errs.ErrFromChannel.
func (s *Store) CheckFleet(kind, name string, remove bool) error {
	return s.view(func(tx *bolt.Tx) error { return checkFleet(tx, kind, name, remove) })
}

// checkFleet refuses a change of a document that the bundle in force holds, unless it allows one of this host's own.
func checkFleet(tx *bolt.Tx, kind, name string, remove bool) error {
	d, err := fleetDocument(tx, kind, name)
	if err != nil || d == nil || d.GetOverridable() && !remove {
		return err
	}
	st, err := fleetState(tx)
	if err != nil {
		return err
	}
	return fmt.Errorf("%w: %s/%s, of channel %s; publish a bundle that has it otherwise (policyctl fleet publish %s), or that lists it as overridable",
		errs.ErrFromChannel, kind, name, st.GetChannel(), st.GetChannel())
}

func (t *wtx) checkFleetPuts(puts []Put) error {
	for _, p := range puts {
		if err := checkFleet(t.tx, p.Kind, p.Name, false); err != nil {
			return err
		}
	}
	return nil
}

// originOf is VersionInfo.origin.
func originOf(tx *bolt.Tx, info *apiv1.VersionInfo) (string, error) {
	d, err := fleetDocument(tx, info.GetKind(), info.GetName())
	if err != nil || d == nil || d.GetNumber() != info.GetNumber() {
		return "", err
	}
	st, err := fleetState(tx)
	return fmt.Sprintf("%s@%d", st.GetChannel(), st.GetActiveSeq()), err
}

// versionsOfFleet are those of the bundle in force.
func versionsOfFleet(tx *bolt.Tx) (func(*apiv1.VersionInfo) bool, error) {
	used := make(map[string]bool)
	err := eachFleetDocument(tx, func(d *apiv1.FleetDocument) error {
		used[d.GetKind()+"\x00"+string(versionKey(d.GetName(), d.GetNumber()))] = true
		return nil
	})
	return func(info *apiv1.VersionInfo) bool {
		return used[info.GetKind()+"\x00"+string(versionKey(info.GetName(), info.GetNumber()))]
	}, err
}

// fleet verifies that the versions and bundles that the records name are there.
func (c *checker) fleet() error {
	st, err := fleetState(c.tx)
	if err != nil {
		c.problem("state of the fleet's channel: %v", err)
		return nil
	}
	for _, digest := range []string{st.GetDigest(), st.GetPrevious()} {
		if digest != "" && !has(c.tx.Bucket(bucketKeyFleet), fleetBundleKey(digest)) {
			c.problem("bundle %s of the fleet's channel is missing", digest)
		}
	}
	b := c.tx.Bucket(bucketKeyFleetDocuments)
	return c.each(b, func(k, _ []byte) {
		d := &apiv1.FleetDocument{}
		if err := unsealMessage(k, b.Get(k), d); err != nil {
			c.problem("document %q of the fleet's bundle: %v", k, err)
			return
		}
		info := &apiv1.VersionInfo{}
		key, infos := versionKey(d.GetName(), d.GetNumber()), kindBucket(c.tx, bucketKeyInfos, d.GetKind())
		switch {
		case string(joinKey(d.GetKind(), d.GetName())) != string(k):
			c.problem("document %q of the fleet's bundle says that it is %s/%s", k, d.GetKind(), d.GetName())
		case !has(infos, key):
			c.problem("version %s/%s@%d of the fleet's bundle is missing", d.GetKind(), d.GetName(), d.GetNumber())
		case unsealMessage(key, infos.Get(key), info) == nil && info.GetDigest() != d.GetDigest():
			c.problem("version %s/%s@%d is not that of the fleet's bundle: its digest is another", d.GetKind(), d.GetName(), d.GetNumber())
		}
	})
}
