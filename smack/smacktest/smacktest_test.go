package smacktest

import (
	"crypto/sha256"
	"encoding/hex"
	"testing"
)

// The rules are a measure: numbers of two runs compare only when they are the same.
func TestTextStays(t *testing.T) {
	for name, c := range map[string]struct {
		shape  Shape
		digest string
	}{
		"platform": {Platform, "ef0b7d2e62cf6c5bf13114f6bde1a4d18c0868c2320cd6cfbe18c0a022bd530f"},
		"wide":     {Wide, "e2fd44366137555410f3180e6ec53d46fc4417bf320daf343058196c5f95f877"},
	} {
		pairs, labels := map[[2]string]bool{}, map[string]bool{}
		most := map[string]int{}
		c.shape.Each(func(subject, object, access string) {
			if subject == object || pairs[[2]string{subject, object}] {
				t.Fatalf("%s: %s %s is not a new pair", name, subject, object)
			}
			pairs[[2]string{subject, object}] = true
			labels[subject], labels[object] = true, true
			most[subject]++
		})
		if len(pairs) != c.shape.Rules || len(labels) != c.shape.Labels {
			t.Errorf("%s: %d rules over %d labels, want %d over %d", name, len(pairs), len(labels), c.shape.Rules, c.shape.Labels)
		}
		if c.shape.PerSubject > 0 {
			for s, n := range most {
				if n != c.shape.PerSubject {
					t.Errorf("%s: %s has %d objects, want %d", name, s, n, c.shape.PerSubject)
				}
			}
		}
		sum := sha256.Sum256(c.shape.Text())
		if got := hex.EncodeToString(sum[:]); got != c.digest {
			t.Errorf("%s: digest %s, want %s", name, got, c.digest)
		}
	}
}
