package main

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"policyd.dev/policyd/internal/cli"
)

var update = flag.Bool("update", false, "write docs/cli.md anew")

func tree() *cobra.Command {
	return newRoot(&app{in: strings.NewReader(""), out: new(bytes.Buffer), err: new(bytes.Buffer)})
}

func walk(c *cobra.Command, visit func(*cobra.Command)) {
	visit(c)
	for _, sub := range c.Commands() {
		walk(sub, visit)
	}
}

func TestEveryCommandIsDocumented(t *testing.T) {
	n := 0
	walk(tree(), func(c *cobra.Command) {
		n++
		name := c.CommandPath()
		if c.Example == "" {
			t.Errorf("%s has no example", name)
		}
		for _, line := range strings.Split(c.Example, "\n") {
			if line != "" && !strings.HasPrefix(line, "  ") {
				t.Errorf("%s: example %q is not indented", name, line)
			}
		}
		if c.Short == "" || strings.HasSuffix(c.Short, ".") {
			t.Errorf("%s: short description %q", name, c.Short)
		}
		if c.HasParent() && !c.Parent().HasParent() && c.GroupID == "" {
			t.Errorf("%s is in no group", name)
		}
		for _, line := range strings.Split(c.Long, "\n") {
			if len(line) > 108 {
				t.Errorf("%s: line of help is too long: %q", name, line)
			}
		}
		c.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if f.Usage == "" {
				t.Errorf("%s --%s has no description", name, f.Name)
			}
		})
	})
	if n < 35 {
		t.Errorf("only %d commands", n)
	}
}

// The manual is what the command tree says; `go test ./cmd/policyctl -run
// Manual -update` writes it.
func TestManualIsCurrent(t *testing.T) {
	const path = "../../docs/cli.md"
	want := manual(tree())
	if *update {
		if err := os.WriteFile(path, want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s is not what the commands say; write it anew: go test ./cmd/policyctl -run Manual -update", path)
	}
}

const manualHead = `# policyctl

Written from the commands themselves; a test holds it current. The same is in ` + "`policyctl help`" + ` and in the manual
pages (` + "`policyctl man FOLDER`" + `).

## Output

` + "`-o`" + ` chooses the form. ` + "`table`" + ` and ` + "`wide`" + ` are for people and may change. ` + "`json`" + ` and ` + "`yaml`" + ` are for programs: the
fields are those of the API's messages (api/policyd/v1) by their JSON names, all of them are always there, 64-bit numbers are
strings, maps are sorted, and lists are one message with a list in it. What goes on (` + "`events`, `get --watch`" + `) gives one
message a line. ` + "`name`" + ` gives what other commands take: policy/web@3, or the id of a sandbox. Some commands have
fields of their own:

- check, explain: see [decisions.md](decisions.md); test: see [policy-tests.md](policy-tests.md); preflight: see [preflight.md](preflight.md);
  diff --semantic: see [semantic-diff.md](semantic-diff.md)
- inspect: name, digest, abi, degrade, flatten, accept, layers (name, handles and quiet by fs, net, scope, logFlags), paths
  (path, missing, access and quiet by layer), ports (first, last, access and quiet by layer), needs

Colour is used on a terminal only, and not when NO_COLOR is set; ` + "`--color`" + ` decides otherwise. Results go to standard output,
all else to standard error; ` + "`-q`" + ` leaves out what was not asked for.

## Exit codes

| code | meaning |
|---|---|
`

// manual writes docs/cli.md.
func manual(root *cobra.Command) []byte {
	var b bytes.Buffer
	b.WriteString(manualHead)
	for _, d := range cli.ExitDocs() {
		fmt.Fprintf(&b, "| %d | %s |\n", d.Code, d.Doc)
	}
	b.WriteString("\n`run`, `exec` and `wait` otherwise end with the status of the program. For `diff`, `check`, `explain`, `preflight`,\n`resolve` and `test`, 1 is an answer (different, refused, not as expected), and what would be 1 elsewhere is 2. For `diff --semantic` 3 is one too\n(something is gained), and what would be 3 or 4 elsewhere is 2.\n")
	b.WriteString("\n## Flags of every command\n\n```\n" + root.PersistentFlags().FlagUsages() + "```\n")
	for _, g := range root.Groups() {
		fmt.Fprintf(&b, "\n## %s\n", strings.TrimSuffix(g.Title, ":"))
		for _, c := range root.Commands() {
			if c.GroupID == g.ID && !c.Hidden {
				manualCommand(&b, c)
			}
		}
	}
	return b.Bytes()
}

func manualCommand(b *bytes.Buffer, c *cobra.Command) {
	if c.Name() == "help" {
		return
	}
	fmt.Fprintf(b, "\n### policyctl %s\n\n%s.\n", strings.TrimPrefix(c.CommandPath(), "policyctl "), c.Short)
	if c.Long != "" && c.Long != c.Short+"." {
		fmt.Fprintf(b, "\n%s\n", c.Long)
	}
	fmt.Fprintf(b, "\n```\n%s\n", c.UseLine())
	if flags := c.LocalNonPersistentFlags(); flags.HasAvailableFlags() {
		fmt.Fprintf(b, "\n%s", flags.FlagUsages())
	}
	fmt.Fprintf(b, "```\n\nExamples:\n\n```\n%s\n```\n", strings.ReplaceAll(strings.TrimPrefix(c.Example, "  "), "\n  ", "\n"))
	for _, sub := range c.Commands() {
		manualCommand(b, sub)
	}
}
