// Package policyd_test holds the rules on the tree as a whole: where things
// stand, which package may import which, and that each says what it is for.
package policyd_test

import (
	"encoding/json"
	"go/parser"
	"go/token"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

const module = "policyd.dev/policyd"

type pkg struct {
	ImportPath   string
	Dir          string
	GoFiles      []string
	TestGoFiles  []string
	XTestGoFiles []string
	Imports      []string
	Deps         []string
}

func listPackages(t *testing.T, patterns ...string) map[string]*pkg {
	t.Helper()
	cmd := exec.Command("go", append([]string{"list", "-deps", "-json=ImportPath,Dir,GoFiles,TestGoFiles,XTestGoFiles,Imports,Deps"}, patterns...)...)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	all := map[string]*pkg{}
	for dec := json.NewDecoder(out); ; {
		var p pkg
		if err := dec.Decode(&p); err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		all[p.ImportPath] = &p
	}
	if err := cmd.Wait(); err != nil {
		t.Fatalf("go list: %v", err)
	}
	return all
}

// mayImport is the flow text -> policy -> version -> profile -> ruleset -> process:
// for a folder, the folders of ours its packages may import, directly. A package
// that no row covers is an error, so a new folder needs a decision here.
var mayImport = map[string][]string{
	"api":                  {},
	"internal/errs":        {},
	"internal/owned":       {},
	"internal/paths":       {},
	"internal/buildinfo":   {},
	"internal/testkernel":  {},
	"internal/ask":         {},
	"enforce/profile":      {},
	"smack":                {},
	"smack/smackfs":        {"smack", "internal/errs"},
	"enforce/landlock":     {"enforce/profile", "internal/errs"},
	"enforce/spawn":        {"enforce/profile", "enforce/landlock", "internal/errs", "smack"},
	"enforce/oci":          {"internal/errs"},
	"enforce/unit":         {"enforce/profile", "internal/errs", "internal/owned"},
	"internal/units":       {"enforce", "internal/cli", "internal/errs", "internal/paths"},
	"internal/containers":  {"internal/owned", "smack"},
	"store":                {"api", "internal/errs"},
	"internal/binding":     {"api"},
	"internal/policy":      {"api", "enforce/profile", "internal/binding", "internal/errs", "smack"},
	"internal/exchange":    {"api", "enforce/profile", "internal/errs", "internal/policy"},
	"internal/peer":        {"internal/errs"},
	"internal/config":      {"internal/errs", "internal/paths", "smack"},
	"internal/metrics":     {"api", "internal/buildinfo"},
	"internal/sandbox":     {"api", "store", "enforce", "internal/errs"},
	"internal/smackhost":   {"api", "store", "smack", "internal/errs", "internal/policy"},
	"internal/server":      {"internal/containers", "api", "store", "enforce", "internal/binding", "internal/errs", "internal/policy", "internal/peer", "internal/config", "internal/sandbox", "internal/smackhost", "internal/buildinfo", "internal/metrics", "smack"},
	"internal/fleet":       {"internal/errs"},
	"internal/fleet/pack":  {"api", "internal/errs", "internal/fleet", "internal/policy"},
	"internal/fleet/agent": {"api", "store", "internal/errs", "internal/fleet"},
	"internal/fleet/host":  {"api", "store", "enforce", "internal/errs", "internal/policy", "internal/smackhost", "internal/fleet"},
	"internal/cli":         {"api", "store", "enforce", "internal/errs", "internal/policy", "internal/paths", "internal/buildinfo"},
	"internal/policytest":  {"api", "enforce", "internal/errs", "internal/policy", "internal/cli/decide"},
	"cmd/policyd":          {"api", "store", "enforce", "internal", "smack"},
	"cmd/policyctl":        {"api", "store", "enforce", "internal", "smack"},
	"cmd/policyd-launch":   {"enforce", "internal/errs", "internal/buildinfo"},
	"cmd/policyd-runc":     {"enforce/oci", "internal"},
	"cmd/policyd-nri":      {"api", "enforce", "internal"},
	"deploy":               {},
	"store/storetest":      {"api", "store", "internal/errs"},
	"internal/cli/clitest": {"api", "internal"},
	"test":                 {"api", "enforce", "internal", "store"},
	"test/smackbench":      {"smack", "internal/testkernel"},
	"test/systemd":         {"api", "internal"},
	"internal/journal":     {},
}

func rowFor(rel string) (string, bool) {
	for r := rel; r != "." && r != "/"; r = filepath.Dir(r) {
		if _, ok := mayImport[r]; ok {
			return r, true
		}
	}
	return "", false
}

func TestImportGraph(t *testing.T) {
	for path, p := range listPackages(t, "./...") {
		rel, ours := strings.CutPrefix(path, module+"/")
		if !ours {
			continue
		}
		row, ok := rowFor(rel)
		if !ok {
			t.Errorf("%s: no row in mayImport: decide what it may import", rel)
			continue
		}
		for _, imp := range p.Imports {
			dep, ours := strings.CutPrefix(imp, module+"/")
			if !ours || within(dep, row) {
				continue
			}
			allowed := false
			for _, a := range mayImport[row] {
				allowed = allowed || within(dep, a)
			}
			if !allowed {
				t.Errorf("%s imports %s, which its row (%s) does not allow", rel, dep, row)
			}
		}
	}
}

func within(rel, folder string) bool { return rel == folder || strings.HasPrefix(rel, folder+"/") }

// Some packages promise more: only the standard library, or nothing heavy.
func TestHeavyDependencies(t *testing.T) {
	heavy := []string{"google.golang.org/", "go.etcd.io/", "go.yaml.in/", "github.com/spf13/"}
	for _, tc := range []struct {
		pkg    string
		banned []string // prefixes of import paths
	}{
		{"enforce/profile", []string{"golang.org/", "github.com/", "google.golang.org/", "go.etcd.io/", module + "/internal", module + "/api"}},
		{"internal/errs", []string{"golang.org/", "github.com/", "google.golang.org/"}},
		{"cmd/policyd-launch", append([]string{"net/http", "net/netip", "debug/elf", "text/template"}, heavy...)},
		{"cmd/policyd-runc", append([]string{"net/http", "net/netip", "encoding/xml", "crypto/tls", "os/user", "log/slog", "text/template", module + "/api", module + "/internal/cli"}, heavy...)},
		{"enforce/landlock", heavy},
		{"enforce/spawn", heavy},
		{"internal/containers", append([]string{"golang.org/", "github.com/", module + "/internal/errs"}, heavy...)},
		{"enforce/unit", append([]string{"golang.org/", "github.com/"}, heavy...)},
		{"smack/label", append([]string{"golang.org/", "github.com/", "net/", "encoding/", module + "/"}, heavy...)},
		{"internal/ask", append([]string{"net/http", "crypto/tls"}, heavy...)},
		{"enforce/oci", append([]string{"golang.org/", "github.com/"}, heavy...)},
		{"store", []string{module + "/enforce", module + "/internal/server"}},
	} {
		root := listPackages(t, "./"+tc.pkg)[module+"/"+tc.pkg]
		if root == nil {
			t.Errorf("%s: no such package", tc.pkg)
			continue
		}
		for _, dep := range root.Deps {
			for _, b := range tc.banned {
				if strings.HasPrefix(dep, b) && !strings.HasPrefix(dep, module+"/"+tc.pkg) {
					t.Errorf("%s depends on %s", tc.pkg, dep)
				}
			}
		}
	}
}

func TestPackageDocs(t *testing.T) {
	for path, p := range listPackages(t, "./...") {
		rel, ours := strings.CutPrefix(path, module+"/")
		if !ours {
			continue
		}
		documented := false
		files := p.GoFiles
		if len(files) == 0 { // a folder of tests says what it is for too
			files = append(p.TestGoFiles, p.XTestGoFiles...)
		}
		for _, f := range files {
			file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(p.Dir, f), nil, parser.PackageClauseOnly|parser.ParseComments)
			if err != nil {
				t.Fatal(err)
			}
			documented = documented || file.Doc != nil
		}
		if !documented {
			t.Errorf("%s has no package comment", rel)
		}
	}
}

// The flow of the project shall be visible in the folders; a new one at the top is a decision.
func TestTopLevel(t *testing.T) {
	allowed := map[string]bool{}
	for _, n := range strings.Fields(`api cmd store enforce smack deploy internal docs test tools
		go.mod go.sum Makefile README.md LICENSE CONTRIBUTING.md CHANGELOG.md layout_test.go
		.ci .git .gitignore .golangci.yml`) {
		allowed[n] = true
	}
	out, err := exec.Command("git", "ls-files").Output()
	if err != nil {
		t.Skipf("not a git checkout: %v", err)
	}
	for f := range strings.Lines(string(out)) {
		top, _, _ := strings.Cut(strings.TrimSpace(f), "/")
		if !allowed[top] {
			t.Errorf("%s stands at the top of the tree and no rule allows it", top)
			allowed[top] = true
		}
	}
}
