package units

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// systemd 252 shows every service's credentials as unprintable, whether it has any or not.
func TestNeedsOfCredentials(t *testing.T) {
	for name, tc := range map[string]struct {
		show, file, dropIn string
		needed             bool
	}{
		"not shown":            {"", "", "", false},
		"shown":                {"LoadCredential=key:/etc/key", "", "", true},
		"none":                 {"LoadCredential=[unprintable]", "ExecStart=/bin/x", "", false},
		"in the file":          {"LoadCredential=[unprintable]", "LoadCredential=key:/etc/key", "", true},
		"in a drop-in":         {"SetCredentialEncrypted=[unprintable]", "ExecStart=/bin/x", "SetCredentialEncrypted=key: AAAA", true},
		"another":              {"LoadCredential=[unprintable]", "SetCredential=key:x", "", false},
		"taken back":           {"LoadCredential=[unprintable]", "LoadCredential=key:/etc/key", "LoadCredential=", false},
		"taken back and again": {"LoadCredential=[unprintable]", "LoadCredential=a:/a\nLoadCredential=\nLoadCredential=b:/b", "", true},
	} {
		dir := t.TempDir()
		fragment, dropIn := filepath.Join(dir, "x.service"), filepath.Join(dir, "10.conf")
		for path, text := range map[string]string{fragment: tc.file, dropIn: tc.dropIn} {
			if err := os.WriteFile(path, []byte("[Service]\n"+text+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		s := service(t, "x.service", "", tc.show+"\nFragmentPath="+fragment+"\nDropInPaths="+dropIn+"\n")
		var needed bool
		for _, n := range s.Needs(false) {
			needed = needed || n.Path == "/run/credentials/x.service"
		}
		if needed != tc.needed {
			t.Errorf("%s: %t, want %t", name, needed, tc.needed)
		}
	}
	s := service(t, "x.service", "", "LoadCredential=[unprintable]\nFragmentPath=/nowhere/x.service\n")
	if n := s.Needs(false); len(n) != 1 || !strings.HasPrefix(n[0].Setting, "LoadCredential") {
		t.Errorf("a file that cannot be read: %+v", n)
	}
}
