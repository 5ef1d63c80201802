package exchange

import (
	"path"
	"strings"

	"policyd.dev/policyd/enforce/profile"
)

// podlockABI is the ABI that PodLock restricts.
const podlockABI = 3

// podlockLists are the lists of a binary's profile.
var podlockLists = []struct {
	key   string
	allow profile.Access
}{
	{"readOnly", readRights},
	{"readExec", readRights | profile.FSExecute},
	{"readWrite", readRights | writeRights&^profile.FSIoctlDev},
	{"readWriteExec", readRights | writeRights&^profile.FSIoctlDev | profile.FSExecute},
}

// podlock reads LandlockProfile documents: each binary of each container becomes a policy.
func (r *report) podlock(files []File, o Options) []*draft {
	s := newSource(files[0])
	docs := r.yaml(s)
	if len(docs) == 0 {
		if len(r.errors) == 0 {
			r.errorf(s.whole(), codeSyntax, "there is no document in it")
		}
		return nil
	}
	var drafts []*draft
	for _, doc := range docs {
		drafts = append(drafts, r.podlockProfile(doc, o)...)
	}
	if len(drafts) == 0 && len(r.errors) == 0 {
		r.errorf(docs[0].at, codeHandlesNothing, "no binary has a profile in it")
	}
	r.remarkf(s.whole(), "PodLock confines only the binaries that it lists; a policy confines whatever is started under it, and all that starts from there")
	r.remarkf(s.whole(), "paths that do not exist are skipped (missing: skip), as PodLock does with a line in its log")
	return drafts
}

func (r *report) podlockProfile(doc *node, o Options) []*draft {
	keys, ok := r.keys(doc, "the document", "apiVersion", "kind", "metadata", "spec", "status")
	if !ok {
		return nil
	}
	for key, want := range map[string]string{"apiVersion": "podlock.kubewarden.io/v1alpha1", "kind": "LandlockProfile"} {
		if v := keys[key]; v == nil || v.text != want {
			r.errorf(doc.at, codeUnknownKind, "%s: want %s", key, want)
			return nil
		}
	}
	name := defaultName
	if m := keys["metadata"]; m != nil && r.want(m, object, "metadata") {
		if n := m.get("name"); n != nil && r.want(n, text, "metadata.name") {
			name = nameOf(n.text)
		}
	}
	if keys["spec"] == nil {
		r.errorf(doc.at, codeMissingKey, "spec is missing")
		return nil
	}
	spec, ok := r.keys(keys["spec"], "spec", "profilesByContainer")
	if !ok || spec["profilesByContainer"] == nil || !r.want(spec["profilesByContainer"], object, "profilesByContainer") {
		return nil
	}
	containers := spec["profilesByContainer"].members
	total := 0
	for _, c := range containers {
		total += len(c.value.members)
	}
	var drafts []*draft
	for _, c := range containers {
		if !r.want(c.value, object, "a container") {
			continue
		}
		for _, b := range c.value.members {
			d := r.podlockBinary(b, o.Base)
			if d.name = name; total > 1 {
				d.name = nameOf(name + "-" + c.key + "-" + path.Base(b.key))
			}
			drafts = append(drafts, d)
		}
	}
	return drafts
}

// podlockBinary makes the policy of a binary, which itself is granted.
func (r *report) podlockBinary(b member, base string) *draft {
	l := &draftLayer{name: "podlock", fs: profile.Handled(profile.FS, podlockABI)}
	d := &draft{name: defaultName, abi: podlockABI, layers: []*draftLayer{l}}
	names := make([]string, 0, len(podlockLists))
	for _, p := range podlockLists {
		names = append(names, p.key)
	}
	keys, ok := r.keys(b.value, "a binary's profile", names...)
	if !ok {
		return d
	}
	if !strings.HasPrefix(b.key, "/") {
		r.errorf(b.at, codeBadPath, "binary %q is no absolute path", clip(b.key))
	} else if at, ok := r.literal(b.at, b.key, ""); ok {
		l.grant(at, readRights&^profile.FSReadDir|profile.FSExecute, false)
	}
	for _, p := range podlockLists {
		n := keys[p.key]
		if n == nil || !r.want(n, list, p.key) {
			continue
		}
		for _, item := range n.items {
			if !r.want(item, text, "a member of "+p.key) {
				continue
			}
			if at, ok := r.literal(item.at, item.text, base); ok {
				l.grant(at, p.allow, true)
			}
		}
	}
	return d
}
