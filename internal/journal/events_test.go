package journal

import (
	"flag"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the catalog that is shipped")

// TestEvents: ids are ids, and each message is one that policyd logs.
func TestEvents(t *testing.T) {
	logged := literals(t)
	ids := map[string]bool{}
	for _, e := range Events {
		if !regexp.MustCompile(`^[0-9a-f]{32}$`).MatchString(e.ID) || ids[e.ID] {
			t.Errorf("%q: the id %s is none, or another event's", e.Message, e.ID)
		}
		ids[e.ID] = true
		if !logged[e.Message] {
			t.Errorf("nothing logs %q", e.Message)
		}
		if MessageID(e.Message) != e.ID {
			t.Errorf("%q has another id", e.Message)
		}
		for _, name := range regexp.MustCompile(`@([A-Z_]+)@`).FindAllStringSubmatch(e.Subject+e.Help, -1) {
			known := strings.HasPrefix(name[1], "POLICYD_")
			for _, f := range fields {
				known = known || f == name[1]
			}
			if !known {
				t.Errorf("%q: no line of the log has the field %s", e.Message, name[1])
			}
		}
		if strings.Contains(e.Help, "\n-- ") {
			t.Errorf("%q: its text would end the entry", e.Message)
		}
	}
	if MessageID("request") != "" {
		t.Error("every line has an id")
	}
}

// literals are the first arguments of calls in the daemon's packages.
func literals(t *testing.T) map[string]bool {
	t.Helper()
	found := map[string]bool{}
	for _, dir := range []string{"../../cmd/policyd", "../server", "../sandbox", "../smackhost"} {
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
			if err != nil {
				return err
			}
			ast.Inspect(file, func(n ast.Node) bool {
				call, ok := n.(*ast.CallExpr)
				if !ok {
					return true
				}
				for _, arg := range call.Args {
					if lit, ok := arg.(*ast.BasicLit); ok && lit.Kind == token.STRING {
						if text, err := strconv.Unquote(lit.Value); err == nil {
							found[text] = true
						}
					}
				}
				return true
			})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return found
}

// TestCatalog holds the file that is shipped.
func TestCatalog(t *testing.T) {
	const path = "../../deploy/systemd/policyd.catalog"
	if *update {
		if err := os.WriteFile(path, []byte(Catalog()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	have, err := os.ReadFile(path)
	if err != nil || string(have) != Catalog() {
		t.Errorf("the catalog is out of date (%v): go test ./internal/journal -update", err)
	}
}
