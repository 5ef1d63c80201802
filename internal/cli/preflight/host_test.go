package preflight

import (
	"bufio"
	"bytes"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"policyd.dev/policyd/enforce/profile"
	"policyd.dev/policyd/internal/testkernel"
)

// everything is a policy that refuses nothing.
func everything(string, profile.Access) ([]Refusal, error) { return nil, nil }

// traced gives the libraries that the host's loader says it loads.
func traced(t *testing.T, interp, path string, env []string) (libs []string, ok bool) {
	t.Helper()
	// By its real path: the loader takes $ORIGIN from what it is given, the kernel gives the real one.
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return nil, false
	}
	cmd := exec.CommandContext(t.Context(), interp, real)
	cmd.Env = append([]string{"LD_TRACE_LOADED_OBJECTS=1"}, env...)
	out, err := cmd.Output()
	if err != nil {
		return nil, false
	}
	for sc := bufio.NewScanner(bytes.NewReader(out)); sc.Scan(); {
		line := strings.Fields(sc.Text())
		if len(line) >= 3 && line[1] == "=>" && filepath.IsAbs(line[2]) {
			libs = append(libs, line[2])
		} else if len(line) == 2 && filepath.IsAbs(line[0]) && line[0] != interp {
			libs = append(libs, line[0])
		}
	}
	return libs, true
}

// Each library, and its place, is the one that the loader takes.
func TestLibrariesAreTheLoaders(t *testing.T) {
	paths, err := filepath.Glob("/usr/bin/*")
	if err != nil {
		t.Fatal(err)
	}
	more, _ := filepath.Glob("/usr/sbin/*")
	paths = append(paths, more...)
	compared, libraries := 0, 0
	step := max(1, len(paths)/300)
	for i := 0; i < len(paths); i += step {
		path := paths[i]
		_, o, err := readProgram(path)
		if err != nil || o == nil || o.interp == "" {
			continue
		}
		want, ok := traced(t, o.interp, path, nil)
		if !ok {
			continue
		}
		res, err := Find(path, Options{Dir: "/", Grants: everything})
		if err != nil {
			t.Errorf("%s: %v", path, err)
			continue
		}
		got := of(res, Library)
		for i := range want {
			want[i] = filepath.Clean(want[i])
		}
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("%s:\n got  %q\n want %q", path, got, want)
		}
		if !res.Starts {
			t.Errorf("%s: does not start: %+v", path, res.Needs)
		}
		compared++
		libraries += len(want)
	}
	t.Logf("%d programs with %d libraries compared", compared, libraries)
	if compared < 20 {
		testkernel.Skip(t, "20 dynamic programs in /usr/bin", "a host with glibc")
	}
}

// of gives the paths of a kind of needs.
func of(r *Result, kind string) (paths []string) {
	for _, n := range r.Needs {
		if n.Kind == kind && n.Path != "" {
			paths = append(paths, n.Path)
		}
	}
	return paths
}
