package policy

import (
	"bytes"
	"testing"

	"policyd.dev/policyd/smack"
	"policyd.dev/policyd/smack/smacktest"
)

// compiledImport compiles a document that import printed.
func compiledImport(t *testing.T, text []byte) *CompiledSmack {
	t.Helper()
	docs, err := Parse("imported.yaml", text)
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	c, err := CompileSmack(docs[0].Resource.GetSmackPolicy(), docs[0])
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// A large set goes through import, the document, both exports and import again
// without a change.
func TestSmackRoundTrip(t *testing.T) {
	want, _, err := smack.ParseRules("all", smacktest.Platform.Text())
	if err != nil {
		t.Fatal(err)
	}
	files := []smack.File{{Name: "accesses.d/all", Data: smacktest.Platform.Text()}}
	for _, export := range []func(*smack.Set, *smack.Settings) ([]smack.File, []string){smack.ExportSystemd, smack.ExportLibsmack} {
		im, err := ImportSmack(files, smack.ImportOptions{}, "p")
		if err != nil {
			t.Fatal(err)
		}
		c := compiledImport(t, im.Text)
		got := c.Policy.Effective()
		if d := got.Difference(want); !d.Empty() || got.Len() != want.Len() {
			t.Fatalf("%d rules of %d, %d differ", got.Len(), want.Len(), d.Len())
		}
		var lost []string
		if files, lost = export(got, &c.Policy.Settings); len(lost) > 0 {
			t.Fatalf("lost: %v", lost)
		}
	}
}

// What can be imported can be printed, and says the same: ImportSmack compares
// both, and its only failures are those of the files.
func FuzzSmackImport(f *testing.F) {
	for _, s := range []string{
		"A B rwx\nA B w r\n", "# foo rwx\n #x Y r\n; a b\n", "~A~ B r\n", "{{#a}}\nX {{b}} r\n{{/a}}\n", "A B -\nA B - -\n", "<manifest><define><domain name=\"a\"/></define></manifest>",
		"A\x80 B r\n", "  A\tB  R-X \r\n", "* _ t\n? @ r\n~ ` x\n",
	} {
		f.Add("accesses.d/x", []byte(s))
	}
	f.Add("cipso.d/x", []byte("TS 7 1 2\nA 1   1   2   \n"))
	f.Add("netlabel.d/x", []byte("10.0.0.0/8 A\n# c\nfe80::/10 -DELETE\n0.0.0.0/0 -CIPSO\n"))
	f.Add("onlycap", []byte("A B\n_"))
	f.Add("unconfined", []byte("A"))
	f.Add("a\nb\" rwx/\x1b r\xff", []byte("A B r"))
	f.Fuzz(func(t *testing.T, name string, data []byte) {
		files := []smack.File{{Name: name, Data: data}}
		o := smack.ImportOptions{Set: map[string][]string{"A": {"x"}, "a": {"1", "2"}, "a.b": {"1", "2"}}}
		im, err := smack.ImportFiles(files, o)
		printed, printErr := ImportSmack(files, o, "p")
		if (err == nil) != (printErr == nil) {
			t.Fatalf("read: %v, printed: %v", err, printErr)
		}
		if err != nil {
			return
		}
		text := printed.Text
		again, err := Format(text)
		if err != nil || !bytes.Equal(again, text) {
			t.Fatalf("%v: not formatted:\n%s", err, text)
		}
		if got := compiledImport(t, text).Policy.Settings.Difference(&im.Settings); len(got) > 0 {
			t.Errorf("settings differ: %v", got)
		}
	})
}
