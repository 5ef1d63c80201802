package exchange

import (
	"strings"
	"testing"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/enforce/profile"
	"policyd.dev/policyd/internal/policy"
)

// read wants policies without errors.
func read(t *testing.T, format string, o Options, files ...File) *Import {
	t.Helper()
	im, err := Read(format, files, o)
	if err != nil {
		t.Fatal(err)
	}
	return im
}

// compiled prints a policy, reads it again and compiles it: what a user gets.
func compiled(t *testing.T, im *Import) *profile.Profile {
	t.Helper()
	text, err := im.Text("from a test")
	if err != nil {
		t.Fatal(err)
	}
	docs, err := policy.Parse("x.yaml", text)
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	c, err := policy.Compile(docs[0].Resource.GetLandlockPolicy(), policy.CompileOptions{})
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return c.Profile
}

// remarks are the texts of remarks with their places.
func remarks(im *Import) string {
	var b strings.Builder
	for _, f := range im.Remarks {
		b.WriteString(policy.FormatFinding(f) + "\n")
	}
	return b.String()
}

// wantPath asks whether rights on a path are granted by all layers.
func wantPath(t *testing.T, p *profile.Profile, path string, a profile.Access, want bool) {
	t.Helper()
	if d := p.DecidePath(path, a); d.Allowed != want {
		t.Errorf("%s on %s: %v, want allowed %v", profile.FS.Format(a), path, d, want)
	}
}

func wantPort(t *testing.T, p *profile.Profile, port uint16, a profile.Access, want bool) {
	t.Helper()
	if d := p.DecidePort(port, a); d.Allowed != want {
		t.Errorf("%s on %d: %v, want allowed %v", profile.Net.Format(a), port, d, want)
	}
}

func layerOf(p *apiv1.LandlockPolicy) *apiv1.Layer { return p.GetSpec().GetLayers()[0] }
