package landlock

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"policyd.dev/policyd/enforce/profile"
	"policyd.dev/policyd/internal/errs"
)

// TestWithin: links may lead about in the folder that must hold the path, not out of it.
func TestWithin(t *testing.T) {
	sup := support(t)
	leakCheck(t)
	root := tree(t, "srv/web/file", "srv/webs/file", "secret/file")
	srv := filepath.Join(root, "srv")
	for name, target := range map[string]string{
		"srv/inside": filepath.Join(srv, "web"), "srv/out": filepath.Join(root, "secret"), "srv/up": "..", "srv/web/beside": "../webs",
		"srv/chain": "inside/file", "alias": "srv", "srv/gone": "nothing",
	} {
		if err := os.Symlink(target, filepath.Join(root, name)); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		within, path string
		refused      error
	}{
		{"srv", "srv", nil},
		{"srv", "srv/web/file", nil},
		{"srv", "srv/inside/file", nil},
		{"srv", "srv/chain", nil},
		{"srv", "srv/web/beside/file", nil},
		{"alias", "alias/inside/file", nil}, // the folder itself may be reached by a link
		{"srv/web", "srv/web/beside/file", errs.ErrPathRefused},
		{"srv", "srv/out", errs.ErrPathRefused},
		{"srv", "srv/out/file", errs.ErrPathRefused},
		{"srv", "srv/up/secret", errs.ErrPathRefused},
		{"srv", "srv/up", errs.ErrPathRefused},
		{"srv", "srv/gone", errs.ErrPathMissing},
	} {
		for _, n := range []int{1, profile.MaxKernelLayers + 1} { // as it is, and flattened
			ls := layers("a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m", "n", "o", "p", "q")[:n]
			b := profile.NewBuilder(ls)
			path := filepath.Join(root, c.path)
			for i := range ls {
				b.AddPath(i, path, profile.FSReadFile, false, profile.Fail)
			}
			b.KeepWithin(path, len(filepath.Join(root, c.within)))
			p, err := b.Build()
			if err != nil {
				t.Fatal(err)
			}
			r, err := Build(p, sup)
			if !errors.Is(err, c.refused) {
				t.Errorf("%s within %s, %d layers: %v, want %v", c.path, c.within, n, err, c.refused)
			}
			if r != nil {
				r.Release()
			}
		}
	}
}
