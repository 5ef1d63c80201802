package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestFile(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "key"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct{ env, value, want, err string }{
		{"", "/etc/key", "/etc/key", ""},
		{dir, "credential:key", filepath.Join(dir, "key"), ""},
		{"", "credential:key", "", "gave no credentials; the unit needs LoadCredential=key:/PATH"},
		{dir, "credential:cert", "", "LoadCredential=cert:/PATH"},
		{dir, "credential:", "", "not the name of a credential"},
		{dir, "credential:../key", "", "not the name of a credential"},
		{dir, "credential:..", "", "not the name of a credential"},
		{dir, "key", "", "not an absolute path"},
	} {
		t.Setenv(CredentialsEnv, tc.env)
		got, err := File(tc.value)
		if got != tc.want || (err == nil) != (tc.err == "") || err != nil && !strings.Contains(err.Error(), tc.err) {
			t.Errorf("%q with credentials in %q: %q, %v", tc.value, tc.env, got, err)
		}
	}
}
