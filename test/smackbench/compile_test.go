package smackbench

import (
	"bytes"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"policyd.dev/policyd/smack"
	"policyd.dev/policyd/smack/smackfs"
	"policyd.dev/policyd/smack/smacktest"
)

func compileText(rules []byte) (*smack.Set, int, error) {
	set, warnings, err := smack.ParseRules("rules", rules)
	return set, len(warnings), err
}

// scales are for what shall be linear: rules, labels and objects a subject grow.
var scales = []struct {
	name  string
	shape smacktest.Shape
}{
	{"17k-500", smacktest.Platform},
	{"50k-200-a-subject", smacktest.Wide},
	{"200k-200-a-subject", smacktest.Shape{Rules: 200000, Labels: 1000, PerSubject: 200, Seed: 3}},
}

// threadTime gives milliseconds of processor time of this thread: other work on the machine is not in it.
func threadTime(tb testing.TB) float64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &ts); err != nil {
		tb.Fatal(err)
	}
	return float64(ts.Nano()) / 1e6
}

// rounds repeats f on one thread without the collector, and gives medians of its time, its processor time and all it
// allocated, which is more than it ever had at once.
func rounds(b *testing.B, f func() error) (ms, cpu, kib float64) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	var walls, cpus, sizes []float64
	for b.Loop() {
		runtime.GC()
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		start, startCPU := time.Now(), threadTime(b)
		if err := f(); err != nil {
			b.Fatal(err)
		}
		cpus, walls = append(cpus, threadTime(b)-startCPU), append(walls, since(start))
		runtime.ReadMemStats(&after)
		sizes = append(sizes, float64(after.TotalAlloc-before.TotalAlloc)/1024)
	}
	b.ReportMetric(0, "ns/op")
	return median(walls), median(cpus), median(sizes)
}

// From text to the compiled rules. KiB is all that was allocated on the way, the result in it and nothing freed, so that it
// is an upper bound of the peak beside the text.
func BenchmarkCompile(b *testing.B) {
	for _, s := range scales {
		b.Run(s.name, func(b *testing.B) {
			rules := s.shape.Text()
			ms, cpu, kib := rounds(b, func() error { _, _, err := compileText(rules); return err })
			b.ReportMetric(ms, "ms")
			b.ReportMetric(cpu, "ms/cpu")
			b.ReportMetric(kib, "KiB")
			b.ReportMetric(cpu*1e6/float64(s.shape.Rules), "ns/rule")
		})
	}
}

// newestFirst gives rules as the kernel shows those that were loaded in order.
func newestFirst(rules []byte) []byte {
	lines := slices.Collect(bytes.Lines(rules))
	slices.Reverse(lines)
	return bytes.Join(lines, nil)
}

// memoryFS has a load2 that shows rules ready in memory and takes every write without a look: what is left is the loader.
type memoryFS struct{ before, after []byte }

func (m *memoryFS) Open(name string, flag int) (smackfs.File, error) {
	if name != "load2" {
		return nil, fmt.Errorf("no %s", name)
	}
	if flag == unix.O_WRONLY {
		return &memoryFile{fs: m}, nil
	}
	return &memoryFile{fs: m, rest: m.before}, nil
}

type memoryFile struct {
	fs   *memoryFS
	rest []byte
}

// Read gives a page of whole rules at most, as the kernel does.
func (f *memoryFile) Read(p []byte) (int, error) {
	if len(f.rest) == 0 {
		return 0, io.EOF
	}
	n := copy(p, f.rest[:min(len(f.rest), 4096)])
	f.rest = f.rest[n:]
	return n, nil
}

func (f *memoryFile) Write(p []byte) (int, error) {
	if len(p) > 0 {
		f.fs.before = f.fs.after // from the first write on
	}
	return len(p), nil
}

func (f *memoryFile) Close() error { return nil }

// What a load costs beside the kernel: reading, comparing, writing and reading again where none of the bytes cost anything.
func BenchmarkLoadBesideKernel(b *testing.B) {
	for _, s := range scales {
		set, err := compiled(s.shape)
		if err != nil {
			b.Fatal(err)
		}
		rules := newestFirst(text(set))
		for _, way := range []struct {
			name   string
			before []byte
			owned  *smack.Set
		}{{"full", nil, nil}, {"unchanged", rules, set}} {
			b.Run(s.name+"/"+way.name, func(b *testing.B) {
				var writing []float64
				ms, cpu, kib := rounds(b, func() error {
					timed := &timedFS{FS: &memoryFS{before: way.before, after: rules}}
					_, err := smackfs.Load(b.Context(), timed, set, way.owned, smackfs.Options{})
					writing = append(writing, timed.writing())
					return err
				})
				b.ReportMetric(median(writing), "ms/writing")
				b.ReportMetric(ms, "ms")
				b.ReportMetric(cpu, "ms/cpu")
				b.ReportMetric(kib, "KiB")
				b.ReportMetric(cpu*1e6/float64(s.shape.Rules), "ns/rule")
			})
		}
	}
}
