package fleet

import (
	"testing"
	"time"

	"golang.org/x/mod/sumdb/note"
)

// Keys of the tests: fixed, so that golden files are signed by them. They are
// made from texts and are good for nothing else.
type testKey struct {
	signer   note.Signer
	verifier string
}

func newTestKey(t testing.TB, name string) testKey {
	t.Helper()
	private, public, err := NewKey(name)
	if err != nil {
		t.Fatal(err)
	}
	s, err := note.NewSigner(private)
	if err != nil {
		t.Fatal(err)
	}
	return testKey{s, public}
}

// keys are two content keys and two rollout keys; one of each must sign.
type keys struct{ alice, bob, ci, night testKey }

func newKeys(t testing.TB) keys {
	t.Helper()
	return keys{newTestKey(t, "alice"), newTestKey(t, "bob"), newTestKey(t, "ci"), newTestKey(t, "night")}
}

func (k keys) trust(threshold int) Trust {
	return Trust{
		Content: Signers{threshold, []string{k.alice.verifier, k.bob.verifier}},
		Rollout: Signers{threshold, []string{k.ci.verifier, k.night.verifier}},
	}
}

var testTime = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

func digestOf(s string) string { return Digest([]byte(s)) }

func testBundle() *Bundle {
	return &Bundle{
		Docs: []Doc{
			{"LandlockPolicy", "web", digestOf("web"), "kind: LandlockPolicy # web\n"},
			{"Fragment", "std/base", digestOf("base"), "kind: Fragment\n"},
			{"Binding", "web", digestOf("binding"), "kind: Binding\n"},
		},
		Local: []string{"web"},
	}
}

func testPointer() *Pointer {
	return &Pointer{
		Fleet: "prod", Channel: "stable", Seq: 7, Digest: digestOf("new"), Prev: digestOf("old"),
		Issued: testTime, NotAfter: testTime.Add(720 * time.Hour),
		Rollout: Rollout{
			ID: "r7", Percent: 500, Stages: []int{100, 500, 2500, Full}, Labels: map[string]string{"zone": "eu", "tier": ""},
			Soak: 10 * time.Minute, MaxFailed: 100, MinLoaded: 9900,
		},
		By: "anna", Message: "open port 8080\n\"now\"",
	}
}
