package spawn

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"policyd.dev/policyd/enforce/landlock"
	"policyd.dev/policyd/enforce/profile"
	"policyd.dev/policyd/internal/testkernel"
)

// benchReadExec and benchWrite are the policy of about ten paths that all
// contenders start /bin/true under.
var (
	benchReadExec = []string{"/usr", "/bin", "/lib", "/lib64", "/etc"}
	benchWrite    = []string{"/dev/null", "/dev/zero", "/dev/urandom", "/tmp", "/var/tmp"}
)

func benchRules() []rule {
	var rules []rule
	for _, p := range benchReadExec {
		rules = append(rules, rule{p, readExec})
	}
	for _, p := range benchWrite {
		rules = append(rules, rule{p, readAll | profile.FSWriteFile})
	}
	return rules
}

// BenchmarkSpawn is the start of /bin/true and the wait for its end, all ways in
// one run: compare within it only.
func BenchmarkSpawn(b *testing.B) {
	sup := support(b)
	p := newProfile(b, layerFor("bench", min(sup.ABI, 5)), benchRules()...)
	digest := profile.Digest(p.Encode())
	s := newTestSpawner(b, 4)
	cache := landlock.NewCache(8)
	b.Cleanup(cache.Close)

	start := func(b *testing.B, group Group) {
		rs, release, err := cache.Get(p, digest, sup)
		if err != nil {
			b.Fatal(err)
		}
		defer release()
		c, err := s.Start(&Command{Path: "/bin/true", Group: group}, rs)
		if err != nil {
			b.Fatal(err)
		}
		if st := wait(b, c); st.Code != 0 {
			b.Fatalf("%+v", st)
		}
	}
	b.Run("bare", func(b *testing.B) {
		null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
		if err != nil {
			b.Fatal(err)
		}
		defer null.Close()
		for b.Loop() {
			proc, err := os.StartProcess("/bin/true", []string{"/bin/true"}, &os.ProcAttr{Files: []*os.File{null, null, null}})
			if err != nil {
				b.Fatal(err)
			}
			if st, err := proc.Wait(); err != nil || !st.Success() {
				b.Fatal(st, err)
			}
		}
	})
	b.Run("spawn", func(b *testing.B) {
		for b.Loop() {
			start(b, nil)
		}
	})
	b.Run("spawn-cgroup", func(b *testing.B) {
		c, err := DetectContainment(Options{})
		if err != nil || c.Name() != "cgroup" {
			testkernel.Skip(b, "a writable cgroup v2", "run as root or in a delegated cgroup")
		}
		n := 0
		for b.Loop() {
			n++
			g, err := c.NewGroup("bench-" + strconv.Itoa(os.Getpid()) + "-" + strconv.Itoa(n))
			if err != nil {
				b.Fatal(err)
			}
			start(b, g)
			if err := g.Remove(); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("supervised", func(b *testing.B) {
		c := supervisorContainment(b)
		for b.Loop() {
			g, err := c.NewGroup("bench")
			if err != nil {
				b.Fatal(err)
			}
			start(b, g)
		}
	})
	b.Run("landrun", func(b *testing.B) {
		landrun, err := landrunPath()
		if err != nil {
			testkernel.Skip(b, "landrun: "+err.Error(), "test/bench/landrun.sh")
		}
		args := []string{"--best-effort", "--log-level", "error"} // it wants the newest ABI it knows otherwise
		for _, p := range benchReadExec {
			args = append(args, "--rox", p)
		}
		for _, p := range benchWrite {
			args = append(args, "--rw", p)
		}
		runTool(b, nil, landrun, append(args, "/bin/true")...)
	})
	b.Run("sandboxer", func(b *testing.B) {
		sandboxer, err := testkernel.Sandboxer()
		if err != nil {
			testkernel.Skip(b, "the kernel's sample sandboxer", "make kernels")
		}
		env := []string{"LL_FS_RO=" + strings.Join(benchReadExec, ":"), "LL_FS_RW=" + strings.Join(benchWrite, ":")}
		runTool(b, env, sandboxer, "/bin/true")
	})
}

func runTool(b *testing.B, env []string, path string, args ...string) {
	for b.Loop() {
		cmd := exec.Command(path, args...)
		cmd.Env = env
		if err := cmd.Run(); err != nil {
			out, _ := exec.Command(path, args...).CombinedOutput()
			b.Fatal(err, string(out))
		}
	}
}

// landrunPath is where test/bench/landrun.sh leaves the program.
func landrunPath() (string, error) {
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "policyd", "bench", "landrun")
	if _, err := os.Stat(path); err != nil {
		return "", errors.New("not built")
	}
	return path, nil
}

// launcher builds policyd-launch once for the tests, static as it is shipped.
func supervisorContainment(t testing.TB) Containment {
	t.Helper()
	c, err := DetectContainment(Options{Launcher: buildLauncher(t), Supervisor: true})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// BenchmarkSpawnRatio starts /bin/true by turns bare, through Spawner, and through
// Spawner into a group of its own, so that whatever else the machine does meets
// all, and reports medians and their ratios: the numbers to hold are x-bare and
// x-bare-cgroup, 1.25 both. Making and removing a group are measured apart: policyd
// makes them ahead of the starts, and nobody waits for their removal.
func BenchmarkSpawnRatio(b *testing.B) {
	sup := support(b)
	p := newProfile(b, layerFor("bench", min(sup.ABI, 5)), benchRules()...)
	digest := profile.Digest(p.Encode())
	s := newTestSpawner(b, 4)
	cache := landlock.NewCache(8)
	b.Cleanup(cache.Close)
	null, err := devNull()
	if err != nil {
		b.Fatal(err)
	}
	var groups Containment
	if c, err := DetectContainment(Options{}); err == nil && c.Name() == "cgroup" {
		groups = c
		b.Cleanup(func() { c.Close() })
	}
	spawned := func(group Group) {
		rs, release, err := cache.Get(p, digest, sup)
		if err != nil {
			b.Fatal(err)
		}
		defer release()
		c, err := s.Start(&Command{Path: "/bin/true", Group: group}, rs)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := c.Wait(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
	var bare, alone, made, held, removed []time.Duration
	for n := 0; b.Loop(); n++ {
		bare = append(bare, took(func() {
			proc, err := os.StartProcess("/bin/true", []string{"/bin/true"}, &os.ProcAttr{Files: []*os.File{null, null, null}})
			if err != nil {
				b.Fatal(err)
			}
			if _, err := proc.Wait(); err != nil {
				b.Fatal(err)
			}
		}))
		alone = append(alone, took(func() { spawned(nil) }))
		if groups == nil {
			continue
		}
		var g Group
		made = append(made, took(func() {
			if g, err = groups.NewGroup("bench-" + strconv.Itoa(os.Getpid()) + "-" + strconv.Itoa(n)); err != nil {
				b.Fatal(err)
			}
		}))
		held = append(held, took(func() {
			spawned(g)
			if err := g.KillAll(); err != nil {
				b.Fatal(err)
			}
		}))
		removed = append(removed, took(func() {
			if err := g.Remove(); err != nil {
				b.Fatal(err)
			}
		}))
	}
	m := median(bare)
	b.ReportMetric(float64(m.Microseconds()), "bare-µs")
	b.ReportMetric(float64(median(alone))/float64(m), "x-bare")
	if groups != nil {
		b.ReportMetric(float64(median(held))/float64(m), "x-bare-cgroup")
		b.ReportMetric(float64(median(made).Microseconds()), "make-µs")
		b.ReportMetric(float64(median(removed).Microseconds()), "remove-µs")
	}
}

func took(f func()) time.Duration {
	t0 := time.Now()
	f()
	return time.Since(t0)
}

func median(d []time.Duration) time.Duration {
	slices.Sort(d)
	return d[len(d)/2]
}
