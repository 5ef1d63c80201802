package smackhost

import (
	"context"
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/internal/errs"
	"policyd.dev/policyd/smack"
	"policyd.dev/policyd/smack/smackfs"
	"policyd.dev/policyd/store"
)

// ownedName is the name of the policy, and of its one layer, in which owned rules are kept.
const ownedName = "owned"

// encodeOwned gives the bytes of SmackState.owned.
func encodeOwned(rules *smack.Set, settings smack.Settings) ([]byte, error) {
	b := smack.NewBuilder(ownedName)
	l := b.Layer(ownedName, smack.AllAccess)
	for r := range rules.All() {
		if err := l.Set(smack.Place{}, r.Subject, r.Object, r.Access); err != nil {
			return nil, err
		}
	}
	p, _, err := b.Build()
	if err != nil {
		return nil, err
	}
	p.Settings = settings
	return p.Encode(), nil
}

// record is the state in the store with what it says of this boot.
type record struct {
	*apiv1.SmackState
	rules    *smack.Set     // owned; never nil
	settings smack.Settings // owned
}

// read reads the record. What was owned in an earlier boot is gone with it.
func (m *Manager) read() (*record, error) {
	st, err := m.cfg.Store.SmackState()
	if err != nil {
		return nil, err
	}
	r := &record{SmackState: st, rules: &smack.Set{}}
	if st.GetBootId() != smackfs.BootID() || len(st.GetOwned()) == 0 {
		return r, nil
	}
	p, err := smack.Decode(st.GetOwned())
	if err != nil {
		return nil, fmt.Errorf("%w: what policyd owns in smackfs: %w", errs.ErrStoreCorrupt, err)
	}
	r.rules, r.settings = p.Effective(), p.Settings
	return r, nil
}

// inForce tells whether the record's policy was put into this boot's kernel.
func (r *record) inForce() bool { return r.GetPolicy() != "" && r.GetBootId() == smackfs.BootID() }

// changed gives a copy of the record's message to be changed and stored.
func (r *record) changed() *apiv1.SmackState { return proto.CloneOf(r.SmackState) }

// store keeps a record. A change of the kernel has been made or is about to be: the caller's giving up must not come
// between the two.
func (m *Manager) store(ctx context.Context, st *apiv1.SmackState, events ...*apiv1.Event) error {
	return m.cfg.Store.SetSmackState(context.WithoutCancel(ctx), st, events...)
}

// settingsOf are the settings that concern the host: relabel-self is of the thread that writes it, see [Manager.RelabelSelf].
func settingsOf(p *smack.Policy) smack.Settings {
	s := p.Settings
	s.RelabelSelf, s.ClearRelabelSelf = nil, false
	return s
}

func settingChanges(list []smackfs.SettingChange) []*apiv1.SmackSettingChange {
	var out []*apiv1.SmackSettingChange
	for _, c := range list {
		out = append(out, &apiv1.SmackSettingChange{File: c.File, Key: c.Key, Old: c.Old, HadOld: c.HadOld, New: c.Value})
	}
	return out
}

func settingChangesOf(list []*apiv1.SmackSettingChange) []smackfs.SettingChange {
	var out []smackfs.SettingChange
	for _, c := range list {
		out = append(out, smackfs.SettingChange{
			Entry: smackfs.Entry{File: c.GetFile(), Key: c.GetKey(), Value: c.GetNew()}, Old: c.GetOld(), HadOld: c.GetHadOld(),
		})
	}
	return out
}

// without gives the rules but for those of some subjects.
func without(rules *smack.Set, subjects []string) (*smack.Set, error) {
	if len(subjects) == 0 {
		return rules, nil
	}
	b := smack.NewSetBuilder()
	for r := range rules.All() {
		if !slices.Contains(subjects, r.Subject) {
			b.Set(r.Subject, r.Object, r.Access)
		}
	}
	return b.Build()
}

func event(kind string, a store.Actor, subject string, attributes map[string]string) *apiv1.Event {
	return &apiv1.Event{Type: kind, Actor: a.Name, Subject: subject, Message: a.Message, RequestId: a.RequestID, Attributes: attributes}
}
