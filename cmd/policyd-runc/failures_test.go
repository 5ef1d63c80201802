package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestPolicydNotReachable(t *testing.T) {
	for _, lastKnown := range []bool{false, true} {
		h := newHost(t, "")
		if lastKnown {
			h.put("runc.yaml", h.read("runc.yaml")+"unreachable: last-known\n", 0o644)
		}
		text := config(`"policyd.dev/profile":"web@stable"`)
		h.put("bundle/config.json", text, 0o644)
		if code, _, errOut := h.run("run", "id"); code != 42 {
			t.Fatal(code, errOut)
		}
		edited := h.read("bundle/config.json")
		h.server.Stop()
		h.put("bundle/config.json", text, 0o644)
		code, out, errOut := h.run("--log", h.path("log"), "--log-format=json", "run", "id")
		if !lastKnown {
			if code != 1 || out != "" || !strings.Contains(errOut, "not reachable") || h.read("bundle/config.json") != text {
				t.Errorf("exit %d, %q, %q", code, out, errOut)
			}
			if log := h.read("log"); !strings.Contains(log, `"level":"error","msg":"policyd-runc: profile \"web@stable\": policyd is not reachable`) {
				t.Errorf("log %q", log)
			}
			continue
		}
		if code != 42 || h.read("bundle/config.json") != edited {
			t.Errorf("last known: exit %d, %q, %q", code, out, errOut)
		}
		// Only of what was asked for before, and only whole.
		h.put("bundle/config.json", config(`"policyd.dev/profile":"other"`), 0o644)
		if code, out, errOut := h.run("run", "id"); code != 1 || out != "" || !strings.Contains(errOut, "none is known") {
			t.Errorf("never asked: exit %d, %q, %q", code, out, errOut)
		}
		h.put("bundle/config.json", text, 0o644)
		files, _ := filepath.Glob(h.path("state/last/*"))
		os.Chmod(files[0], 0o644)
		os.WriteFile(files[0], []byte("spoiled"), 0o644)
		if code, out, errOut := h.run("run", "id"); code != 1 || out != "" || !strings.Contains(errOut, "not what it was") {
			t.Errorf("spoiled: exit %d, %q, %q", code, out, errOut)
		}
	}
}

func TestSettings(t *testing.T) {
	h := newHost(t, "")
	h.put("bundle/config.json", config(""), 0o644)
	good := h.read("runc.yaml")
	for _, tc := range []struct{ text, err string }{
		{good + "unannotaded: refuse\n", "unannotaded"},
		{good + "select: bindings\nunannotated: run\n", "mean nothing"},
		{good + "select: image\n", "neither annotations nor bindings"},
		{good + "unannotated: maybe\n", "neither run nor refuse"},
		{good + "unreachable: run\n", "neither refuse nor last-known"},
		{"runtime: /no/such/runtime\n", "/no/such/runtime"},
		{"runtime: " + os.Args[0] + "\n", "is policyd-runc itself"},
		{"launcher: launch\n", "no absolute path"},
		{"runtime: [", "runc.yaml"},
	} {
		h.put("runc.yaml", tc.text, 0o644)
		if code, out, errOut := h.run("run", "id"); code != 1 || out != "" || !strings.Contains(errOut, tc.err) {
			t.Errorf("%q: exit %d, %q, %q", tc.text, code, out, errOut)
		}
	}
	h.put("runc.yaml", good, 0o644)
	os.Chmod(h.config, 0o646)
	if code, out, errOut := h.run("run", "id"); code != 1 || out != "" || !strings.Contains(errOut, "may be able to write it") {
		t.Errorf("for everybody to write: exit %d, %q, %q", code, out, errOut)
	}
	h.config = h.path("absent")
	if code, out, errOut := h.run("run", "id"); code != 1 || out != "" || !strings.Contains(errOut, "absent") {
		t.Errorf("named and absent: exit %d, %q, %q", code, out, errOut)
	}
	h.config = h.put("empty.yaml", "", 0o644)
	h.env = []string{runtimeEnv + "=" + h.path("runtime")}
	if code, out, errOut := h.run("run", "id"); code != 42 || out != "<run><id>" {
		t.Errorf("runtime by the environment: exit %d, %q, %q", code, out, errOut)
	}
	// As conmon does it: no PATH. echo stands in every system's folder.
	h.env = []string{runtimeEnv + "=echo", "PATH="}
	if code, out, errOut := h.run("start", "id"); code != 0 || out != "start id\n" {
		t.Errorf("without PATH: exit %d, %q, %q", code, out, errOut)
	}
}
