package testkernel

import (
	"errors"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

const buildScript = "../../test/kernels/build.sh"

// TestBuildScriptPaths holds that the script makes the kernels where this package looks for them.
func TestBuildScriptPaths(t *testing.T) {
	for _, env := range []struct{ name, cache, xdg, home string }{
		{name: "home", home: "/home/x"},
		{name: "xdg", home: "/home/x", xdg: "/xdg"},
		{name: "own", home: "/home/x", xdg: "/xdg", cache: "/own"},
	} {
		t.Run(env.name, func(t *testing.T) {
			t.Setenv("POLICYD_KERNEL_CACHE", env.cache)
			t.Setenv("XDG_CACHE_HOME", env.xdg)
			t.Setenv("HOME", env.home)
			out, err := exec.CommandContext(t.Context(), "bash", buildScript, "--print").Output()
			if err != nil {
				t.Fatal(err)
			}
			dir, err := CacheDir()
			if err != nil {
				t.Fatal(err)
			}
			want := "uml-6.1 " + filepath.Join(dir, UML61, "linux") + "\n" +
				"uml-7.3 " + filepath.Join(dir, UML73, "linux") + "\n" +
				"sandboxer " + filepath.Join(dir, UML73, "sandboxer") + "\n"
			if string(out) != want {
				t.Errorf("printed:\n%swant:\n%s", out, want)
			}
		})
	}
}

func TestBuildScriptUsage(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "bash", buildScript, "--no-such").CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 2 || !strings.HasPrefix(string(out), "usage:") {
		t.Errorf("%v: %q", err, out)
	}
}

// TestSandboxer runs the sample launcher under the kernel it comes from: what it is allowed works, the rest does not.
func TestSandboxer(t *testing.T) {
	path, err := Sandboxer()
	if errors.Is(err, ErrNoKernel) {
		Skip(t, "the kernel's sandboxer", "make kernels")
	} else if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name, script string
		exit         int
	}{
		{name: "allowed", script: "cat /usr/lib/os-release >/dev/null"},
		{name: "refused", script: "cat /etc/passwd", exit: 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var out strings.Builder
			g := Guest{
				Kernel: UML73,
				Argv:   []string{path, "/bin/sh", "-c", tc.script},
				Env:    []string{"LL_FS_RO=/usr:/bin:/lib:/lib64:/proc", "LL_FS_RW=/dev/null"},
				Output: &out,
			}
			exit, err := g.Run(t.Context())
			if err != nil || exit != tc.exit {
				t.Errorf("status %d, %v, want %d:\n%s", exit, err, tc.exit, out.String())
			}
		})
	}
}
