package std

import (
	"os"
	"path/filepath"
	"testing"

	"policyd.dev/policyd/enforce/landlock"
	"policyd.dev/policyd/internal/policy"
	"policyd.dev/policyd/internal/testkernel"
)

// runExample starts a program under a policy of docs/examples with these parameters.
func runExample(t *testing.T, name string, given map[string]string, dir string, argv ...string) (string, int) {
	t.Helper()
	src, err := os.ReadFile("../../docs/examples/" + name)
	if err != nil {
		t.Fatal(err)
	}
	docs, err := policy.Parse(name, src)
	if err != nil {
		t.Fatal(err)
	}
	p := docs[0].Resource.GetLandlockPolicy()
	// The folders that the example's parameters must lie within are not the test's.
	for _, param := range p.GetSpec().GetParameters() {
		param.Within = nil
	}
	c, err := policy.Compile(p, policy.CompileOptions{Parameters: given, Document: docs[0]})
	if err != nil {
		t.Fatal(err)
	}
	c.Profile.Degrade = true // on every kernel that has Landlock
	return start(t, c.Profile, landlock.Probe(), dir, argv...)
}

func TestExampleOneLiner(t *testing.T) {
	testkernel.Each(t, testkernel.Landlock, func(t *testing.T) {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "log"), []byte("error b\nok\nerror b\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		given := map[string]string{"folder": dir}
		out, code := runExample(t, "one-liner.yaml", given, dir, "/bin/sh", "-c", "grep -rh error . | sort | uniq -c")
		want(t, out, code, "2 error b")
		out, code = runExample(t, "one-liner.yaml", given, dir, "/bin/sh", "-c", "echo x > log")
		refused(t, out, code)
	})
}

func TestExamplePythonReport(t *testing.T) {
	testkernel.Each(t, testkernel.Landlock, func(t *testing.T) {
		python := program(t, "apt-get install python3", "/usr/bin/python3", "/usr/local/bin/python3")
		data, report := t.TempDir(), t.TempDir()
		if err := os.WriteFile(filepath.Join(data, "in.csv"), []byte("1\n2\n3\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		script := "import sys, csv\n" +
			"total = sum(int(r[0]) for r in csv.reader(open(sys.argv[1] + '/in.csv')))\n" +
			"open(sys.argv[2] + '/out.txt', 'w').write(str(total))\nprint('total', total)\n"
		given := map[string]string{"data": data, "report": report}
		out, code := runExample(t, "python-report.yaml", given, report, python, "-c", script, data, report)
		want(t, out, code, "total 6")
		out, code = runExample(t, "python-report.yaml", given, report, python, "-c", script, data, data)
		refused(t, out, code)
	})
}

func TestExampleBuildJob(t *testing.T) {
	testkernel.Each(t, testkernel.Landlock, func(t *testing.T) {
		cc := program(t, "apt-get install gcc", "/usr/bin/gcc", "/usr/bin/cc")
		dir := t.TempDir()
		source := "#include <stdio.h>\nint main(void) { return puts(\"built\") < 0; }\n"
		if err := os.WriteFile(filepath.Join(dir, "a.c"), []byte(source), 0o644); err != nil {
			t.Fatal(err)
		}
		given := map[string]string{"checkout": dir}
		out, code := runExample(t, "build-job.yaml", given, dir, "/bin/sh", "-c", cc+" -o a.tmp a.c && mkdir -p bin && mv a.tmp bin/a && ./bin/a")
		want(t, out, code, "built")
		out, code = runExample(t, "build-job.yaml", given, dir, "/bin/sh", "-c", "cat /etc/fstab")
		refused(t, out, code)
	})
}
