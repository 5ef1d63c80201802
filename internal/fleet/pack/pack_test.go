package pack

import (
	"errors"
	"strings"
	"testing"

	"policyd.dev/policyd/internal/errs"
	"policyd.dev/policyd/internal/fleet"
	"policyd.dev/policyd/internal/policy"
)

const texts = `apiVersion: policyd/v1
kind: LandlockPolicy
metadata: {name: web}
spec:
  abi: 7
  layers:
    - name: host # a remark
      include: [std/base, own]
      paths: [{allow: [read], at: [/etc/web]}]
---
apiVersion: policyd/v1
kind: Fragment
metadata: {name: own}
spec:
  abi: 7
  paths: [{allow: [read], at: [/srv]}]
`

func parse(t *testing.T, text string) []*policy.Document {
	t.Helper()
	docs, err := policy.Parse("test.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return docs
}

func TestMake(t *testing.T) {
	docs := parse(t, texts)
	b, err := Make(docs, policy.Std(), []string{"web"})
	if err != nil {
		t.Fatal(err)
	}
	raw, err := fleet.Encode(b)
	if err != nil {
		t.Fatal(err)
	}
	got, err := fleet.Decode(raw)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, d := range got.Docs {
		names = append(names, d.Kind+"/"+d.Name)
	}
	if have := strings.Join(names, " "); !strings.HasPrefix(have, "Fragment/own Fragment/std/base") || !strings.HasSuffix(have, "LandlockPolicy/web") {
		t.Errorf("holds %s", have)
	}
	if !strings.Contains(got.Docs[len(got.Docs)-1].Text, "# a remark") {
		t.Error("the author's text is lost")
	}
	// The digest is the one by which policyd names the version.
	pins, _, err := policy.Pin(docs[0], policy.WithDocuments(docs, policy.Std()))
	if err != nil {
		t.Fatal(err)
	}
	if want := policy.ContentDigest(docs[0].Resource, pins); got.Docs[len(got.Docs)-1].Digest != want {
		t.Errorf("digest %s, want %s", got.Docs[len(got.Docs)-1].Digest, want)
	}
	if _, err := Documents(got); err != nil {
		t.Error(err)
	}
	again, err := Make(parse(t, texts), policy.Std(), []string{"web"})
	if err != nil {
		t.Fatal(err)
	}
	if two, err := fleet.Encode(again); err != nil || fleet.Digest(two) != fleet.Digest(raw) {
		t.Errorf("made again: %v", err)
	}
}

func TestMakeRefuses(t *testing.T) {
	if _, err := Make(parse(t, texts), policy.Std(), []string{"db"}); !errors.Is(err, errs.ErrInvalid) {
		t.Errorf("a stranger open to nodes: %v", err)
	}
	policyOnly, _, _ := strings.Cut(texts, "---")
	if _, err := Make(parse(t, policyOnly), policy.Std(), nil); err == nil {
		t.Error("a fragment is nowhere, and it was made")
	}
}

// A bundle whose digests do not fit its texts is refused, whoever signed it.
func TestDocumentsRefuses(t *testing.T) {
	made := func() *fleet.Bundle {
		b, err := Make(parse(t, texts), policy.Std(), nil)
		if err != nil {
			t.Fatal(err)
		}
		raw, err := fleet.Encode(b) // which sorts
		if err != nil {
			t.Fatal(err)
		}
		b, err = fleet.Decode(raw)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	for name, tc := range map[string]struct {
		change func(*fleet.Bundle)
		want   error
	}{
		"text changed":         {func(b *fleet.Bundle) { last(b).Text = strings.Replace(last(b).Text, "/etc/web", "/etc", 1) }, errs.ErrTampered},
		"fragment changed":     {func(b *fleet.Bundle) { b.Docs[0].Text = strings.Replace(b.Docs[0].Text, "/srv", "/home", 1) }, errs.ErrTampered},
		"another document":     {func(b *fleet.Bundle) { b.Docs[0].Name = "db" }, errs.ErrTampered},
		"two documents in one": {func(b *fleet.Bundle) { b.Docs[0].Text += "\n---\n" + b.Docs[1].Text }, errs.ErrTampered},
		"fragment missing":     {func(b *fleet.Bundle) { b.Docs = b.Docs[1:] }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			b := made()
			tc.change(b)
			if _, err := Documents(b); err == nil || tc.want != nil && !errors.Is(err, tc.want) {
				t.Errorf("have %v, want %v", err, tc.want)
			}
		})
	}
}

func last(b *fleet.Bundle) *fleet.Doc { return &b.Docs[len(b.Docs)-1] }
