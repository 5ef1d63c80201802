// Command pages writes the manual pages of policyd but for those of policyctl, which it writes itself (policyctl man): each
// is made from what a program says of itself with --help, or from a document of docs, so that a page cannot tell another
// story than they do.
//
//	go run ./deploy/package/pages -programs bin -version 1.2.3 -date 1700000000 -out man
//
// It imports nothing of policyd's and is run from the root of the checkout.
package main

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/cpuguy83/go-md2man/v2/md2man"
)

// page is a manual page.
type page struct {
	name    string
	section int
	what    string // the line that apropos finds
	// program is asked for its help, which is the page's first part.
	program string
	// text in Markdown follows, of what has no document of its own.
	text string
	// documents of docs, whole, follow.
	documents []string
	see       string
}

// pages are all of them. A program without one is a mistake, which a test finds.
var pages = []page{
	{
		name: "policyd", section: 8, what: "daemon that stores sandbox policies and starts programs under them",
		program: "policyd", documents: []string{"systemd.md"},
		see: "policyctl(1), policyd.yaml(5), policyd-launch(8), policyd-runc(8), policyd-nri(8), landlock(7)",
	},
	{
		name: "policyd.yaml", section: 5, what: "configuration of policyd",
		documents: []string{"configuration.md"}, see: "policyd(8)",
	},
	{
		name: "policyd-launch", section: 8, what: "become a program under a policy",
		program: "policyd-launch", text: launchText, see: "policyd(8), policyctl-attach(1), policyd-runc(8), landlock(7)",
	},
	{
		name: "policyd-runc", section: 8, what: "OCI runtime that puts containers under policies",
		documents: []string{"containers.md"}, see: "policyd(8), policyd-nri(8), policyd-launch(8), runc(8), crun(1)",
	},
	{
		name: "policyd-nri", section: 8, what: "plugin of containerd and CRI-O that puts containers under policies",
		program: "policyd-nri", documents: []string{"nri.md"}, see: "policyd(8), policyd-runc(8)",
	},
}

const launchText = `
# DESCRIPTION

policyd-launch stands between policyd and programs that it does not start itself. It is put there by others and seldom called by hand: *supervise* by policyd where it cannot write cgroups, *exec* before the program of a
container by policyd-runc and policyd-nri, *unit* before the program of a service by the drop-in that policyctl attach wrote.

It reads the compiled profile, holds it against the digest it was given, puts every layer on itself, and becomes the program by execve(2). Process, streams, environment, credentials and what the service manager handed over stay. When
anything of that fails it ends and the program is not started.

# EXIT STATUS

125 when the profile could not be put on, 126 when the program cannot be executed (also when the policy does not grant that), 127 when there is none; otherwise the program's own.
`

func main() {
	programs := flag.String("programs", "bin", "folder of the built programs")
	version := flag.String("version", "", "of policyd")
	date := flag.Int64("date", 0, "of the pages, Unix time")
	out := flag.String("out", "", "folder that gets man5 and man8")
	flag.Parse()
	if err := write(*programs, *version, time.Unix(*date, 0).UTC(), *out); err != nil {
		fmt.Fprintln(os.Stderr, "pages:", err)
		os.Exit(1)
	}
}

func write(programs, version string, date time.Time, out string) error {
	for _, p := range pages {
		text, err := p.render(programs, version, date)
		if err != nil {
			return fmt.Errorf("%s(%d): %w", p.name, p.section, err)
		}
		if text == nil {
			continue
		}
		dir := filepath.Join(out, fmt.Sprintf("man%d", p.section))
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%s.%d", p.name, p.section)), text, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// render gives the page, nil when the program it is about is not there.
func (p *page) render(programs, version string, date time.Time) ([]byte, error) {
	var b strings.Builder
	fmt.Fprintf(&b, "%% %q %q %q %q %q\n# NAME\n%s - %s\n\n", strings.ToUpper(p.name), fmt.Sprint(p.section), date.Format("January 2006"), "policyd "+version, "policyd", p.name, p.what)
	if p.program != "" {
		path := filepath.Join(programs, p.program)
		if _, err := os.Stat(path); err != nil {
			return nil, err
		}
		help, err := helpOf(path)
		if err != nil {
			return nil, err
		}
		b.WriteString("# SYNOPSIS\n\n" + verbatim(help) + "\n")
	}
	b.WriteString(p.text)
	for _, d := range p.documents {
		text, err := os.ReadFile(filepath.Join("docs", d))
		if err != nil {
			return nil, err
		}
		b.WriteString(document(string(text)))
	}
	fmt.Fprintf(&b, "\n# SEE ALSO\n\n%s\n\nThe documents are in /usr/share/doc/policyd/docs.\n", p.see)
	return md2man.Render([]byte(b.String())), nil
}

// helpOf is what a program says with --help, to either stream: of one without that flag, what it says of wrong use.
func helpOf(path string) (string, error) {
	var out bytes.Buffer
	cmd := exec.Command(path, "--help")
	// The defaults in it are those of root's, not of whoever makes the page.
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	if out.Len() == 0 {
		return "", fmt.Errorf("%s --help says nothing: %w", path, err)
	}
	return out.String(), nil
}

// verbatim is text as it stands.
func verbatim(text string) string {
	var b strings.Builder
	for line := range strings.Lines(strings.TrimRight(text, "\n") + "\n") {
		b.WriteString("    " + line)
	}
	return b.String()
}

var (
	heading = regexp.MustCompile(`(?m)^(#+) (.*)$`)
	link    = regexp.MustCompile(`!?\[([^\]]*)\]\([^)]*\)`)
	table   = regexp.MustCompile(`(?m)(^\|.*\n)+`)
	comment = regexp.MustCompile(`(?s)<!--.*?-->\n?`)
)

// document fits a document into a page: its title and the sections below it become sections of the page, links their text,
// and tables lists, since a terminal is narrower than their cells.
func document(text string) string {
	text = comment.ReplaceAllString(text, "")
	text = link.ReplaceAllString(text, "$1")
	text = table.ReplaceAllStringFunc(text, list)
	return heading.ReplaceAllStringFunc(text, func(h string) string {
		m := heading.FindStringSubmatch(h)
		if len(m[1]) <= 2 {
			return "# " + strings.ToUpper(m[2])
		}
		return m[1][1:] + " " + m[2]
	})
}

// list makes an item of each row of a table: the first cell, and the others below it with the names of their columns where
// there are several.
func list(table string) string {
	var b strings.Builder
	var head []string
	for i, line := range strings.Split(strings.TrimSpace(table), "\n") {
		cells := strings.Split(strings.ReplaceAll(strings.Trim(strings.TrimSpace(line), "|"), `\|`, "\x00"), "|")
		for j := range cells {
			cells[j] = strings.ReplaceAll(strings.TrimSpace(cells[j]), "\x00", "|")
		}
		switch i {
		case 0:
			head = cells
			continue
		case 1:
			continue // the line below the names
		}
		fmt.Fprintf(&b, "\n%s\n: ", cells[0])
		var rest []string
		for j, c := range cells[1:] {
			switch {
			case c == "":
			case len(cells) > 2 && j < len(cells)-2 && head[j+1] != "":
				rest = append(rest, head[j+1]+": "+c+".")
			default:
				rest = append(rest, c)
			}
		}
		b.WriteString(strings.Join(rest, " ") + "\n")
	}
	b.WriteString("\n")
	return b.String()
}
