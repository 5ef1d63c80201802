package main

import (
	"strings"
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

// TestIDsOfEngines are cut in a table as engines cut them; -o wide and names that somebody chose are whole.
func TestIDsOfEngines(t *testing.T) {
	drawn := strings.Repeat("0123456789abcdef", 4)
	for _, tc := range []struct {
		id, table string
	}{
		{drawn, "0123456789ab"},
		{"shop1", "shop1"},
		{strings.Repeat("g", 64), strings.Repeat("g", 64)},
		{drawn[:63], drawn[:63]},
	} {
		k := &apiv1.Container{Id: tc.id}
		if got := containerCells(k, false)[1]; got != tc.table {
			t.Errorf("%s: %s, want %s", tc.id, got, tc.table)
		}
		if got := containerCells(k, true)[1]; got != tc.id {
			t.Errorf("%s: wide %s", tc.id, got)
		}
	}
}
