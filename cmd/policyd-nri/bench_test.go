package main

import (
	"fmt"
	"log/slog"
	"testing"

	"policyd.dev/policyd/enforce/profile"
)

// BenchmarkCreateContainer is one answer, with its record, among 10,000 profiles in memory.
func BenchmarkCreateContainer(b *testing.B) {
	s := &settings{Launcher: "/bin/true", Records: b.TempDir(), Select: "annotations", Unannotated: "run"}
	p := &plugin{settings: s, memory: newMemory(s, nil), log: slog.New(slog.DiscardHandler)}
	version := func() string { return "v0.12.5" }
	p.version.Store(&version)
	for i := range 10000 {
		name := fmt.Sprintf("policy-%d", i)
		p.memory.put(&answer{question: question{ref: name}, digest: profile.Digest([]byte(name)), version: name + "@1", file: "/profiles/" + name})
	}
	pod := pod(key, "policy-5000", "example.org/other", "value")
	c := (&host{}).container("web", "/bin/web", "-x")
	for i := 0; b.Loop(); i++ {
		c.Id = fmt.Sprint("container-", i)
		if _, _, err := p.CreateContainer(b.Context(), pod, c); err != nil {
			b.Fatal(err)
		}
	}
}
