package server

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/store"
	"policyd.dev/policyd/store/storetest"
)

// BenchmarkGetProfileKnown asks for a profile whose digest is known, over a unix socket, from as many goroutines as there are
// processors. To reach: 20,000 a second on 2 cores, client and server together.
func BenchmarkGetProfileKnown(b *testing.B) {
	e := start(b, nil)
	e.apply(echoPolicy("web"))
	whole, err := e.prof.GetProfile(e.ctx(), &apiv1.GetProfileRequest{Ref: "web"})
	if err != nil {
		b.Fatal(err)
	}
	req := &apiv1.GetProfileRequest{Ref: "web", KnownDigest: whole.GetProfileDigest()}
	ctx := b.Context()
	b.SetParallelism(16)
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if r, err := e.prof.GetProfile(ctx, req); err != nil || !r.GetNotModified() {
				b.Errorf("%v, %v", r, err)
				return
			}
		}
	})
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "calls/s")
}

// BenchmarkStartRPC compares, in the same run and in turns, starting /bin/true and learning of its end with os.StartProcess
// and its wait: through one Run, and through Start and Wait. Each way has turns of its own, since what policyd tidies up
// after one would slow the other down. Ratios are those of the medians; to reach: 1.5.
func BenchmarkStartRPC(b *testing.B) {
	ways := []struct {
		name  string
		start func(b *testing.B, e *env, req *apiv1.StartRequest) (rest func())
	}{{"Run", runToEnd}, {"StartWait", startAndWait}}
	for _, way := range ways {
		b.Run(way.name, func(b *testing.B) {
			st := storetest.OpenAt(b, filepath.Join(b.TempDir(), "policyd.db"), store.Options{})
			e := startOn(b, st, nil)
			e.apply(echoPolicy("web"))
			null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
			if err != nil {
				b.Fatal(err)
			}
			defer null.Close()
			req := &apiv1.StartRequest{Spec: &apiv1.SandboxSpec{Ref: "web", Argv: []string{"/bin/true"}}}
			var ours, bare []time.Duration
			for b.Loop() {
				t0 := time.Now()
				rest := way.start(b, e, req)
				ours = append(ours, time.Since(t0))
				rest()

				t0 = time.Now()
				p, err := os.StartProcess("/bin/true", []string{"/bin/true"}, &os.ProcAttr{Dir: "/", Env: []string{"PATH=/bin"}, Files: []*os.File{null, null, null}})
				if err != nil {
					b.Fatal(err)
				}
				if _, err := p.Wait(); err != nil {
					b.Fatal(err)
				}
				bare = append(bare, time.Since(t0))
			}
			b.ReportMetric(median(ours).Seconds()*1e6, "rpc-us")
			b.ReportMetric(median(bare).Seconds()*1e6, "bare-us")
			b.ReportMetric(float64(median(ours))/float64(median(bare)), "ratio")
		})
	}
}

func runToEnd(b *testing.B, e *env, req *apiv1.StartRequest) func() {
	stream, err := e.box.Run(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	if err := stream.Send(&apiv1.RunRequest{Request: &apiv1.RunRequest_Start{Start: req}}); err != nil {
		b.Fatal(err)
	}
	for {
		r, err := stream.Recv()
		if err != nil {
			b.Fatal(err)
		}
		if r.GetExit() != nil {
			break
		}
	}
	return func() {
		if _, err := stream.Recv(); !errors.Is(err, io.EOF) {
			b.Fatal(err)
		}
	}
}

func startAndWait(b *testing.B, e *env, req *apiv1.StartRequest) func() {
	r, err := e.box.Start(b.Context(), req)
	if err != nil {
		b.Fatal(err)
	}
	if _, err := e.box.Wait(b.Context(), &apiv1.WaitRequest{Id: r.GetSandbox().GetId()}); err != nil {
		b.Fatal(err)
	}
	return func() {}
}

func median(d []time.Duration) time.Duration {
	slices.Sort(d)
	return d[len(d)/2]
}

// BenchmarkApply stores a new version each time, durable: one fsync each when alone, shared when many apply at once.
func BenchmarkApply(b *testing.B) {
	for _, writers := range []int{1, 16} {
		b.Run(fmt.Sprintf("writers=%d", writers), func(b *testing.B) {
			st := storetest.OpenAt(b, filepath.Join(b.TempDir(), "policyd.db"), store.Options{})
			e := startOn(b, st, nil)
			ctx := b.Context()
			n := make(chan int)
			go func() {
				defer close(n)
				for i := range b.N {
					n <- i
				}
			}()
			b.ResetTimer()
			for _, err := range together(writers, func(w int) error {
				var failed error
				for i := range n {
					text := echoPolicy(fmt.Sprintf("p%d", w), fmt.Sprintf("        - {allow: [read], at: [/srv/%d], missing: skip}\n", i))
					if _, err := e.policy.Apply(ctx, &apiv1.ApplyRequest{Files: files(text)}); err != nil {
						failed = err
					}
				}
				return failed
			}) {
				if err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "applies/s")
		})
	}
}
