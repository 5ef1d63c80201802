package store

import (
	"context"
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/internal/errs"
)

// Activation is a bundle of a fleet's channel ready to be put into force: compiled for this host, its documents pinned.
type Activation struct {
	// State is the record as it is to be. Digest, ActiveSeq, Activated and Previous are filled in.
	State *apiv1.FleetState
	// Digest names the bundle, Blob is its bytes with whatever proves them.
	Digest string
	Blob   []byte
	// Puts are its documents, all of them.
	Puts []Put
	// Overridable tells which of them this host may have its own version of. nil: none.
	Overridable func(kind, name string) bool
	// Smack, when not nil, replaces what is kept of the host's smackfs in the same transaction. The numbers of versions
	// that it names of the bundle's documents are filled in.
	Smack *apiv1.SmackState
	// Events are appended to the log in the same transaction, before the activation's own.
	Events []*apiv1.Event
}

// Activated is what an activation changed.
type Activated struct {
	// Documents are those of the bundle, in the order of Puts.
	Documents []*apiv1.FleetDocument
	// Changed counts new versions, Removed documents that the bundle holds no more.
	Changed, Removed int
}

// Activate puts a bundle into force, whole or not at all, in one transaction: its documents become versions, those that
// the bundle before it held and it does not are deleted with their history kept, and the record moves. Documents of this
// host of the same name are taken over; a version of this host's own stays the newest as long as the bundle allows it.
//
// Sandboxes keep the version they run. Errors wrap errs.ErrReferenced when a Binding of this host, or the host's smackfs,
// names what the bundle holds no more; errs.ErrInvalid, errs.ErrVersionMismatch (an Expect, or a pointer older than the
// newest) or one of the store's.
func (s *Store) Activate(ctx context.Context, a Actor, act Activation) (*Activated, error) {
	if err := checkPuts(act.Puts); err != nil {
		return nil, err
	}
	if err := checkDigest(act.Digest); err != nil {
		return nil, fmt.Errorf("bundle: %w", err)
	}
	var done *Activated
	err := s.update(ctx, func(t *wtx) (err error) {
		done, err = t.activate(a, act)
		return err
	})
	return done, err
}

func (t *wtx) activate(a Actor, act Activation) (*Activated, error) {
	old, err := fleetState(t.tx)
	if err != nil {
		return nil, err
	}
	next, err := nextFleetState(old, act.State)
	if err != nil {
		return nil, err
	}
	done := &Activated{}
	gone := make(map[string]*apiv1.FleetDocument)
	if err := eachFleetDocument(t.tx, func(d *apiv1.FleetDocument) error {
		gone[string(joinKey(d.GetKind(), d.GetName()))] = d
		return nil
	}); err != nil {
		return nil, err
	}
	heads, err := t.applicable(act.Puts)
	if err != nil {
		return nil, err
	}
	for i, p := range act.Puts {
		key := string(joinKey(p.Kind, p.Name))
		d, err := t.activateOne(a, heads[i], p, gone[key], act.Overridable != nil && act.Overridable(p.Kind, p.Name), done)
		if err != nil {
			return nil, err
		}
		delete(gone, key)
		done.Documents = append(done.Documents, d)
		if err := t.putMessage(t.bucket(bucketKeyFleetDocuments), []byte(key), d); err != nil {
			return nil, err
		}
	}
	if act.Smack != nil {
		if err := t.putSmackState(numberSmack(act.Smack, done.Documents)); err != nil {
			return nil, err
		}
	}
	if err := t.removeGone(a, gone, done); err != nil {
		return nil, err
	}
	if err := t.moveBundle(next, act); err != nil {
		return nil, err
	}
	if err := t.log(cloneEvents(act.Events)...); err != nil {
		return nil, err
	}
	return done, t.log(event(EventFleetActivate, a, next.GetChannel(), map[string]string{
		"fleet": next.GetFleet(), "seq": fmt.Sprint(next.GetActiveSeq()), "digest": next.GetDigest(), "previous": next.GetPrevious(),
		"changed": fmt.Sprint(done.Changed), "removed": fmt.Sprint(done.Removed),
	}))
}

// numberSmack gives a state with the numbers that documents have got.
func numberSmack(st *apiv1.SmackState, documents []*apiv1.FleetDocument) *apiv1.SmackState {
	st = proto.CloneOf(st)
	for _, d := range documents {
		if d.GetKind() != KindSmackPolicy {
			continue
		}
		if st.GetPolicy() == d.GetName() {
			st.Version = d.GetNumber()
		}
		if st.GetAssigned() == d.GetName() {
			st.AssignedVersion = d.GetNumber()
		}
	}
	return st
}

// activateOne makes p's content the newest of its document, unless this host has its own version and may keep it.
func (t *wtx) activateOne(a Actor, head *apiv1.VersionInfo, p Put, was *apiv1.FleetDocument, overridable bool, done *Activated) (*apiv1.FleetDocument, error) {
	d := &apiv1.FleetDocument{Kind: p.Kind, Name: p.Name, Digest: p.Digest, Overridable: overridable}
	overridden := overridable && was != nil && alive(head) && head.GetDigest() != was.GetDigest()
	switch {
	case overridden && was.GetDigest() == p.Digest:
		d.Number = was.GetNumber()
		return d, nil
	case alive(head) && head.GetDigest() == p.Digest:
		d.Number = head.GetNumber()
		return d, nil
	}
	done.Changed++
	info, err := t.addVersion(a, head, p)
	if err != nil {
		return nil, err
	}
	d.Number = info.GetNumber()
	if err := t.log(event(EventApply, a, subject(info), map[string]string{"digest": info.GetDigest()})); err != nil || !overridden {
		return d, err
	}
	own, err := versionOf(t.tx, p.Kind, p.Name, head.GetNumber())
	if err != nil {
		return nil, err
	}
	again, err := t.addVersion(Actor{Name: head.GetAuthor(), Message: fmt.Sprintf("version %d of this host stays before the fleet's %d", head.GetNumber(), d.GetNumber())}, info, putOf(own))
	if err != nil {
		return nil, err
	}
	return d, t.log(event(EventApply, a, subject(again), map[string]string{"digest": again.GetDigest(), "override": "true"}))
}

// removeGone deletes what the bundle before held and this one does not. Bindings go first: they name policies.
func (t *wtx) removeGone(a Actor, gone map[string]*apiv1.FleetDocument, done *Activated) error {
	list := make([]*apiv1.FleetDocument, 0, len(gone))
	for _, d := range gone {
		list = append(list, d)
	}
	slices.SortFunc(list, func(x, y *apiv1.FleetDocument) int {
		return slices.Compare([]byte(goneOrder(x)), []byte(goneOrder(y)))
	})
	for _, d := range list {
		if err := t.del(t.bucket(bucketKeyFleetDocuments), joinKey(d.GetKind(), d.GetName())); err != nil {
			return err
		}
		head, err := headOf(t.tx, d.GetKind(), d.GetName())
		if err != nil {
			return err
		}
		if !alive(head) {
			continue
		}
		if err := t.stillNamed(d); err != nil {
			return err
		}
		head.Deleted = true
		heads, err := t.kind(bucketKeyHeads, d.GetKind())
		if err != nil {
			return err
		}
		if err := t.putMessage(heads, []byte(d.GetName()), head); err != nil {
			return err
		}
		done.Removed++
		if err := t.log(event(EventDelete, a, subject(head), nil)); err != nil {
			return err
		}
	}
	return nil
}

func goneOrder(d *apiv1.FleetDocument) string {
	first := "1"
	if d.GetKind() == KindBinding {
		first = "0"
	}
	return first + string(joinKey(d.GetKind(), d.GetName()))
}

// stillNamed refuses what would leave a Binding, or the host's smackfs, without its policy. Sandboxes keep their version,
// and what includes a fragment keeps its content.
func (t *wtx) stillNamed(d *apiv1.FleetDocument) (err error) {
	var users []string
	switch d.GetKind() {
	case KindLandlockPolicy:
		users, err = bindingsOf(t.tx, d.GetName())
	case KindSmackPolicy:
		users, err = hostOf(t.tx, d.GetName())
	}
	if err == nil && len(users) > 0 {
		err = fmt.Errorf("%w: the bundle holds %s/%s no more, and %s of this host names it", errs.ErrReferenced, d.GetKind(), d.GetName(), users[0])
	}
	return err
}

// moveBundle keeps the bundle and the one before it, and writes the record.
func (t *wtx) moveBundle(next *apiv1.FleetState, act Activation) error {
	b := t.bucket(bucketKeyFleet)
	if next.GetDigest() != act.Digest {
		next.Previous = next.GetDigest()
	}
	next.Digest, next.ActiveSeq, next.Activated = act.Digest, next.GetSeq(), timestamppb.New(t.now)
	var stale [][]byte
	c := b.Cursor()
	for k, _ := c.Seek(prefixFleetBundle); k != nil && len(k) > len(prefixFleetBundle) && string(k[:len(prefixFleetBundle)]) == string(prefixFleetBundle); k, _ = c.Next() {
		if digest := string(k[len(prefixFleetBundle):]); digest != next.GetDigest() && digest != next.GetPrevious() {
			stale = append(stale, slices.Clone(k))
		}
	}
	for _, k := range stale {
		if err := t.del(b, k); err != nil {
			return err
		}
	}
	if err := t.put(b, fleetBundleKey(act.Digest), act.Blob); err != nil {
		return err
	}
	return t.putMessage(b, keyFleetState, next)
}
