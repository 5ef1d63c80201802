package store

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"path/filepath"
	"slices"
	"testing"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
)

var alice = Actor{Name: "uid:1000"}

func digestOf(s string) string {
	sum := sha256.Sum256([]byte(s))
	return digestPrefix + hex.EncodeToString(sum[:])
}

// policy makes a policy whose digest depends on its name and content, pinning fragments.
func policy(name, content string, pins ...*apiv1.Fragment) Put {
	p := Put{
		Kind: KindLandlockPolicy, Name: name, Source: "# " + content, SourceName: name + ".yaml",
		Resource: &apiv1.Resource{Kind: &apiv1.Resource_LandlockPolicy{LandlockPolicy: &apiv1.LandlockPolicy{
			Metadata: &apiv1.Metadata{Name: name, Description: content}, Spec: &apiv1.LandlockSpec{Abi: 7},
		}}},
	}
	return pinned(p, content, pins)
}

func fragment(name, content string, pins ...*apiv1.Fragment) Put {
	p := Put{Kind: KindFragment, Name: name, Resource: &apiv1.Resource{Kind: &apiv1.Resource_Fragment{
		Fragment: fragmentOf(name, content),
	}}}
	return pinned(p, content, pins)
}

func fragmentOf(name, content string) *apiv1.Fragment {
	return &apiv1.Fragment{Metadata: &apiv1.Metadata{Name: name, Description: content}}
}

func fragmentDigest(f *apiv1.Fragment) string {
	return digestOf(f.GetMetadata().GetName() + f.GetMetadata().GetDescription())
}

func pinned(p Put, content string, pins []*apiv1.Fragment) Put {
	p.Digest = digestOf(p.Name + content)
	for _, f := range pins {
		d := fragmentDigest(f)
		p.Pins = append(p.Pins, &apiv1.Pin{Name: f.GetMetadata().GetName(), Digest: d})
		if p.PinContents == nil {
			p.PinContents = make(map[string]*apiv1.Fragment)
		}
		p.PinContents[d] = f
		p.Digest = digestOf(p.Digest + d)
	}
	return p
}

func labelled(p Put, labels map[string]string) Put {
	metadataOf(p.Resource, p.Kind).Labels = labels
	return p
}

func expecting(p Put, n uint64) Put {
	p.Expect = &n
	return p
}

// openTest opens a store that is checked whole when the test ends, as storetest does for other packages.
func openTest(t testing.TB, o Options) *Store {
	t.Helper()
	o.NoSync = true
	return openAt(t, filepath.Join(t.TempDir(), "policyd.db"), o)
}

func openAt(t testing.TB, path string, o Options) *Store {
	t.Helper()
	s, err := Open(path, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
		wholeFile(t, path)
	})
	return s
}

// wholeFile fails the test for every problem of a closed store.
func wholeFile(t testing.TB, path string) {
	t.Helper()
	problems, _, _, err := CheckFile(context.Background(), path)
	if err != nil {
		t.Errorf("check: %v", err)
	}
	for _, p := range problems {
		t.Errorf("check: %s", p)
	}
}

func mustApply(t testing.TB, s *Store, puts ...Put) []Applied {
	t.Helper()
	applied, err := s.Apply(t.Context(), alice, puts)
	if err != nil {
		t.Fatal(err)
	}
	return applied
}

func numbers(infos []*apiv1.VersionInfo) []uint64 {
	var out []uint64
	for _, i := range infos {
		out = append(out, i.GetNumber())
	}
	return out
}

func names(infos []*apiv1.VersionInfo) []string {
	var out []string
	for _, i := range infos {
		out = append(out, i.GetName())
	}
	return out
}

func sandbox(id, policy string, version uint64, state apiv1.SandboxState) *apiv1.Sandbox {
	return &apiv1.Sandbox{Id: id, Policy: policy, Version: version, State: state}
}

func equal[T comparable](t testing.TB, what string, got, want []T) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}
