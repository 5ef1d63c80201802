package sandbox

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/enforce/landlock"
	"policyd.dev/policyd/enforce/profile"
)

// What became of the rules on this host stands in the record of a sandbox.
func TestRecordSaysWhatBecameOfRules(t *testing.T) {
	cfg := testConfig(t, "supervisor")
	m := newTestManager(t, cfg)
	dir := t.TempDir()
	link, file := filepath.Join(dir, "link"), filepath.Join(dir, "file")
	if err := os.Symlink("/usr", link); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	r := testRequest(t, dir, "/bin/true")
	read := profile.FSExecute | profile.FSReadFile | profile.FSReadDir
	b := profile.NewBuilder(r.Profile.Layers)
	b.AddPath(0, "/", read, false, profile.Fail)
	b.AddPath(0, link, read, false, profile.Fail)
	b.AddPath(0, file, profile.FSReadFile|profile.FSReadDir|profile.FSMakeReg, false, profile.Fail)
	b.AddPath(0, filepath.Join(dir, "none"), read, false, profile.Skip)
	p, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	p.Name, p.ABI = "web", 1
	r.Profile, r.ProfileDigest = p, profile.Digest(p.Encode())
	sb, err := m.Start(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.Wait(t.Context(), sb.GetId()); err != nil {
		t.Fatal(err)
	}
	if sb, err = m.Get(sb.GetId()); err != nil {
		t.Fatal(err)
	}
	if l := sb.GetLinks(); len(l) != 1 || l[0].GetPath() != link || l[0].GetTarget() != "/usr" {
		t.Errorf("links %v", l)
	}
	if l := sb.GetMasked(); len(l) != 1 || l[0].GetPath() != file || l[0].GetType() != "regular file" || !slices.Equal(l[0].GetRights(), []string{"read_dir", "make_reg"}) {
		t.Errorf("masked %v", l)
	}
	if s := sb.GetSkipped(); len(s) != 1 || s[0] != filepath.Join(dir, "none") {
		t.Errorf("skipped %v", s)
	}
}

// A record stays small however many rules a policy has, and says how many it leaves out.
func TestRecordCountsWhatItDoesNotList(t *testing.T) {
	rs := &landlock.Rulesets{LogLost: []string{"quiet"}, Flattened: true}
	for i := range maxNotes + 3 {
		rs.Links = append(rs.Links, landlock.Link{Rule: fmt.Sprintf("/l%d", i), Target: "/t"})
		rs.Masked = append(rs.Masked, landlock.Masked{Path: "/f", Type: "regular file", Access: profile.FSReadDir})
	}
	rec := &apiv1.Sandbox{}
	noteRules(rec, rs)
	if len(rec.GetLinks()) != maxNotes || rec.GetLinksMore() != 3 || len(rec.GetMasked()) != maxNotes || rec.GetMaskedMore() != 3 {
		t.Errorf("%d links and %d more, %d masked and %d more", len(rec.GetLinks()), rec.GetLinksMore(), len(rec.GetMasked()), rec.GetMaskedMore())
	}
	if !slices.Equal(rec.GetLogLost(), rs.LogLost) || !rec.GetFlattened() {
		t.Errorf("%v", rec)
	}
}
