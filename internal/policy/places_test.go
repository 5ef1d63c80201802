package policy

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"policyd.dev/policyd/internal/errs"
)

func TestPlacePaths(t *testing.T) {
	docs, err := Parse("web.yaml", []byte(`apiVersion: policyd/v1
kind: LandlockPolicy
metadata: {name: web}
spec:
  abi: 1
  layers:
    - name: main
      paths:
        - {allow: [read_file], at: [/srv/here]}
        - {allow: [read_file], at: [/srv/gone, /srv/other]}
`))
	if err != nil {
		t.Fatal(err)
	}
	c, err := Compile(docs[0].Resource.GetLandlockPolicy(), CompileOptions{Document: docs[0]})
	if err != nil {
		t.Fatal(err)
	}
	bad := func(path string, kind error) error {
		return fmt.Errorf("start: %w", &errs.PathError{Path: path, Err: fmt.Errorf("%q: %w", path, kind)})
	}
	const way = "missing: skip"
	for _, tc := range []struct {
		name      string
		err       error
		has, lack []string
	}{
		{
			"missing", bad("/srv/gone", errs.ErrPathMissing),
			[]string{"web.yaml:10: spec.layers[0].paths[1] has \"/srv/gone\"", way},
			[]string{"paths[0]", "/srv/other"},
		},
		{"refused", bad("/srv/here", errs.ErrPathRefused), []string{"web.yaml:9: spec.layers[0].paths[0]"}, []string{way, "paths[1]"}},
		{
			"several", errors.Join(bad("/srv/gone", errs.ErrPathMissing), bad("/srv/here", errs.ErrPathRefused)),
			[]string{"web.yaml:9", "web.yaml:10", way},
			nil,
		},
		{"of no rule", bad("/real", errs.ErrPathMissing), nil, []string{"web.yaml", way}},
		{"of another kind", bad("/srv/gone", errs.ErrStart), nil, []string{"web.yaml", way}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := PlacePaths(tc.err, c.Profile, c.Origins)
			if !errors.Is(got, tc.err) || !strings.HasPrefix(got.Error(), tc.err.Error()) {
				t.Errorf("%v does not go on with %v", got, tc.err)
			}
			for _, s := range tc.has {
				if !strings.Contains(got.Error(), s) {
					t.Errorf("%v lacks %q", got, s)
				}
			}
			for _, s := range tc.lack {
				if strings.Contains(got.Error(), s) {
					t.Errorf("%v has %q", got, s)
				}
			}
		})
	}
	if got := PlacePaths(nil, c.Profile, c.Origins); got != nil {
		t.Errorf("nil became %v", got)
	}
}
