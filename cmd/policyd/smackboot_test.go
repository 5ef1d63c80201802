package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"policyd.dev/policyd/internal/smackhost"
	"policyd.dev/policyd/store"
)

// TestSmackBootStores: without an assigned policy there is nothing to do, whatever the store; one that cannot be read is an error,
// and one of an older policyd is migrated.
func TestSmackBootStores(t *testing.T) {
	old, err := os.ReadFile("../../store/testdata/schema-3.db")
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		store []byte
		code  int
		want  string
	}{
		"none":    {nil, exitOK, "no store"},
		"older":   {old, exitOK, "must be migrated first"},
		"damaged": {bytes.Repeat([]byte{0xff}, 32<<10), exitFailure, "store is damaged"},
		"empty":   {[]byte{}, exitFailure, ""},
	} {
		dir := filepath.Join(folder(t), "state")
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if tc.store != nil {
			if err := os.WriteFile(filepath.Join(dir, "policyd.db"), tc.store, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		var out bytes.Buffer
		if code := run([]string{"smack-boot", "--state-dir", dir}, &out, &out); code != tc.code || !strings.Contains(out.String(), tc.want) {
			t.Errorf("%s: exit %d\n%s", name, code, &out)
		}
		if _, err := os.Stat(filepath.Join(dir, "run", smackhost.EarlyFile)); err == nil {
			t.Errorf("%s: it has noted a change", name)
		}
		if name == "older" {
			st, err := store.Open(filepath.Join(dir, "policyd.db"), store.Options{ReadOnly: true})
			if err != nil {
				t.Errorf("%s: %v", name, err)
				continue
			}
			st.Close()
		}
	}
	for _, args := range [][]string{{"smack-boot", "--user"}, {"smack-boot", "--config", "/x"}, {"--user", "--system"}} {
		var out bytes.Buffer
		if code := run(args, &out, &out); code != exitUsage {
			t.Errorf("%q: exit %d\n%s", args, code, &out)
		}
	}
}
