package testkernel

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Option changes how [Each] starts guests.
type Option func(*options)

type options struct {
	guest   Guest
	timeout time.Duration
}

// Memory sets a guest's memory in MiB instead of 512. Only what the guest touches is taken from the host.
func Memory(mib int) Option { return func(o *options) { o.guest.MemoryMiB = mib } }

// Audit enables the guest's audit subsystem from boot on.
func Audit() Option { return func(o *options) { o.guest.Audit = true } }

// Timeout sets how long a guest may run instead of 5 minutes. The test binary's own deadline also holds.
func Timeout(d time.Duration) Option { return func(o *options) { o.timeout = d } }

// Each runs fn as a subtest on every kernel that has all wanted features: "host" when the host's kernel has them, and
// the guests "uml-6.1" and "uml-7.3". A guest missing from the cache is a [Skip]. Inside a guest fn runs as root, in
// the package's directory, with every flag of the host's test that does not name a file to write. What a test does
// outside fn also happens once more in every guest. With -race, uml-6.1 is skipped.
func Each(t *testing.T, want Feature, fn func(t *testing.T), opts ...Option) {
	t.Helper()
	if inside, ok := insideGuest(); ok {
		eachInside(t, inside, want, fn)
		return
	}
	if err := probe(want); err != nil {
		t.Logf("the host's kernel is not tested: %v", err)
	} else {
		t.Run("host", fn)
	}
	for _, k := range kernels {
		if k.has&want == want {
			t.Run(k.name, func(t *testing.T) { runInGuest(t, k, opts) })
		}
	}
}

// eachInside is Each within a guest: fn runs here, and the host is told how it ended.
func eachInside(t *testing.T, in inside, want Feature, fn func(t *testing.T)) {
	k, ok := kernelByName(in.Kernel)
	if !ok || k.has&want != want {
		return // another Each of the same test is for this guest
	}
	t.Run(in.Kernel, func(t *testing.T) {
		t.Cleanup(func() {
			verdict := "pass"
			switch {
			case t.Failed():
				verdict = "fail"
			case t.Skipped():
				verdict = "skip"
			}
			// A line of its own on the console, whatever the test wrote before.
			fmt.Fprintf(os.Stdout, "\n%s%s %s\n", in.marker(markRan), verdict, t.Name())
		})
		var uts unix.Utsname
		if err := unix.Uname(&uts); err == nil {
			t.Logf("kernel %s", unix.ByteSliceToString(uts.Release[:]))
		}
		if err := probe(want); err != nil {
			t.Fatalf("guest %s lacks %v: %v", in.Kernel, want, err)
		}
		fn(t)
	})
}

// runInGuest is one guest's subtest on the host.
func runInGuest(t *testing.T, k kernel, opts []Option) {
	if raceDetector && !k.race {
		t.Skipf("binaries with the race detector do not run in %s; go test without -race runs it", k.name)
	}
	o := options{timeout: 5 * time.Minute}
	for _, opt := range opts {
		opt(&o)
	}
	if deadline, ok := t.Deadline(); ok {
		// The guest must be ended and its console shown before the test binary is.
		o.timeout = min(o.timeout, time.Until(deadline)-5*time.Second)
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	g := o.guest
	g.Kernel = k.name
	g.Argv = append([]string{exe}, testArgs(t.Name(), o.timeout)...)
	g.Dir = packageDir
	out := &relay{w: t.Output()}
	g.Output = out

	ctx, cancel := context.WithTimeout(t.Context(), o.timeout)
	defer cancel()
	res, err := g.run(ctx)
	out.flush()
	switch {
	case errors.Is(err, ErrNoKernel):
		Skip(t, "kernel "+k.name, "make kernels")
	case err != nil:
		t.Fatal(err)
	}
	verdict, ran := res.ran[t.Name()]
	switch {
	case res.exit != 0:
		t.Fatalf("test in guest %s: exit status %d", k.name, res.exit)
	case !ran:
		t.Fatalf("test in guest %s: exit status 0, but the subtest did not run", k.name)
	case verdict == "skip":
		t.Skipf("skipped in guest %s, see its output above", k.name)
	case verdict != "pass":
		t.Fatalf("test in guest %s: %s", k.name, verdict)
	}
}

// packageDir is where the test binary was started: tests may change the working directory.
var packageDir, _ = os.Getwd()

// testArgs are the arguments of the test binary in the guest for the subtest of that name.
func testArgs(name string, timeout time.Duration) []string {
	var pattern []string
	for elem := range strings.SplitSeq(name, "/") {
		pattern = append(pattern, "^"+regexp.QuoteMeta(elem)+"$")
	}
	args := []string{
		"-test.run=" + strings.Join(pattern, "/"),
		"-test.v=true",
		"-test.count=1",
		// Shorter than the host's patience, so that a hanging test shows its goroutines.
		fmt.Sprintf("-test.timeout=%v", max(timeout-5*time.Second, time.Second)),
	}
	flag.Visit(func(f *flag.Flag) {
		switch name, isTest := strings.CutPrefix(f.Name, "test."); {
		case !isTest, name == "short", name == "parallel":
			args = append(args, fmt.Sprintf("-%s=%s", f.Name, f.Value))
		}
	})
	return args
}

// relay passes on whole lines of a guest's test, marked so that test2json does not take them for the host's own
// results, and leaves out progress lines.
type relay struct {
	w   io.Writer
	buf []byte
}

func (r *relay) Write(p []byte) (int, error) {
	r.buf = append(r.buf, p...)
	for {
		line, rest, ok := bytes.Cut(r.buf, []byte("\n"))
		if !ok {
			return len(p), nil
		}
		r.buf = rest
		r.line(line)
	}
}

// flush passes on a last line that had no end.
func (r *relay) flush() {
	r.line(r.buf)
	r.buf = nil
}

func (r *relay) line(line []byte) {
	if len(bytes.TrimSpace(line)) > 0 && !bytes.HasPrefix(line, []byte("=== ")) {
		fmt.Fprintf(r.w, "guest| %s\n", line) // a test's log takes everything
	}
}
