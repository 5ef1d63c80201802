// Package smackbench measures rules on their way from text into a kernel: compiling, loading by difference beside the ways
// others load, the moments in which something is denied meanwhile, and the kernel memory it takes. What depends on the
// kernel is measured in user-mode-linux guests, each sample after a fresh boot; ratios are of medians of one run.
//
// It imports smack, smack/smackfs, smack/smacktest and internal/testkernel.
package smackbench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"testing"
	"time"

	"policyd.dev/policyd/internal/testkernel"
	"policyd.dev/policyd/smack"
	"policyd.dev/policyd/smack/smackfs"
	"policyd.dev/policyd/smack/smacktest"
)

const (
	// sampleEnv makes the test binary take one sample in a guest and end: its name.
	sampleEnv = "POLICYD_SMACKBENCH"
	// boots is how many guests each way is measured in.
	boots = 5
	// repeats is how often a guest does what leaves it as it was.
	repeats = 5

	mark = "sample: "
)

var kernels = []string{testkernel.UML61, testkernel.UML73}

// values is what a sample gives, by name.
type values map[string]float64

// takes are the samples, by name. Each runs alone in a guest that was just booted.
var takes = map[string]func(smackfs.FS, smacktest.Shape) (values, error){
	"bare":      takeBare,
	"load":      takeLoad,
	"single":    takeSingle,
	"change":    takeChange,
	"window":    takeWindow,
	"memory":    takeMemory,
	"memoryraw": takeMemoryRaw,
}

// shapes are the sets of rules.
var shapes = map[string]smacktest.Shape{"17k-500": smacktest.Platform, "50k-200-a-subject": smacktest.Wide}

func TestMain(m *testing.M) {
	if job := os.Getenv(sampleEnv); job != "" {
		if err := takeSample(job); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func takeSample(job string) error {
	var shape, name string
	if _, err := fmt.Sscan(job, &name, &shape); err != nil {
		return err
	}
	runtime.LockOSThread()
	v, err := takes[name](smackfs.Dir("/sys/fs/smackfs"), shapes[shape])
	if err != nil {
		return err
	}
	b, err := json.Marshal(v)
	if err == nil {
		_, err = fmt.Printf("\n%s%s\n", mark, b)
	}
	return err
}

// sample boots a guest for one sample.
func sample(b *testing.B, kernel, name, shape string) values {
	b.Helper()
	exe, err := os.Executable()
	if err != nil {
		b.Fatal(err)
	}
	var out bytes.Buffer
	g := testkernel.Guest{Kernel: kernel, Argv: []string{exe}, Env: []string{sampleEnv + "=" + name + " " + shape}, Output: &out}
	ctx, cancel := context.WithTimeout(b.Context(), 2*time.Minute)
	defer cancel()
	status, err := g.Run(ctx)
	if errors.Is(err, testkernel.ErrNoKernel) {
		testkernel.Skip(b, "kernel "+kernel, "make kernels")
	}
	_, line, found := bytes.Cut(out.Bytes(), []byte(mark))
	if err != nil || status != 0 || !found {
		b.Fatalf("sample %s in %s: status %d, %v: %s", name, kernel, status, err, out.Bytes())
	}
	var v values
	if err := json.NewDecoder(bytes.NewReader(line)).Decode(&v); err != nil {
		b.Fatal(err)
	}
	return v
}

// samples takes samples of several kinds by turns and gives the median of each value, named SAMPLE/VALUE, and the least, named
// SAMPLE/VALUE/least: other work on the machine makes times longer, never shorter.
func samples(b *testing.B, kernel, shape string, names ...string) values {
	all := map[string][]float64{}
	for range boots {
		for _, name := range names {
			for value, v := range sample(b, kernel, name, shape) {
				all[name+"/"+value] = append(all[name+"/"+value], v)
			}
		}
	}
	out := values{}
	for name, list := range all {
		out[name], out[name+"/least"] = median(list), slices.Min(list)
	}
	return out
}

func median(list []float64) float64 {
	list = slices.Sorted(slices.Values(list))
	return list[len(list)/2]
}

// inGuests runs a benchmark once for each kernel. What it reports are medians: the time of the benchmark itself says nothing.
func inGuests(b *testing.B, f func(b *testing.B, kernel string)) {
	for _, kernel := range kernels {
		b.Run(kernel, func(b *testing.B) {
			for b.Loop() {
				f(b, kernel)
			}
			b.ReportMetric(0, "ns/op")
		})
	}
}

// compiled gives the rules of a shape as the loader takes them.
func compiled(shape smacktest.Shape) (*smack.Set, error) {
	set, _, err := smack.ParseRules("rules", shape.Text())
	return set, err
}

// since gives milliseconds.
func since(start time.Time) float64 { return float64(time.Since(start).Nanoseconds()) / 1e6 }
