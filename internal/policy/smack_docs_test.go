package policy

import (
	"os"
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// TestSmackKeysAreDocumented holds that docs/policy-language.md names every key.
func TestSmackKeysAreDocumented(t *testing.T) {
	src, err := os.ReadFile(docFile)
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(src), "\n## SmackPolicy\n")
	section, _, _ = strings.Cut(section, "\n## ")
	n := 0
	var look func(md protoreflect.MessageDescriptor)
	look = func(md protoreflect.MessageDescriptor) {
		for i := range md.Fields().Len() {
			f := md.Fields().Get(i)
			if n++; !strings.Contains(section, "`"+f.JSONName()+"`") {
				t.Errorf("%s.%s is not in the section on SmackPolicy", md.Name(), f.JSONName())
			}
			if m := f.Message(); m != nil && !f.IsMap() && m.Name() != "StringList" {
				look(m)
			}
		}
	}
	look(messageOf(KindSmack).Fields().ByName("spec").Message())
	if n < 35 {
		t.Errorf("only %d keys", n)
	}
}
