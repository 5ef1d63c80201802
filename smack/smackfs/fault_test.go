package smackfs

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"policyd.dev/policyd/internal/errs"
	"policyd.dev/policyd/smack"
)

var errKilled = errors.New("killed")

// testKilled ends the load before every write, as a kill does: nothing is put back. The next run sees what is there from
// the intent, and mends it.
func testKilled(t *testing.T, fs FS) {
	others := rulesOf(t, fs)
	from, to := big(t, "Kill", 1), big(t, "Kill", 2)
	owned := load(t, fs, from, nil, Options{}).Owned
	for n := 0; ; n++ {
		order := Order(n % 2)
		var intent []byte
		h := &hookFS{FS: fs, hook: func(i int, _ string, p []byte) ([]byte, error) {
			if i == n {
				panic(errKilled)
			}
			return p, nil
		}}
		o := Options{Order: order, Intent: func(b []byte) error {
			intent = b
			return nil
		}}
		killed := func() (killed bool) {
			defer func() {
				if r := recover(); r != nil && r != any(errKilled) {
					panic(r)
				} else if r != nil {
					killed = true
				}
			}()
			load(t, h, to, owned, o)
			return false
		}()
		if !killed {
			if n < 5 {
				t.Fatalf("only %d writes: the test is too small", n)
			}
			break
		}
		it, err := ParseIntent(intent)
		if err != nil {
			t.Fatal(err)
		}
		rec, err := Recover(fs, owned, it)
		if err != nil {
			t.Fatal(err)
		}
		if rec.Rebooted || len(rec.Other) > 0 || rec.Before+rec.After+rec.Between != len(it.Changes) || (n == 0) != (rec.Before == len(it.Changes)) {
			t.Fatalf("killed at write %d of order %s: %+v of %d", n, order, rec, len(it.Changes))
		}
		// On to the new rules and back to the old ones, or back at once.
		if n%3 > 0 {
			rec.Owned = load(t, fs, to, rec.Owned, Options{}).Owned
			same(t, "gone on", rulesOf(t, fs), union(others, pairs(to)))
		}
		owned = load(t, fs, from, rec.Owned, Options{}).Owned
		same(t, "gone back", rulesOf(t, fs), union(others, pairs(from)))
	}
	load(t, fs, &smack.Set{}, to, Options{})
	same(t, "unloaded", rulesOf(t, fs), others)
}

// testFailing lets every write fail in turn, and from there on every further one, with errors of several kinds.
func testFailing(t *testing.T, fs FS) {
	others := rulesOf(t, fs)
	from, to := big(t, "Fail", 1), big(t, "Fail", 2)
	owned := load(t, fs, from, nil, Options{}).Owned
	for _, errno := range []unix.Errno{unix.EIO, unix.ENOMEM, unix.EPERM, unix.EINVAL} {
		for n, done := 0, false; !done; n++ {
			done = true
			h := &hookFS{FS: fs, hook: func(i int, _ string, p []byte) ([]byte, error) {
				if i == n {
					done = false
					return nil, errno
				}
				return p, nil
			}}
			r, err := Load(t.Context(), h, to, owned, Options{Order: Order(n % 2)})
			switch {
			case done && err == nil, errno == unix.EINVAL && errors.Is(err, errs.ErrSmackRefused):
			case !errors.Is(err, errno) || errors.Is(err, errs.ErrSmackPartly):
				t.Fatalf("write %d with %v: %v", n, errno, err)
			}
			if err == nil { // a refusal that did not come again is no harm
				owned = load(t, fs, from, r.Owned, Options{}).Owned
				continue
			}
			if !r.PutBack || r.Owned != owned {
				t.Fatalf("write %d with %v: put back %v", n, errno, r.PutBack)
			}
			same(t, "put back", rulesOf(t, fs), union(others, pairs(from)))
		}
	}
	// Nothing can be written any more from the third write on.
	h := &hookFS{FS: fs, hook: func(i int, _ string, p []byte) ([]byte, error) {
		if i >= 2 {
			return nil, unix.EIO
		}
		return p, nil
	}}
	r, err := Load(t.Context(), h, to, owned, Options{})
	if !errors.Is(err, errs.ErrSmackPartly) || !errors.Is(err, unix.EIO) || r.PutBack {
		t.Fatalf("no write works: %v", err)
	}
	// What is left is known to be policyd's.
	load(t, fs, &smack.Set{}, r.Owned, Options{})
	same(t, "unloaded", rulesOf(t, fs), others)
}

// testRefused makes the kernel itself refuse a rule in the middle of a chunk: the rules before it are loaded then.
func testRefused(t *testing.T, fs FS) {
	others := rulesOf(t, fs)
	from, to := big(t, "Ref", 1), big(t, "Ref", 2)
	owned := load(t, fs, from, nil, Options{}).Owned
	all := make([]smack.Rule, 0, to.Len())
	for r := range to.All() {
		if a, _ := from.Lookup(r.Subject, r.Object); a != r.Access {
			all = append(all, r)
		}
	}
	for _, at := range []int{0, 1, len(all) / 2, len(all) - 1} {
		bad := all[at].Subject + " " + all[at].Object + " "
		h := &hookFS{FS: fs, hook: func(_ int, _ string, p []byte) ([]byte, error) {
			if i := bytes.Index(p, []byte(bad)); i == 0 || i > 0 && p[i-1] == '\n' {
				q := bytes.Clone(p)
				q[i] = '-' // the kernel takes no label that begins so
				return q, nil
			}
			return p, nil
		}}
		r, err := Load(t.Context(), h, to, owned, Options{})
		if !errors.Is(err, errs.ErrSmackRefused) || errors.Is(err, errs.ErrSmackPartly) || !strings.Contains(err.Error(), `rule "`+bad) || !r.PutBack {
			t.Fatalf("rule %d: %v", at, err)
		}
		same(t, "put back", rulesOf(t, fs), union(others, pairs(from)))
	}
	load(t, fs, &smack.Set{}, owned, Options{})
}

func testCanceled(t *testing.T, fs FS) {
	others := rulesOf(t, fs)
	from, to := big(t, "Can", 1), big(t, "Can", 2)
	owned := load(t, fs, from, nil, Options{}).Owned
	for n := range 4 {
		ctx, cancel := context.WithCancel(t.Context())
		h := &hookFS{FS: fs, hook: func(i int, _ string, p []byte) ([]byte, error) {
			if i == n {
				cancel()
			}
			return p, nil
		}}
		r, err := Load(ctx, h, to, owned, Options{})
		if !errors.Is(err, context.Canceled) || !r.PutBack {
			t.Fatalf("canceled at write %d: %v", n, err)
		}
		same(t, "canceled", rulesOf(t, fs), union(others, pairs(from)))
	}
	load(t, fs, &smack.Set{}, owned, Options{})
}

// testReadBack lets the kernel take something else than was written.
func testReadBack(t *testing.T, fs FS) {
	others := rulesOf(t, fs)
	lied := false
	h := &hookFS{FS: fs, hook: func(_ int, _ string, p []byte) ([]byte, error) {
		if lied {
			return p, nil
		}
		lied = true
		return bytes.ReplaceAll(p, []byte("RB1 RB2 rwx"), []byte("RB1 RB2 r  ")), nil
	}}
	r, err := Load(t.Context(), h, setOf(t, "RB1 RB2 rwx", "RB2 RB1 a"), nil, Options{})
	if !errors.Is(err, errs.ErrSmackRefused) || !strings.Contains(err.Error(), `"RB1 RB2 r" instead of rwx`) || !r.PutBack {
		t.Errorf("%v", err)
	}
	same(t, "put back", rulesOf(t, fs), others)
	// What others load meanwhile is no harm.
	h.hook = func(_ int, _ string, p []byte) ([]byte, error) {
		return append([]byte("RBOther RB1 r\n"), p...), nil
	}
	r = load(t, h, setOf(t, "RB1 RB2 rwx"), nil, Options{})
	others["RBOther RB1"] = smack.Read
	load(t, fs, &smack.Set{}, r.Owned, Options{})
	same(t, "with another's rule", rulesOf(t, fs), others)
}
