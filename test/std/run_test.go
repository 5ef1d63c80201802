package std

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"policyd.dev/policyd/enforce/landlock"
	"policyd.dev/policyd/enforce/profile"
	"policyd.dev/policyd/enforce/spawn"
	"policyd.dev/policyd/internal/policy"
	"policyd.dev/policyd/internal/testkernel"
)

// run starts a program under a policy whose one layer has this body, written
// for the ABI of the kernel, and gives its output and exit code.
func run(t *testing.T, body string, dir string, argv ...string) (string, int) {
	t.Helper()
	sup := landlock.Probe()
	if sup.State != landlock.Available {
		t.Fatal(sup.Err)
	}
	return start(t, compile(t, body, sup.ABI), sup, dir, argv...)
}

// compile gives the profile of a policy whose one layer has this body.
func compile(t *testing.T, body string, abi int) *profile.Profile {
	t.Helper()
	text := fmt.Sprintf("apiVersion: policyd/v1\nkind: LandlockPolicy\nmetadata: {name: test}\nspec:\n  abi: %d\n  layers:\n    - name: only\n", abi)
	for line := range strings.SplitSeq(strings.TrimSpace(body), "\n") {
		text += "      " + strings.TrimPrefix(line, "\t\t\t") + "\n"
	}
	docs, err := policy.Parse("test.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	c, err := policy.Compile(docs[0].Resource.GetLandlockPolicy(), policy.CompileOptions{Document: docs[0]})
	if err != nil {
		t.Fatal(err)
	}
	return c.Profile
}

// start runs a program under a profile and gives its output and exit code.
func start(t *testing.T, p *profile.Profile, sup landlock.Support, dir string, argv ...string) (string, int) {
	t.Helper()
	rs, err := landlock.Build(p, sup)
	if err != nil {
		t.Fatal(err)
	}
	defer rs.Release()

	out, err := os.CreateTemp(t.TempDir(), "out")
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	s := spawn.NewSpawner(1)
	defer s.Close()
	child, err := s.Start(&spawn.Command{
		Path: argv[0], Argv: argv, Dir: dir, Stdout: out, Stderr: out,
		Env: []string{"PATH=/usr/local/bin:/usr/bin:/bin", "HOME=/nonexistent", "LC_ALL=C.UTF-8", "PYTHONDONTWRITEBYTECODE=1"},
	}, rs)
	if err != nil {
		return err.Error(), -1
	}
	defer child.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	status, err := child.Wait(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := out.Seek(0, io.SeekStart); err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(out)
	if err != nil {
		t.Fatal(err)
	}
	return string(b), status.Code
}

// program is the path of an installed program, without what a user has put before it in PATH.
func program(t *testing.T, howto string, paths ...string) string {
	t.Helper()
	for _, p := range paths {
		if _, err := os.Stat(p); err == nil {
			return p
		}
	}
	return testkernel.RequireTool(t, filepath.Base(paths[0]), howto)
}

// want fails unless the program ended well and its output holds a text.
func want(t *testing.T, out string, code int, text string) {
	t.Helper()
	if code != 0 || !strings.Contains(out, text) {
		t.Errorf("exit code %d, output %q; want 0 and %q", code, out, text)
	}
}

// refused fails unless the program failed for want of a right.
func refused(t *testing.T, out string, code int) {
	t.Helper()
	if code == 0 || !strings.Contains(strings.ToLower(out), "permission denied") {
		t.Errorf("exit code %d, output %q; want a refusal", code, out)
	}
}
