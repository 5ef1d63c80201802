package landlock

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"policyd.dev/policyd/enforce/profile"
	"policyd.dev/policyd/internal/errs"
)

// A link that the program may replace must not decide what the next run is granted.
func TestOwnLinks(t *testing.T) {
	sup := support(t)
	root := tree(t, "work/sub/file", "other/file", "fixed/keep")
	for link, target := range map[string]string{"work/planted": "../other", "fixed/link": root + "/other", "work/chain": root + "/fixed/link"} {
		if err := os.Symlink(target, filepath.Join(root, link)); err != nil {
			t.Fatal(err)
		}
	}
	const (
		read  = profile.FSReadFile | profile.FSReadDir
		write = read | profile.FSWriteFile | profile.FSMakeReg | profile.FSMakeSym | profile.FSRemoveFile
	)
	at := func(p string) string { return filepath.Join(root, p) }
	for _, tc := range []struct {
		name    string
		layers  int
		flatten bool
		rules   []rule
		refused bool
	}{
		{"a planted link that grants more", 1, false, []rule{{path: at("work"), access: write}, {path: at("work/planted"), access: read | profile.FSExecute}}, true},
		{"on the way, not at the end", 1, false, []rule{{path: at("work"), access: write}, {path: at("work/planted/file"), access: profile.FSExecute}}, true},
		{"the first link of a chain", 1, false, []rule{{path: at("work"), access: write}, {path: at("work/chain"), access: profile.FSExecute}}, true},
		{"flattened", 1, true, []rule{{path: at("work"), access: write}, {path: at("work/planted"), access: profile.FSExecute}}, true},
		{"no more than the program has where the link lies", 1, false, []rule{{path: at("work"), access: write}, {path: at("work/planted"), access: read}}, false},
		{"a link it cannot replace", 1, false, []rule{{path: at("work"), access: write}, {path: at("fixed/link"), access: read | profile.FSExecute}}, false},
		{"the folder of links is only read", 1, false, []rule{{path: at("work"), access: read}, {path: at("work/planted"), access: read | profile.FSExecute}}, false},
		{"a second layer forbids to make links", 2, false, []rule{{path: at("work"), access: write}, {path: at("work/planted"), access: read | profile.FSExecute}}, false},
		{"no link", 1, false, []rule{{path: at("work"), access: write}, {path: at("work/sub"), access: read | profile.FSExecute}}, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := newProfile(t, layers([]string{"one", "two"}[:tc.layers]...), tc.rules...)
			p.Flatten = tc.flatten
			if tc.layers == 2 { // the rules are the first layer's: the second grants reading alone
				for i := range p.Paths {
					p.Paths[i].Access[1] = read
				}
			}
			r, err := Build(p, sup)
			if err == nil {
				r.Release()
			}
			if refused := errors.Is(err, errs.ErrPathRefused); refused != tc.refused || (err != nil) != tc.refused {
				t.Errorf("refused: %t, want %t (%v)", refused, tc.refused, err)
			}
			if tc.refused && err != nil && !strings.Contains(err.Error(), at("work")) {
				t.Errorf("the message does not say where the link lies: %v", err)
			}
		})
	}
}
