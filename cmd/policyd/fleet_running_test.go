package main

import (
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"policyd.dev/policyd/internal/containers"
	"policyd.dev/policyd/internal/fleet/host"
)

// TestContainersRun: containers that are alive are counted, at most a little late; records of others are not.
func TestContainersRun(t *testing.T) {
	dir := t.TempDir()
	gone := exec.Command("true")
	if err := gone.Run(); err != nil {
		t.Fatal(err)
	}
	digest := "sha256:" + strings.Repeat("ab", 32)
	write := func(id, version string, pid int) {
		t.Helper()
		r := &containers.Record{ID: id, Bundle: "/b/" + id, Pid: pid, Version: version, Digest: digest, Created: time.Now()}
		if err := containers.Write(dir, r); err != nil {
			t.Fatal(err)
		}
	}
	write("one", "web@7", os.Getpid())
	write("two", "web@7", gone.Process.Pid)
	write("three", "we b@0", os.Getpid())
	if err := os.WriteFile(dir+"/x.json", []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	e := &elsewhere{records: dir, log: slog.New(slog.DiscardHandler)}
	if got := e.running(); len(got) != 1 || got[0] != (host.Running{Policy: "web", Version: 7}) {
		t.Errorf("running: %v", got)
	}
	write("four", "db@1", os.Getpid())
	if got := e.running(); len(got) != 1 {
		t.Errorf("it was looked at again at once: %v", got)
	}
	e.until = time.Time{}
	if got := e.running(); len(got) != 2 {
		t.Errorf("running: %v", got)
	}
}
