package smackfs

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"policyd.dev/policyd/internal/errs"
	"policyd.dev/policyd/smack"
)

// readsFS counts how often load2 is opened to be read.
type readsFS struct {
	FS
	reads int
}

func (f *readsFS) Unwrap() FS { return f.FS }

func (f *readsFS) Open(name string, flag int) (File, error) {
	if name == fileLoad2 && flag == unix.O_RDONLY {
		f.reads++
	}
	return f.FS.Open(name, flag)
}

// memoryTests want a smackfs that can be watched, and somebody else who writes to it.
func memoryTests(t *testing.T, kernel FS, other func(t *testing.T, file, text string)) {
	t.Run("known", func(t *testing.T) { testKnown(t, kernel, other) })
	t.Run("lies", func(t *testing.T) { testMemoryLies(t, kernel) })
	t.Run("random", func(t *testing.T) { testMemoryRandom(t, kernel, other) })
}

func TestMemory(t *testing.T) {
	m := newModel()
	memoryTests(t, m.As(Root), func(t *testing.T, file, text string) {
		if err := writeFile(m, file, []byte(text)); err != nil {
			t.Log(err)
		}
	})
	if mem, err := NewMemory(m); err == nil || mem != nil {
		t.Errorf("a smackfs without a watch: %v, %v", mem, err)
	}
	if mem, err := NewMemory(m.As(Caller{})); !errors.Is(err, unix.EPERM) || mem != nil {
		t.Errorf("a user: %v, %v", mem, err)
	}
	var none *Memory // serves as one that knows nothing
	load(t, m, setOf(t, "Q1 Q2 r"), nil, Options{Memory: none})
	none.Forget()
	none.Close()
}

// otherProcess writes by a shell, and closes again.
func otherProcess(t *testing.T, file, text string) {
	t.Helper()
	cmd := exec.Command("/bin/sh", "-c", `printf '%s' "$1" > /sys/fs/smackfs/"$2"`, "sh", text, file)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Logf("%v: %s", err, out)
	}
}

func testKnown(t *testing.T, kernel FS, other func(t *testing.T, file, text string)) {
	fs := &readsFS{FS: kernel}
	m, err := NewMemory(fs)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	others := rulesOf(t, kernel)
	owned := &smack.Set{}
	step := func(what string, reads, writes int, want ...string) *Report {
		t.Helper()
		fs.reads = 0
		set := setOf(t, want...)
		r := load(t, fs, set, owned, Options{Memory: m, Adopt: true})
		owned = r.Owned
		if fs.reads != reads || r.Writes != writes {
			t.Errorf("%s: %d reads and %d writes, want %d and %d", what, fs.reads, r.Writes, reads, writes)
		}
		return r
	}
	step("first", 2, 1, "M1 M2 rx", "M1 M3 w", "M2 M3 -", "M4 M1 rwxatl")
	step("again", 0, 0, "M1 M2 rx", "M1 M3 w", "M2 M3 -", "M4 M1 rwxatl")
	step("one changed", 0, 1, "M1 M2 rxa", "M1 M3 w", "M2 M3 -", "M4 M1 rwxatl")
	step("one gone, one of no access", 0, 1, "M1 M2 rxa", "M1 M3 -", "M2 M3 -")
	step("one new", 0, 1, "M1 M2 rxa", "M1 M3 -", "M2 M3 -", "M2 M1 l")
	step("one on a built-in label, which is read", 1, 1, "M1 M2 rxa", "M1 M3 -", "M2 M3 -", "M2 M1 l", "M1 _ w")
	step("bringup, which is read", 1, 1, "M1 M2 rxab", "M1 M3 -", "M2 M3 -", "M2 M1 l", "M1 _ w")
	mine := map[string]smack.Access{}
	for r := range owned.All() {
		if r.Access != 0 {
			mine[r.Subject+" "+r.Object] = r.Access
		}
	}
	same(t, "after all", rulesOf(t, kernel), union(others, mine))

	// Somebody else does something, in each way there is.
	for _, x := range []struct{ file, text string }{
		{fileLoad2, "M1 M2 r"},
		{fileLoad2, "M8 M9 r"},
		{fileLoad, fmt.Sprintf("%-23s %-23s %-5s", "M1", "M2", "r----")},
		{fileChange, "M1 M2 - x"},
		{fileRevoke, "M2"},
		{fileLoad2, "M2 M1 rwx\nM2 -M rwx\n"},
	} {
		other(t, x.file, x.text)
		r := step(fmt.Sprintf("%q to %s", x.text, x.file), 1+min(1, len(differences(t, kernel, mine))), min(1, len(differences(t, kernel, mine))),
			"M1 M2 rxab", "M1 M3 -", "M2 M3 -", "M2 M1 l", "M1 _ w")
		if (r.Changes.Len() > 0) != (len(r.Drift) > 0) {
			t.Errorf("%q to %s: %d changes, drift %v", x.text, x.file, r.Changes.Len(), r.Drift)
		}
		step("after that", 0, 0, "M1 M2 rxab", "M1 M3 -", "M2 M3 -", "M2 M1 l", "M1 _ w")
	}
	// A look is always at the kernel.
	fs.reads = 0
	load(t, fs, owned, owned, Options{Memory: m, DryRun: true})
	if fs.reads != 1 {
		t.Errorf("a dry run makes %d reads", fs.reads)
	}
	m.Forget()
	step("forgotten", 1, 0, "M1 M2 rxab", "M1 M3 -", "M2 M3 -", "M2 M1 l", "M1 _ w")
	load(t, fs, &smack.Set{}, owned, Options{})
	other(t, fileLoad2, "M8 M9 -\n")
}

// differences gives the pairs of wanted rules that the kernel has otherwise.
func differences(t *testing.T, fs FS, want map[string]smack.Access) (out []string) {
	t.Helper()
	now := rulesOf(t, fs)
	for k, a := range want {
		if now[k] != a {
			out = append(out, k)
		}
	}
	return out
}

// What is written does not arrive: with a memory that is found as well, by asking and then by reading.
func testMemoryLies(t *testing.T, kernel FS) {
	before := rulesOf(t, kernel)
	lie := ""
	h := &hookFS{FS: kernel, hook: func(_ int, name string, p []byte) ([]byte, error) {
		if name == fileLoad2 && lie != "" && strings.Contains(string(p), "L1 L2") {
			text := lie
			lie = ""
			return []byte(text), nil
		}
		return p, nil
	}}
	m, err := NewMemory(h)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	owned := load(t, h, setOf(t, "L1 L2 r", "L2 L1 rw"), nil, Options{Memory: m}).Owned
	for _, tc := range []struct{ want, lie string }{
		{"L1 L2 rx", "L1 L2 r\n"}, {"L1 L2 x", "L1 L2 rx\n"}, {"L1 L2 -", "L1 L2 r\n"}, {"L1 L2 rxt", "L1 L2 rxl\n"}, {"L1 L2 rw", "L1 L3 rw\n"},
	} {
		lie = tc.lie
		r, err := Load(t.Context(), h, setOf(t, tc.want, "L2 L1 rw"), owned, Options{Memory: m})
		if !errors.Is(err, errs.ErrSmackRefused) || !r.PutBack {
			t.Errorf("%q written as %q: put back %v, %v", tc.want, tc.lie, r.PutBack, err)
		}
		owned = r.Owned
		if err := writeFile(kernel, fileLoad2, []byte("L1 L3 -\n")); err != nil {
			t.Fatal(err)
		}
		same(t, "put back", rulesOf(t, kernel), union(before, map[string]smack.Access{"L1 L2": smack.Read, "L2 L1": smack.Read | smack.Write}))
	}
	load(t, kernel, &smack.Set{}, owned, Options{})
}

// Loads with a memory, and others at work now and then, leave what loads without one would.
func testMemoryRandom(t *testing.T, kernel FS, other func(t *testing.T, file, text string)) {
	r := rand.New(rand.NewPCG(9, 9))
	fs := &readsFS{FS: kernel}
	m, err := NewMemory(fs)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	rules, owned := map[string]smack.Access{}, &smack.Set{}
	unread := 0
	for i := range 150 {
		if i%5 == 4 {
			other(t, fileLoad2, fmt.Sprintf("%s %s\n", randomPair(r, "N", 8), smack.Access(1+r.IntN(127))))
		}
		rules = changed(r, rules, "N", 8, 1+r.IntN(30))
		if i%7 == 0 {
			rules[randomPair(r, "N", 8)] = smack.Access(r.IntN(128))
		}
		want := setOfMap(t, rules)
		beside := rulesOf(t, kernel)
		fs.reads = 0
		rep := load(t, fs, want, owned, Options{Memory: m, Adopt: true, Order: Order(r.IntN(2))})
		if fs.reads == 0 {
			unread++
		}
		for k, a := range pairs(owned) {
			if beside[k] == a {
				delete(beside, k) // policyd's own: gone unless wanted
			}
		}
		now := rulesOf(t, kernel)
		for k, a := range rules {
			if s, o, _ := strings.Cut(k, " "); now[k] != a && !(smack.Rule{Subject: s, Object: o, Access: a}).Dead() {
				t.Fatalf("load %d: %s is %v, want %v", i, k, now[k], a)
			}
		}
		for k, a := range beside {
			if _, ours := rules[k]; !ours && now[k] != a {
				if _, was := owned.Lookup(strings.Split(k, " ")[0], strings.Split(k, " ")[1]); !was {
					t.Fatalf("load %d: the rule %s %v of somebody else is %v", i, k, a, now[k])
				}
			}
		}
		again, err := Load(t.Context(), kernel, want, rep.Owned, Options{DryRun: true, Adopt: true})
		if err != nil || again.Changes.Len() != 0 {
			t.Fatalf("load %d leaves %d changes: %v", i, again.Changes.Len(), err)
		}
		owned = rep.Owned
	}
	if unread == 0 {
		t.Error("no load went without reading")
	}
	load(t, kernel, &smack.Set{}, owned, Options{})
}

// Without the privilege to watch there is no memory, and the loader reads.
func testMemoryPrivilege(t *testing.T) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // ends with the goroutine
		hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		var data [2]unix.CapUserData
		if err := unix.Capget(&hdr, &data[0]); err != nil {
			t.Error(err)
			return
		}
		data[0].Effective &^= 1 << unix.CAP_SYS_ADMIN
		if err := unix.Capset(&hdr, &data[0]); err != nil {
			t.Error(err)
			return
		}
		if m, err := NewMemory(Dir("/sys/fs/smackfs")); !errors.Is(err, unix.EPERM) || m != nil {
			t.Errorf("without CAP_SYS_ADMIN: %v, %v", m, err)
		}
	}()
	<-done
}
