package store

import (
	"fmt"
	"slices"

	bolt "go.etcd.io/bbolt"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/internal/errs"
)

// Kinds of documents, as VersionInfo.kind names them.
const (
	KindLandlockPolicy = "LandlockPolicy"
	KindFragment       = "Fragment"
	KindPolicyTest     = "PolicyTest"
	KindSmackPolicy    = "SmackPolicy"
	KindBinding        = "Binding"
)

// kinds is the table of kinds. Those that pin fragments stand before fragments, so that GC lets go of a fragment in the
// pass that removes its last user.
var kinds = []struct {
	name     string
	metadata func(*apiv1.Resource) *apiv1.Metadata
	users    func(tx *bolt.Tx, name string) ([]string, error)              // what refers to a document, nil: nothing can
	needed   func(tx *bolt.Tx) (func(info *apiv1.VersionInfo) bool, error) // versions GC must keep, nil: none
}{
	{KindLandlockPolicy, func(r *apiv1.Resource) *apiv1.Metadata { return r.GetLandlockPolicy().GetMetadata() }, usersOfPolicy, neededPolicies},
	{KindSmackPolicy, func(r *apiv1.Resource) *apiv1.Metadata { return r.GetSmackPolicy().GetMetadata() }, hostOf, versionsOfHost},
	{KindBinding, func(r *apiv1.Resource) *apiv1.Metadata { return r.GetBinding().GetMetadata() }, nil, nil},
	{KindPolicyTest, func(r *apiv1.Resource) *apiv1.Metadata { return r.GetPolicyTest().GetMetadata() }, nil, nil},
	{KindFragment, func(r *apiv1.Resource) *apiv1.Metadata { return r.GetFragment().GetMetadata() }, includersOf, pinnedVersions},
}

// Kinds returns the kinds of documents the store keeps, sorted.
func Kinds() []string {
	names := make([]string, len(kinds))
	for i, k := range kinds {
		names[i] = k.name
	}
	slices.Sort(names)
	return names
}

func isKind(kind string) bool {
	for _, k := range kinds {
		if k.name == kind {
			return true
		}
	}
	return false
}

// checkKind errors wrap errs.ErrInvalid.
func checkKind(kind string) error {
	if !isKind(kind) {
		return fmt.Errorf("%w: kind %s is not known (known: %v)", errs.ErrInvalid, quote(kind), Kinds())
	}
	return nil
}

// metadataOf gives the metadata of a document when it is of that kind, else nil.
func metadataOf(r *apiv1.Resource, kind string) *apiv1.Metadata {
	for _, k := range kinds {
		if k.name == kind {
			return k.metadata(r)
		}
	}
	return nil
}

// usersOf names what refers to a document.
func usersOf(tx *bolt.Tx, kind, name string) ([]string, error) {
	for _, k := range kinds {
		if k.name == kind && k.users != nil {
			return k.users(tx, name)
		}
	}
	return nil, nil
}

// usersOfPolicy are its alive sandboxes and the bindings that name it.
func usersOfPolicy(tx *bolt.Tx, name string) ([]string, error) {
	users, err := sandboxesOf(tx, name)
	if err != nil {
		return nil, err
	}
	bindings, err := bindingsOf(tx, name)
	return append(users, bindings...), err
}

// neededPolicies are the versions of sandboxes and of bindings.
func neededPolicies(tx *bolt.Tx) (func(*apiv1.VersionInfo) bool, error) {
	started, err := versionsOfSandboxes(tx)
	if err != nil {
		return nil, err
	}
	bound, err := versionsOfBindings(tx)
	return func(info *apiv1.VersionInfo) bool { return started(info) || bound(info) }, err
}

// sandboxesOf are the alive sandboxes of a policy.
func sandboxesOf(tx *bolt.Tx, name string) (users []string, err error) {
	err = eachSandbox(tx, func(sb *apiv1.Sandbox) error {
		if sb.GetPolicy() == name && isAlive(sb) {
			users = append(users, "sandbox/"+sb.GetId())
		}
		return nil
	})
	return users, err
}

// versionsOfSandboxes are those that a sandbox's record tells of, ended ones too.
func versionsOfSandboxes(tx *bolt.Tx) (func(*apiv1.VersionInfo) bool, error) {
	used := make(map[string]bool)
	err := eachSandbox(tx, func(sb *apiv1.Sandbox) error {
		used[string(versionKey(sb.GetPolicy(), sb.GetVersion()))] = true
		return nil
	})
	return func(info *apiv1.VersionInfo) bool { return used[string(versionKey(info.GetName(), info.GetNumber()))] }, err
}

// hostOf tells whether the host's smackfs holds the policy or is to hold it.
func hostOf(tx *bolt.Tx, name string) ([]string, error) {
	st, err := smackState(tx)
	if err != nil || name != st.GetAssigned() && name != st.GetPolicy() {
		return nil, err
	}
	return []string{"the host, whose smackfs it is for (policyctl smack unload)"}, nil
}

func versionsOfHost(tx *bolt.Tx) (func(*apiv1.VersionInfo) bool, error) {
	st, err := smackState(tx)
	return func(info *apiv1.VersionInfo) bool {
		return info.GetName() == st.GetAssigned() && info.GetNumber() == st.GetAssignedVersion() ||
			info.GetName() == st.GetPolicy() && info.GetNumber() == st.GetVersion()
	}, err
}

// includersOf are the newest versions of documents that include a fragment.
func includersOf(tx *bolt.Tx, name string) (users []string, err error) {
	heads := tx.Bucket(bucketKeyHeads)
	err = heads.ForEachBucket(func(kind []byte) error {
		return heads.Bucket(kind).ForEach(func(key, v []byte) error {
			head := &apiv1.VersionInfo{}
			if err := unsealMessage(key, v, head); err != nil {
				return err
			}
			for _, pin := range head.GetPins() {
				if alive(head) && pin.GetName() == name {
					users = append(users, subject(head))
					break
				}
			}
			return nil
		})
	})
	return users, err
}

func pinnedVersions(tx *bolt.Tx) (func(*apiv1.VersionInfo) bool, error) {
	return func(info *apiv1.VersionInfo) bool { return isPinned(tx, info.GetDigest()) }, nil
}
