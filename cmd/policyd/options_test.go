package main

import (
	"os"
	"path/filepath"
	"testing"

	"policyd.dev/policyd/internal/paths"
)

// Where it listens: --listen, the file that was named, the state folder of its own, the system's file.
func TestSocketPath(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "policyd.yaml")
	if err := os.WriteFile(file, []byte("socket: {path: /run/of-the-file.sock}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	layout := paths.Layout{State: filepath.Join(dir, "system"), Runtime: filepath.Join(dir, "run"), Config: file}
	for _, tc := range []struct {
		flags flags
		want  string
	}{
		{flags{}, "/run/of-the-file.sock"},
		{flags{config: file}, "/run/of-the-file.sock"},
		{flags{stateDir: filepath.Join(dir, "own")}, filepath.Join(dir, "own", "run", "policyd.sock")},
		{flags{stateDir: filepath.Join(dir, "own"), config: file}, "/run/of-the-file.sock"},
		{flags{stateDir: filepath.Join(dir, "own"), config: file, listen: "unix:///run/l.sock"}, "/run/l.sock"},
	} {
		o, err := tc.flags.options(layout)
		if err != nil {
			t.Fatalf("%+v: %v", tc.flags, err)
		}
		if o.socket != tc.want {
			t.Errorf("%+v: socket %s, want %s", tc.flags, o.socket, tc.want)
		}
	}
}
