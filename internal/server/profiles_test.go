package server

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/enforce/profile"
	"policyd.dev/policyd/store"
	"policyd.dev/policyd/store/storetest"
)

func TestGetProfile(t *testing.T) {
	e := start(t, nil)
	e.apply(echoPolicy("web"))
	get := func(req *apiv1.GetProfileRequest) *apiv1.GetProfileResponse {
		t.Helper()
		r, err := e.prof.GetProfile(e.ctx(), req)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	whole := get(&apiv1.GetProfileRequest{Ref: "web"})
	if p, err := profile.Decode(whole.GetProfile()); err != nil || p.Name != "web" || profile.Digest(whole.GetProfile()) != whole.GetProfileDigest() || len(whole.GetOrigins()) == 0 {
		t.Fatalf("profile %v, %v", p, err)
	}
	known := get(&apiv1.GetProfileRequest{Ref: "web", KnownDigest: whole.GetProfileDigest()})
	if !known.GetNotModified() || known.GetProfile() != nil || known.GetVersion().GetNumber() != 1 {
		t.Errorf("known digest: %v", known)
	}
	if r := get(&apiv1.GetProfileRequest{Ref: "web", KnownDigest: "sha256:00"}); r.GetNotModified() || len(r.GetProfile()) == 0 {
		t.Errorf("other digest: %v", r)
	}
	// What was remembered does not outlive a change.
	e.apply(echoPolicy("web", "      scope: [signal]\n"))
	if r := get(&apiv1.GetProfileRequest{Ref: "web", KnownDigest: whole.GetProfileDigest()}); r.GetVersion().GetNumber() != 2 {
		t.Errorf("after a change: %v", r.GetVersion())
	}
	if _, err := e.policy.Delete(e.ctx(), &apiv1.DeleteRequest{Kind: store.KindLandlockPolicy, Name: "web"}); err != nil {
		t.Fatal(err)
	}
	_, err := e.prof.GetProfile(e.ctx(), &apiv1.GetProfileRequest{Ref: "web"})
	wantStatus(t, err, codes.NotFound, "DELETED")
	_, err = e.prof.GetProfile(e.ctx(), &apiv1.GetProfileRequest{Ref: "web@1"})
	wantStatus(t, err, codes.NotFound, "DELETED")
	_, err = e.box.Start(e.ctx(), &apiv1.StartRequest{Spec: &apiv1.SandboxSpec{Ref: "web@1", Argv: []string{"/bin/true"}}})
	wantStatus(t, err, codes.NotFound, "DELETED")
	if v, err := e.policy.GetVersion(e.ctx(), &apiv1.GetVersionRequest{Kind: store.KindLandlockPolicy, Ref: "web@1"}); err != nil || !v.GetVersion().GetInfo().GetDeleted() {
		t.Errorf("history of a deleted policy: %v, %v", v, err)
	}
	_, err = e.prof.GetProfile(e.ctx(), &apiv1.GetProfileRequest{Ref: "absent"})
	wantStatus(t, err, codes.NotFound, "NOT_FOUND")
	_, err = e.prof.GetProfile(e.ctx(), &apiv1.GetProfileRequest{Ref: "web@1", Abi: 99})
	wantStatus(t, err, codes.InvalidArgument, "INVALID")
}

// A kernel that lacks something: an error with each right, or a list of what is missing where the policy says degrade.
func TestLackingKernel(t *testing.T) {
	e := start(t, nil)
	text := echoPolicy("strict", "      scope: [signal]\n")
	loose := bytes.Replace(bytes.Replace(text, []byte("strict"), []byte("loose"), 1), []byte("abi: 6"), []byte("abi: 6\n  enforcement: degrade"), 1)
	e.apply(text, loose)
	_, err := e.prof.GetProfile(e.ctx(), &apiv1.GetProfileRequest{Ref: "strict", Abi: 3})
	st := wantStatus(t, err, codes.FailedPrecondition, "UNSUPPORTED_BY_KERNEL")
	var lacks []string
	for _, v := range detail[*errdetails.PreconditionFailure](st).GetViolations() {
		lacks = append(lacks, v.GetSubject())
	}
	all := strings.Join(lacks, " ")
	for _, right := range []string{"layer-1/net/bind_tcp", "layer-1/net/connect_tcp", "layer-1/fs/ioctl_dev", "layer-1/scope/signal"} {
		if !strings.Contains(all, right) {
			t.Errorf("violations %v lack %s", lacks, right)
		}
	}
	r, err := e.prof.GetProfile(e.ctx(), &apiv1.GetProfileRequest{Ref: "loose", Abi: 3})
	if err != nil || len(r.GetMissing()) != len(lacks) {
		t.Fatalf("degrade: missing %v, %v", r.GetMissing(), err)
	}
	if p, err := profile.Decode(r.GetProfile()); err != nil || p.ABI != 3 {
		t.Errorf("reduced profile: %v, %v", p, err)
	}
}

// A large profile is kept in the store, read back by the next policyd, and compiled anew when it was damaged.
func TestCompiledProfilesAreKept(t *testing.T) {
	st := storetest.Open(t)
	e := startOn(t, st, nil)
	var rules bytes.Buffer
	for i := range 3000 {
		fmt.Fprintf(&rules, "        - {allow: [read], at: [/srv/some/folder/number/%d], missing: skip}\n", i)
	}
	e.apply(echoPolicy("large", rules.String()), echoPolicy("other"))
	want, err := e.prof.GetProfile(e.ctx(), &apiv1.GetProfileRequest{Ref: "large"})
	if err != nil {
		t.Fatal(err)
	}
	e.background.Wait()
	v, err := st.Get(store.KindLandlockPolicy, "large")
	if err != nil {
		t.Fatal(err)
	}
	key := compileKey(v, nil)
	kept := e.readCompiled(key)
	if kept == nil || kept.digest != want.GetProfileDigest() || len(kept.origins) != len(want.GetOrigins()) {
		t.Fatalf("kept: %v", kept)
	}
	if got := kept.layerPlaces; len(got) != 1 || !proto.Equal(got[0], want.GetLayerPlaces()[0]) {
		t.Errorf("kept places of layers: %v, want %v", got, want.GetLayerPlaces())
	}
	other, err := st.Get(store.KindLandlockPolicy, "other")
	if err != nil {
		t.Fatal(err)
	}
	raw, _ := st.CachedProfile(key)
	otherKey := compileKey(other, nil)
	var placeless apiv1.GetProfileResponse
	if err := proto.Unmarshal(raw, &placeless); err != nil {
		t.Fatal(err)
	}
	placeless.LayerPlaces, placeless.Version = nil, &apiv1.VersionInfo{Name: otherKey}
	old, err := proto.Marshal(&placeless)
	if err != nil {
		t.Fatal(err)
	}
	for name, damaged := range map[string][]byte{"a former policyd's": old, "another policy's": raw, "cut off": raw[:len(raw)/2], "noise": []byte("noise"), "empty": {}} {
		if err := st.CacheProfile(otherKey, damaged); err != nil {
			t.Fatal(err)
		}
		if c := e.readCompiled(otherKey); c != nil {
			t.Errorf("%s bytes were taken for the profile of %s", name, c.profile.Name)
		}
	}
}

// Parameters cannot be mixed up by putting separators into them.
func TestCompileKeys(t *testing.T) {
	v := &apiv1.Version{Info: &apiv1.VersionInfo{Digest: "sha256:1"}}
	seen := map[string]string{}
	for _, params := range []map[string]string{
		nil, {"a": "b"}, {"a": "b\n1:c=1:d"}, {"a": "b", "c": "d"}, {"a=1:b": ""}, {"a": ""}, {"": "a"},
	} {
		for kind, key := range map[string]string{"compile": compileKey(v, params), "answer": answerKey(&apiv1.GetProfileRequest{Ref: "x", Parameters: params})} {
			if before, ok := seen[kind+key]; ok {
				t.Errorf("%s keys of %v and %s are equal", kind, params, before)
			}
			seen[kind+key] = fmt.Sprint(params)
		}
	}
}

// The lines of origins are those of the file, also for its second document.
func TestOriginLines(t *testing.T) {
	e := start(t, nil)
	text := string(echoPolicy("first")) + "---\n" + string(echoPolicy("second", "        - {allow: [read], at: [/srv/second], missing: skip}\n"))
	e.apply([]byte(text))
	r, err := e.prof.GetProfile(e.ctx(), &apiv1.GetProfileRequest{Ref: "second"})
	if err != nil {
		t.Fatal(err)
	}
	p, err := profile.Decode(r.GetProfile())
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(text, "\n")
	found := false
	for _, o := range r.GetOrigins() {
		if o.GetTable() == apiv1.Origin_TABLE_PATHS && p.Paths[o.GetRow()].Path == "/srv/second" {
			found = true
			if o.GetLine() < 1 || !strings.Contains(lines[o.GetLine()-1], "/srv/second") {
				t.Errorf("line %d is %q", o.GetLine(), lines[o.GetLine()-1])
			}
		}
	}
	if !found {
		t.Error("the rule has no origin")
	}
	for _, l := range r.GetLayerPlaces() {
		// The 7th line of the second document.
		if int(l.GetLine()) != slices.Index(lines, "---")+1+7 || lines[l.GetLine()-1][l.GetColumn()-1:] != "paths:" || l.GetField() != "spec.layers[0]" {
			t.Errorf("layer at %v", l)
		}
	}
	if len(r.GetLayerPlaces()) != len(p.Layers) {
		t.Errorf("%d places of %d layers", len(r.GetLayerPlaces()), len(p.Layers))
	}
}
