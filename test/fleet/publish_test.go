package fleettest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/mod/sumdb/note"

	"policyd.dev/policyd/internal/fleet"
	"policyd.dev/policyd/internal/fleet/kv"
	"policyd.dev/policyd/internal/fleet/pack"
	"policyd.dev/policyd/internal/policy"
)

// key is a signing key of somebody.
type key struct {
	signer            note.Signer
	private, verifier string
}

func newKey(t testing.TB, name string) key {
	t.Helper()
	private, public, err := fleet.NewKey(name)
	if err != nil {
		t.Fatal(err)
	}
	s, err := note.NewSigner(private)
	if err != nil {
		t.Fatal(err)
	}
	return key{s, private, public}
}

// publisher has the keys of a fleet and writes into its etcd.
type publisher struct {
	t                testing.TB
	content, rollout key
	store            *kv.Store
	seq              uint64
}

const fleetName = "prod"

func newPublisher(t testing.TB, client *clientv3.Client) *publisher {
	t.Helper()
	s, err := kv.New(client, fleetName)
	if err != nil {
		t.Fatal(err)
	}
	return &publisher{t: t, content: newKey(t, "content"), rollout: newKey(t, "rollout"), store: s}
}

func (p *publisher) trust() fleet.Trust {
	return fleet.Trust{
		Content: fleet.Signers{Threshold: 1, Keys: []string{p.content.verifier}},
		Rollout: fleet.Signers{Threshold: 1, Keys: []string{p.rollout.verifier}},
	}
}

// webPolicy is a policy of an ABI that every kernel with Landlock has.
func webPolicy(name, path string) string {
	return fmt.Sprintf("apiVersion: policyd/v1\nkind: LandlockPolicy\nmetadata: {name: %s}\nspec:\n  abi: 1\n  layers:\n    - name: app\n      include: [std/shell]\n      handles: {fs: all}\n      paths:\n        - {allow: [read], at: [%s], missing: skip}\n", name, path)
}

// tooNew is a policy that requires what no kernel has that is not of the newest.
const tooNew = "apiVersion: policyd/v1\nkind: LandlockPolicy\nmetadata: {name: web}\nspec:\n  abi: 11\n  layers:\n    - handles: {fs: all, net: all}\n      scope: all\n"

// bundle makes the bytes of a bundle of texts, and its digest.
func bundle(t testing.TB, texts ...string) ([]byte, string) {
	t.Helper()
	docs, err := policy.Parse("bundle.yaml", []byte(strings.Join(texts, "---\n")))
	if err != nil {
		t.Fatal(err)
	}
	b, err := pack.Make(docs, policy.Std(), nil)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := fleet.Encode(b)
	if err != nil {
		t.Fatal(err)
	}
	return raw, fleet.Digest(raw)
}

// blob signs a bundle.
func (p *publisher) blob(raw []byte, by ...note.Signer) []byte {
	p.t.Helper()
	return p.blobAt(raw, "", by...)
}

func (p *publisher) blobAt(raw []byte, url string, by ...note.Signer) []byte {
	p.t.Helper()
	if by == nil {
		by = []note.Signer{p.content.signer}
	}
	m, err := fleet.NewManifest(fleetName, raw, time.Now(), "for the test")
	if err != nil {
		p.t.Fatal(err)
	}
	signed, err := fleet.SignManifest(m, by...)
	if err != nil {
		p.t.Fatal(err)
	}
	b := &fleet.Blob{Manifest: signed, Bundle: raw}
	if url != "" {
		b = &fleet.Blob{Manifest: signed, URL: url}
	}
	out, err := fleet.EncodeBlob(b)
	if err != nil {
		p.t.Fatal(err)
	}
	return out
}

// publish puts a bundle into etcd and gives its digest.
func (p *publisher) publish(texts ...string) string {
	p.t.Helper()
	raw, digest := bundle(p.t, texts...)
	p.putBlob(digest, p.blob(raw))
	return digest
}

func (p *publisher) putBlob(digest string, blob []byte) {
	p.t.Helper()
	if _, err := p.store.PutBlob(p.t.Context(), digest, blob); err != nil {
		p.t.Fatal(err)
	}
}

// pointer makes the next pointer of channel stable.
func (p *publisher) pointer(digest, prev string, percent int) *fleet.Pointer {
	p.seq++
	now := time.Now().UTC().Truncate(time.Second)
	stages := []int{fleet.Full}
	if percent != fleet.Full {
		stages = []int{percent, fleet.Full}
	}
	return &fleet.Pointer{
		Fleet: fleetName, Channel: "stable", Seq: p.seq, Digest: digest, Prev: prev, Issued: now, NotAfter: now.Add(24 * time.Hour),
		Rollout: fleet.Rollout{ID: "r" + strings.TrimPrefix(digest, "sha256:")[:8], Percent: percent, Stages: stages, MinLoaded: fleet.Full},
	}
}

func (p *publisher) sign(ptr *fleet.Pointer, by ...note.Signer) []byte {
	p.t.Helper()
	if by == nil {
		by = []note.Signer{p.rollout.signer}
	}
	signed, err := fleet.SignPointer(ptr, by...)
	if err != nil {
		p.t.Fatal(err)
	}
	return signed
}

// put writes whatever to the channel's key, as somebody with the right to could.
func (p *publisher) put(channel string, signed []byte) {
	p.t.Helper()
	if _, err := p.store.Client.Put(p.t.Context(), p.store.Layout.Channel(channel), string(signed)); err != nil {
		p.t.Fatal(err)
	}
}

// rollout points the channel at a bundle for everybody.
func (p *publisher) rollOut(digest string) *fleet.Pointer {
	p.t.Helper()
	ptr := p.pointer(digest, "", fleet.Full)
	p.put("stable", p.sign(ptr))
	return ptr
}

// status is what a node says under its lease, nil when it says nothing.
func (p *publisher) status(node string) *fleet.Status { return p.record(p.store.Layout.Status(node)) }

// last is what a node has said last.
func (p *publisher) last(node string) *fleet.Status { return p.record(p.store.Layout.Last(node)) }

func (p *publisher) record(key string) *fleet.Status {
	p.t.Helper()
	r, err := p.store.Client.Get(p.t.Context(), key)
	if err != nil || len(r.Kvs) == 0 {
		return nil // the test asks again, and says what it waits for
	}
	s := &fleet.Status{}
	if err := fleet.Unmarshal(r.Kvs[0].Value, s); err != nil {
		p.t.Fatal(err)
	}
	return s
}

// says tells whether a node says of itself that it is in a state with a bundle.
func (p *publisher) says(node string, state fleet.State, digest string) error {
	s := p.status(node)
	if s == nil {
		return fmt.Errorf("%s has not said anything", node)
	}
	if s.State != state || s.LoadedDigest != digest {
		return fmt.Errorf("%s is %s with %q (%s), want %s with %q", node, s.State, s.LoadedDigest, s.Message, state, digest)
	}
	return nil
}

func writeFile(t *testing.T, name string, data []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
