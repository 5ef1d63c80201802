package oci

import (
	"encoding/json"
	"fmt"
	"os"
	"testing"
)

// BenchmarkEdit reads and edits a config.json: the one of `runc spec`, and one with the 400 system calls of an
// engine's seccomp profile.
func BenchmarkEdit(b *testing.B) {
	text, err := os.ReadFile("testdata/runc-spec.json")
	if err != nil {
		b.Fatal(err)
	}
	var spec map[string]any
	if err := json.Unmarshal(text, &spec); err != nil {
		b.Fatal(err)
	}
	var calls []any
	for i := range 400 {
		calls = append(calls, map[string]any{"names": []string{fmt.Sprintf("system_call_%d", i)}, "action": "SCMP_ACT_ALLOW"})
	}
	spec["linux"].(map[string]any)["seccomp"] = map[string]any{"defaultAction": "SCMP_ACT_ERRNO", "syscalls": calls}
	long, err := json.MarshalIndent(spec, "", "\t")
	if err != nil {
		b.Fatal(err)
	}
	for _, text := range [][]byte{text, long} {
		b.Run(fmt.Sprintf("%dK", len(text)>>10), func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := edited(text, edit); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
