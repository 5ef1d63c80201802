package server

import (
	"bytes"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
)

// askedPerSecond is the rate of BenchmarkGetProfileSelector.
const askedPerSecond = 10_000

// BenchmarkGetProfileSelector asks which profile workloads get, with 10,000 policies and 1,000 bindings stored, over a unix
// socket, at 10,000 calls a second from 8 connections. Times are from when a call was due, so that a call that waits behind a
// slow one counts its waiting. The client runs on the same processors. To reach: p99 of 2 ms at most on 2 cores. Wants -benchtime 5s or more.
func BenchmarkGetProfileSelector(b *testing.B) {
	e := start(b, nil)
	const policies, bindings, each = 10_000, 1_000, 500
	for i := 0; i < policies; i += each {
		var docs [][]byte
		for j := range each {
			docs = append(docs, echoPolicy(fmt.Sprintf("p%d", i+j)))
		}
		e.apply(bytes.Join(docs, []byte("---\n")))
	}
	workloads := make([]*apiv1.Workload, bindings)
	var docs [][]byte
	for i := range bindings {
		image, team, unit := fmt.Sprintf("registry.example/team-%d/app-%d", i%50, i), fmt.Sprintf("team-%d", i%50), fmt.Sprintf("app-%d.service", i)
		workloads[i] = &apiv1.Workload{
			Image: image + ":1.2", Namespace: team, Labels: map[string]string{"app.kubernetes.io/name": fmt.Sprintf("app-%d", i), "team": team},
			Annotations: map[string]string{"io.kubernetes.cri.container-name": "main", "io.kubernetes.cri.image-name": image, "checksum/config": fmt.Sprint(i)},
		}
		match := "{image: '" + image + ":*', namespace: 'team-*'}"
		switch i % 5 {
		case 1:
			match = "{label: {app.kubernetes.io/name: app-" + fmt.Sprint(i) + "}, namespace: " + team + "}"
		case 2:
			match, workloads[i].Unit = "{unit: "+unit+"}", unit
		case 3:
			uid := uint32(i)
			match, workloads[i].Uid = "{uid: "+fmt.Sprint(i)+"}", &uid
		case 4: // behind a wildcard, so that it is tried on every workload with an image
			match = "{image: '*/app-" + fmt.Sprint(i) + ":*'}"
		}
		docs = append(docs, bindingText(fmt.Sprintf("b%d", i), match, fmt.Sprintf("p%d", i*policies/bindings)))
	}
	e.apply(bytes.Join(docs, []byte("---\n")))

	known := make([]*apiv1.GetProfileRequest, bindings)
	whole := make([]*apiv1.GetProfileRequest, bindings)
	for i, w := range workloads {
		whole[i] = &apiv1.GetProfileRequest{Workload: w}
		r, err := e.prof.GetProfile(b.Context(), whole[i])
		if err != nil || r.GetBinding() != fmt.Sprintf("b%d", i) {
			b.Fatalf("workload %d: binding %q, %v", i, r.GetBinding(), err)
		}
		known[i] = &apiv1.GetProfileRequest{Workload: w, KnownDigest: r.GetProfileDigest()}
	}
	clients := make([]apiv1.ProfileServiceClient, 8)
	for i := range clients {
		clients[i] = apiv1.NewProfileServiceClient(e.dial(nil))
	}
	b.Run("known", func(b *testing.B) { askAtRate(b, clients, known) })
	b.Run("whole", func(b *testing.B) { askAtRate(b, clients, whole) })
}

func askAtRate(b *testing.B, clients []apiv1.ProfileServiceClient, requests []*apiv1.GetProfileRequest) {
	type due struct {
		n  int
		at time.Time
	}
	calls := make(chan due, b.N)
	took := make([]time.Duration, b.N)
	var askers sync.WaitGroup
	ctx := b.Context()
	for i := range 64 {
		askers.Go(func() {
			for d := range calls {
				r, err := clients[i%len(clients)].GetProfile(ctx, requests[d.n%len(requests)])
				took[d.n] = time.Since(d.at)
				if err != nil || r.GetNotModified() != (requests[d.n%len(requests)].GetKnownDigest() != "") {
					b.Errorf("%v, %v", r, err)
				}
			}
		})
	}
	b.ResetTimer()
	began := time.Now()
	for n := range b.N {
		at := began.Add(time.Duration(n) * time.Second / askedPerSecond)
		if wait := time.Until(at); wait > 0 {
			time.Sleep(wait)
		}
		calls <- due{n, at}
	}
	close(calls)
	askers.Wait()
	b.ReportMetric(float64(b.N)/time.Since(began).Seconds(), "calls/s")
	slices.Sort(took)
	b.ReportMetric(took[len(took)/2].Seconds()*1e6, "p50-us")
	b.ReportMetric(took[len(took)*99/100].Seconds()*1e6, "p99-us")
}
