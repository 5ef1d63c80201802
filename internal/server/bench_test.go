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

// BenchmarkStartRPC compares, in the same run and in turns, starting /bin/true and learning of its end through Start and Wait
// (whole) and through one Run (run) with os.StartProcess and its wait. Ratios are those of the medians; to reach: 1.5.
func BenchmarkStartRPC(b *testing.B) {
	st := storetest.OpenAt(b, filepath.Join(b.TempDir(), "policyd.db"), store.Options{})
	e := startOn(b, st, nil)
	e.apply(echoPolicy("web"))
	ctx := b.Context()
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		b.Fatal(err)
	}
	defer null.Close()
	req := &apiv1.StartRequest{Spec: &apiv1.SandboxSpec{Ref: "web", Argv: []string{"/bin/true"}, Remove: true}}
	var rpc, whole, run, bareStart, bare []time.Duration
	for b.Loop() {
		t0 := time.Now()
		r, err := e.box.Start(ctx, req)
		if err != nil {
			b.Fatal(err)
		}
		rpc = append(rpc, time.Since(t0))
		if _, err := e.box.Wait(ctx, &apiv1.WaitRequest{Id: r.GetSandbox().GetId()}); err != nil && codeOf(err).String() != "NotFound" {
			b.Fatal(err)
		}
		whole = append(whole, time.Since(t0))

		t0 = time.Now()
		stream, err := e.box.Run(ctx)
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
		run = append(run, time.Since(t0))
		if _, err := stream.Recv(); !errors.Is(err, io.EOF) {
			b.Fatal(err)
		}

		t0 = time.Now()
		p, err := os.StartProcess("/bin/true", []string{"/bin/true"}, &os.ProcAttr{Dir: "/", Env: []string{"PATH=/bin"}, Files: []*os.File{null, null, null}})
		if err != nil {
			b.Fatal(err)
		}
		bareStart = append(bareStart, time.Since(t0))
		if _, err := p.Wait(); err != nil {
			b.Fatal(err)
		}
		bare = append(bare, time.Since(t0))
	}
	b.ReportMetric(median(rpc).Seconds()*1e6, "rpc-us")
	b.ReportMetric(median(bareStart).Seconds()*1e6, "bare-us")
	b.ReportMetric(float64(median(rpc))/float64(median(bareStart)), "start-ratio")
	b.ReportMetric(float64(median(whole))/float64(median(bare)), "whole-ratio")
	b.ReportMetric(float64(median(run))/float64(median(bare)), "run-ratio")
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
