package main

import (
	"testing"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
)

// Many skipped paths must not drown what else is to be known of a sandbox.
func TestNotesNameFewSkippedPaths(t *testing.T) {
	for _, c := range []struct {
		skipped []string
		wide    bool
		want    string
	}{
		{nil, true, "outdated"},
		{[]string{"/a", "/b"}, true, "outdated, skipped /a /b"},
		{[]string{"/a", "/b", "/c", "/d"}, true, "outdated, skipped /a /b and 2 more (-o json)"},
		{[]string{"/a", "/b", "/c", "/d"}, false, "outdated"},
	} {
		if got := notes(&apiv1.Sandbox{Outdated: true, Skipped: c.skipped}, c.wide); got != c.want {
			t.Errorf("%v, wide %v: %q, want %q", c.skipped, c.wide, got, c.want)
		}
	}
}
