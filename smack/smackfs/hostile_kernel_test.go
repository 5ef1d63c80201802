package smackfs

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"policyd.dev/policyd/internal/errs"
	"policyd.dev/policyd/smack"
)

// testMounts takes the mount away from under a load.
func testMounts(t *testing.T) {
	mounted := func(t *testing.T) Dir {
		dir := t.TempDir()
		if err := unix.Mount("/sys/fs/smackfs", dir, "", unix.MS_BIND, ""); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
		return Dir(dir)
	}
	fs := Dir("/sys/fs/smackfs")
	others := rulesOf(t, fs)
	var rules []string
	for i := range 600 {
		rules = append(rules, fmt.Sprintf("Mount1 Mount%d rwxatl", 100+i))
	}
	want := setOf(t, rules...)

	t.Run("read only", func(t *testing.T) {
		dir := mounted(t)
		if err := unix.Mount("", string(dir), "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
			t.Fatal(err)
		}
		r, err := Load(t.Context(), dir, want, nil, Options{Intent: func([]byte) error { t.Error("an intent of nothing"); return nil }})
		if !errors.Is(err, errs.ErrSmackNotMounted) || r.Changes.Len() != 600 || r.Owned.Len() != 0 {
			t.Errorf("%v", err)
		}
		if s, err := Look(dir); err != nil || !errors.Is(s.Writable, errs.ErrSmackNotMounted) {
			t.Errorf("%+v, %v", s, err)
		}
		same(t, "rules", rulesOf(t, fs), others)
	})
	for n := range 3 {
		t.Run(fmt.Sprintf("read only at write %d", n), func(t *testing.T) {
			dir := mounted(t)
			h := &hookFS{FS: dir, hook: func(i int, _ string, p []byte) ([]byte, error) {
				if i == n { // refused while a file is open for writing: the load is not cut off by it
					if err := unix.Mount("", string(dir), "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != unix.EBUSY {
						t.Errorf("remounted: %v", err)
					}
				}
				return p, nil
			}}
			r := load(t, h, want, nil, Options{})
			load(t, fs, &smack.Set{}, r.Owned, Options{})
			same(t, "rules", rulesOf(t, fs), others)
		})
		t.Run(fmt.Sprintf("gone at write %d", n), func(t *testing.T) {
			dir := mounted(t)
			var intent []byte
			h := &hookFS{FS: dir, hook: func(i int, _ string, p []byte) ([]byte, error) {
				if i == n {
					if err := unix.Unmount(string(dir), unix.MNT_DETACH); err != nil {
						t.Error(err)
					}
				}
				return p, nil
			}}
			r, err := Load(t.Context(), h, want, nil, Options{Intent: func(b []byte) error { intent = b; return nil }})
			if !errors.Is(err, errs.ErrSmackPartly) || !errors.Is(err, errs.ErrSmackNotMounted) || r.PutBack || r.Owned.Len() != 600 {
				t.Errorf("%v", err)
			}
			if _, err := ReadRules(dir); !errors.Is(err, errs.ErrSmackNotMounted) {
				t.Errorf("read: %v", err)
			}
			if err := CanWrite(dir); !errors.Is(err, errs.ErrSmackNotMounted) {
				t.Errorf("write: %v", err)
			}
			if _, err := ApplySettings(t.Context(), dir, &smack.Settings{Ambient: "_"}, nil, SettingsOptions{}); !errors.Is(err, errs.ErrSmackNotMounted) {
				t.Errorf("settings: %v", err)
			}
			// Mounted again, what it left is known and goes.
			it, err := ParseIntent(intent)
			if err != nil {
				t.Fatal(err)
			}
			rec, err := Recover(fs, nil, it)
			if err != nil || rec.After != 600 {
				t.Fatalf("%+v, %v", rec, err)
			}
			load(t, fs, &smack.Set{}, rec.Owned, Options{})
			same(t, "rules", rulesOf(t, fs), others)
		})
	}
}

// testWriters loads while others write rules of other pairs, of the same subjects and objects among them, and make
// labels: every rule of theirs stays, and every one of ours is there.
func testWriters(t *testing.T, fs FS) {
	others := rulesOf(t, fs)
	stop, done := make(chan struct{}), make(chan map[string]smack.Access, 3)
	for w := range 3 {
		go func() {
			mine := map[string]smack.Access{}
			defer func() { done <- mine }()
			for i := 0; i < 2000; i++ {
				select {
				case <-stop:
					return
				default:
				}
				s, o := fmt.Sprintf("Writer%d", i%20), fmt.Sprintf("Others%d_%d", w, i%60)
				if i%2 == 1 {
					s, o = o, s
				}
				a := smack.Access(1 + i%127)
				if err := writeFile(fs, fileLoad2, []byte(fmt.Sprintf("%s %s %s\n", s, o, a))); err != nil {
					t.Error(err)
					return
				}
				mine[s+" "+o] = a
			}
		}()
	}
	r := rand.New(rand.NewPCG(9, 9))
	var owned *smack.Set
	for n := range 12 {
		want := union(randomRules(r, "Writer", 20, 150, true), randomRules(r, fmt.Sprintf("WrNew%d_", n), 30, 300, false))
		if n%4 == 3 {
			want = map[string]smack.Access{}
		}
		set := setOfMap(t, want)
		owned = load(t, fs, set, owned, Options{Order: Order(n % 2)}).Owned
		now := rulesOf(t, fs)
		for pair, a := range want {
			if now[pair] != a {
				t.Errorf("load %d: %s is %s, loaded as %s", n, pair, now[pair], a)
			}
		}
		for k := 0; k < 200; k++ {
			pair := randomPair(r, "Writer", 20)
			s, o, _ := strings.Cut(pair, " ")
			q := smack.Query{Subject: s, Object: o, Access: smack.Access(1+r.IntN(127)) &^ smack.Bringup}
			if q.Access == 0 {
				continue
			}
			got, err := Ask(fs, q)
			if err != nil {
				t.Fatal(err)
			}
			if d := set.Decide(q, smack.Kernel{}); d.Allowed != got.Allowed && len(got.Unknown) == 0 {
				t.Errorf("%v: the kernel says %v, decided %s", q, got.Allowed, d)
			}
		}
	}
	close(stop)
	theirs := map[string]smack.Access{}
	for range 3 {
		theirs = union(theirs, <-done)
	}
	load(t, fs, &smack.Set{}, owned, Options{})
	same(t, "others", rulesOf(t, fs), union(others, theirs))
	for pair := range theirs {
		put(t, fs, pair+" -\n")
	}
}

// testCovered mounts another file system over smackfs, with files of the same names.
func testCovered(t *testing.T) {
	if dir, err := Find(); err != nil || dir != "/sys/fs/smackfs" {
		t.Fatalf("%q, %v", dir, err)
	}
	if err := unix.Mount("tmpfs", "/sys/fs/smackfs", "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := unix.Unmount("/sys/fs/smackfs", 0); err != nil {
			t.Fatal(err)
		}
	}()
	if dir, err := Find(); !errors.Is(err, errs.ErrSmackNotMounted) {
		t.Errorf("covered: %q, %v", dir, err)
	}
}
