package landlock

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"policyd.dev/policyd/enforce/profile"
	"policyd.dev/policyd/internal/errs"
	"policyd.dev/policyd/internal/testkernel"
)

func get(t testing.TB, c *Cache, p *profile.Profile, sup Support) *Rulesets {
	t.Helper()
	r, release, err := c.Get(p, profile.Digest(p.Encode()), sup)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(release)
	return r
}

func TestCacheLooksAgain(t *testing.T) {
	testkernel.Each(t, testkernel.Landlock, func(t *testing.T) {
		sup := support(t)
		root := tree(t, "dir/file", "other/file")
		dir, file, later, link := filepath.Join(root, "dir"), filepath.Join(root, "dir/file"), filepath.Join(root, "later"), filepath.Join(root, "link")
		os.Symlink(dir, link)
		p := newProfile(t, layers("a"), rule{path: file, access: profile.FSReadFile}, rule{path: link, access: profile.FSReadDir}, rule{later, read, profile.Skip})
		c := NewCache(4)
		t.Cleanup(c.Close)
		first := get(t, c, p, sup)
		if get(t, c, p, sup) != first {
			t.Error("built again without a reason")
		}
		// Content and mode do not make another inode.
		os.WriteFile(file, []byte("longer than it was"), 0o600)
		os.Chmod(file, 0o600)
		os.WriteFile(filepath.Join(dir, "more"), nil, 0o600)
		if get(t, c, p, sup) != first {
			t.Error("built again for a change of content")
		}
		changes := []struct {
			name string
			do   func() error
		}{
			{"replaced by rename", func() error {
				if err := os.WriteFile(file+".new", nil, 0o644); err != nil {
					return err
				}
				return os.Rename(file+".new", file)
			}},
			{"removed and made again", func() error { os.Remove(file); return os.WriteFile(file, nil, 0o644) }},
			{"link turned", func() error { os.Remove(link); return os.Symlink(filepath.Join(root, "other"), link) }},
			{"skipped path has come", func() error { return os.Mkdir(later, 0o755) }},
			{"skipped path is gone again", func() error { return os.Remove(later) }},
		}
		last := first
		for _, change := range changes {
			if err := change.do(); err != nil {
				t.Fatal(err)
			}
			now := get(t, c, p, sup)
			if now == last {
				t.Errorf("%s: not built again", change.name)
			}
			restricted(t, now, func() {
				if err := canRead(file); err != nil {
					t.Errorf("%s: %v", change.name, err)
				}
			})
			if get(t, c, p, sup) != now {
				t.Errorf("%s: built again twice", change.name)
			}
			last = now
		}
		// Gone for good is an error, and what was kept is not used.
		os.Remove(file)
		if _, _, err := c.Get(p, profile.Digest(p.Encode()), sup); !errors.Is(err, errs.ErrPathMissing) {
			t.Errorf("removed: %v", err)
		}
		// Another ABI is another key.
		os.WriteFile(file, nil, 0o644)
		if sup.ABI > 1 && get(t, c, p, sup) == get(t, c, p, sup.Limit(1)) {
			t.Error("one ruleset for two ABIs")
		}
	})
}

func TestCacheBound(t *testing.T) {
	sup := support(t)
	root := tree(t, "f")
	c := NewCache(3)
	before := countFDs(t)
	var held *Rulesets
	var releaseHeld func()
	for i := range 10 {
		p := newProfile(t, layers(fmt.Sprint("l", i)), rule{path: root, access: read})
		r, release, err := c.Get(p, fmt.Sprint("digest", i), sup)
		if err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			held, releaseHeld = r, release
			continue
		}
		release()
	}
	if c.Len() != 3 || countFDs(t) != before+4 {
		t.Errorf("%d kept, %d descriptors more", c.Len(), countFDs(t)-before)
	}
	// Put out of the cache, still usable by who holds it.
	restricted(t, held, func() {
		if canRead(root) != nil || canRead("/etc") != unix.EACCES {
			t.Error("rulesets in use were closed")
		}
	})
	releaseHeld()
	c.Close()
	if n := countFDs(t); n != before {
		t.Errorf("%d descriptors before, %d after", before, n)
	}
	if held.retain() {
		t.Error("rulesets came back from the dead")
	}
}

func TestCacheFailedBuildIsNotKept(t *testing.T) {
	sup := support(t)
	leakCheck(t)
	root := tree(t, "x")
	p := newProfile(t, layers("a"), rule{path: filepath.Join(root, "late"), access: read})
	c := NewCache(2)
	defer c.Close()
	if _, _, err := c.Get(p, "d", sup); !errors.Is(err, errs.ErrPathMissing) || c.Len() != 0 {
		t.Errorf("error %v, %d kept", err, c.Len())
	}
	os.Mkdir(filepath.Join(root, "late"), 0o755)
	_, release, err := c.Get(p, "d", sup)
	if err != nil {
		t.Fatal(err)
	}
	release()
}

// TestCacheConcurrent: many callers, few profiles, a path replaced all the
// time, a cache too small for all. Whoever gets rulesets can use them.
func TestCacheConcurrent(t *testing.T) {
	sup := support(t)
	leakCheck(t)
	root := tree(t, "f")
	file := filepath.Join(root, "f")
	c := NewCache(2)
	defer c.Close()
	var ps []*profile.Profile
	for i := range 3 {
		ps = append(ps, newProfile(t, layers(fmt.Sprint("l", i)), rule{path: file, access: profile.FSReadFile}))
	}
	stop := make(chan struct{})
	var replacing, wg sync.WaitGroup
	replacing.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			os.WriteFile(file+".new", nil, 0o644)
			os.Rename(file+".new", file)
		}
	})
	for w := range 8 {
		wg.Go(func() {
			for i := range 60 {
				r, release, err := c.Get(ps[(w+i)%3], fmt.Sprint((w+i)%3), sup)
				if err != nil {
					if !errors.Is(err, errs.ErrPathMissing) {
						t.Error(err)
					}
					continue
				}
				for _, l := range r.FDs() {
					if _, err := unix.FcntlInt(uintptr(l.FD), unix.F_GETFD, 0); err != nil {
						t.Errorf("closed while held: %v", err)
					}
				}
				release()
			}
		})
	}
	wg.Wait()
	close(stop)
	replacing.Wait()
}

// TestCacheSharesBuilds: callers at once get one and the same.
func TestCacheSharesBuilds(t *testing.T) {
	sup := support(t)
	p := newProfile(t, layers("a"), rule{path: "/etc", access: read}, rule{path: "/usr", access: read})
	c := NewCache(2)
	defer c.Close()
	got := make(chan *Rulesets, 16)
	var wg sync.WaitGroup
	for range cap(got) {
		wg.Go(func() {
			r, release, err := c.Get(p, "d", sup)
			if err != nil {
				t.Error(err)
				return
			}
			defer release()
			got <- r
		})
	}
	wg.Wait()
	close(got)
	first := <-got
	for r := range got {
		if r != first {
			t.Error("two builds")
		}
	}
}

func BenchmarkCacheGet(b *testing.B) {
	sup := support(b)
	var rules []rule
	for _, p := range []string{"/usr", "/bin", "/lib", "/etc", "/dev/null", "/dev/zero", "/dev/urandom", "/tmp", "/var/tmp", "/var"} {
		rules = append(rules, rule{path: p, access: profile.FSReadFile})
	}
	p := newProfile(b, layers("a"), rules...)
	c := NewCache(2)
	defer c.Close()
	b.Run("kept", func(b *testing.B) {
		for b.Loop() {
			_, release, err := c.Get(p, "d", sup)
			if err != nil {
				b.Fatal(err)
			}
			release()
		}
	})
	b.Run("built", func(b *testing.B) {
		for b.Loop() {
			r, err := Build(p, sup)
			if err != nil {
				b.Fatal(err)
			}
			r.Release()
		}
	})
}
