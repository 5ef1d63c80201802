package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"policyd.dev/policyd/internal/cli"
	"policyd.dev/policyd/internal/cli/decide"
	"policyd.dev/policyd/internal/cli/preflight"
)

func newCheck(a *app) *cobra.Command {
	d := &decision{}
	var batch string
	cmd := &cobra.Command{
		Use:   "check REF|-f FILE|--profile FILE|--container ID -- OPERATION [WORD...]",
		Short: "Say what a policy allows, and which rule or layer decides",
		Long: "check answers as this host's kernel would for a program started under the policy now: it follows\n" +
			"symbolic links and looks at inodes as the kernel does. It speaks of Landlock alone; file modes and\n" +
			"other security modules may refuse as well. With --lexical it looks at no file of this host.\n" +
			"For what is refused it proposes the least rules that would allow it.\n\n" +
			"--batch reads one operation a line (words as in a shell, # begins a comment) and answers each at\n" +
			"once with a line: its number, verdict, errno, what each layer lacks, the operation; with -o json\n" +
			"with a line of JSON.\n\n" +
			containerHelp +
			operationsHelp() + "\n" +
			"Exit code 0: allowed or not mediated, 1: refused, 2: no answer (wrong question, or nothing would\n" +
			"start at all). --batch: 2 when a line had no answer, else 1 when one was refused.",
		Example: "  policyctl check web -- open /etc/shadow r\n" +
			"  policyctl check -f web.yaml -- exec /usr/bin/python3\n" +
			"  policyctl check web@2 -o json -- bind tcp 8080\n" +
			"  policyctl check --profile web.profile --lexical --abi 6 -- rename /srv/a/x /srv/b/x\n" +
			"  find /srv -type f -printf 'open \"%p\" r\\n' | policyctl check web --batch -",
		Args: func(cmd *cobra.Command, args []string) error {
			_, words, err := d.split(cmd, args)
			switch {
			case err != nil:
				return err
			case batch != "" && len(words) > 0:
				return fmt.Errorf("%q: with --batch the operations stand in its lines", words[0])
			case batch == cli.Stdin && (d.profile == cli.Stdin || contains(d.files, cli.Stdin)):
				return errors.New("standard input cannot be both the policy and the batch")
			case batch == "" && len(words) == 0:
				return errNoQuestion(cmd)
			}
			return nil
		},
		Annotations:       map[string]string{exitRuleKey: exitAnswers},
		ValidArgsFunction: a.completeQuestion(d),
		RunE: func(cmd *cobra.Command, args []string) error {
			ref, words, err := d.split(cmd, args)
			if err != nil {
				return cli.Usage(err)
			}
			if batch != "" {
				return a.checkBatch(cmd, d, ref, batch)
			}
			form, err := cli.ParseFormat(a.output, cli.Table, cli.JSON, cli.YAML)
			if err != nil {
				return err
			}
			q, err := question(words)
			if err != nil {
				return err
			}
			dec, c, err := d.decider(a, cmd, ref)
			if err != nil {
				return err
			}
			v, err := ask(dec, q, false)
			if err != nil {
				return err
			}
			told := checked{v, []preflight.Rules{}}
			if !v.Allowed() {
				told.Fix = fix(c.profile, d.options, q)
			}
			if form != cli.Table {
				err = cli.WriteValue(a.out, form, told)
			} else {
				err = a.writeVerdict(c.name, told)
			}
			return errors.Join(err, verdictExit(v))
		},
	}
	d.flags(a, cmd)
	cmd.Flags().StringVar(&batch, "batch", "", "answer the operations in the lines of this file; - is standard input")
	return cmd
}

// errNoQuestion is the error of a command line without an operation.
func errNoQuestion(cmd *cobra.Command) error {
	return fmt.Errorf("the question is missing: an operation, as in `policyctl %s web -- open /etc/passwd r`", cmd.Name())
}

func contains(list []string, s string) bool {
	for _, e := range list {
		if e == s {
			return true
		}
	}
	return false
}

// verdictExit is the exit code of an answer, as an error.
func verdictExit(v *decide.Answer) error {
	if v.Allowed() {
		return nil
	}
	return &cli.Exit{Code: cli.ExitRefused}
}

// checkBatch answers the lines of a file.
func (a *app) checkBatch(cmd *cobra.Command, d *decision, ref, name string) error {
	form, err := cli.ParseFormat(a.output, cli.Table, cli.JSON)
	if err != nil {
		return err
	}
	in := a.in
	if name != cli.Stdin {
		f, err := os.Open(name)
		if err != nil {
			return err
		}
		defer f.Close()
		in = f
	}
	dec, _, err := d.decider(a, cmd, ref)
	if err != nil {
		return err
	}
	unanswered, denied, err := runBatch(dec, in, a.out, form == cli.JSON)
	switch {
	case err != nil:
		return err
	case unanswered > 0:
		return &cli.Exit{Code: cli.ExitUsage, Err: fmt.Errorf("%s had no answer", count(unanswered, "line", "lines"))}
	case denied > 0:
		return &cli.Exit{Code: cli.ExitRefused}
	}
	return nil
}

// writeVerdict prints an answer for people: the verdict, who refuses or grants,
// the rules that would allow it, and the notes.
func (a *app) writeVerdict(name string, told checked) error {
	v := told.Answer
	a.writeHeadline(name, v)
	if a.quiet {
		return nil
	}
	var b strings.Builder
	line := func(first, text string) { b.WriteString(wrap(first, "      ", cli.Clean(text))) }
	for _, l := range v.Layers {
		line("  layer "+l.Name+" refuses: ", lacks(v, l))
		for _, r := range v.DecidedBy {
			if r.Layer == l.Name {
				line("    ", metText(v, r))
			}
		}
	}
	for _, r := range v.DecidedBy {
		if v.Verdict != decide.Deny {
			line("  layer "+r.Layer+": ", fmt.Sprintf("%s granted by %s%s", strings.Join(r.Rights, ", "), r.Rule, place(r)))
		}
	}
	if len(told.Fix) > 0 {
		b.WriteString("  to allow it, merge into the policy's spec (layers of one name into one):\n")
		for line := range strings.Lines(preflight.Text(told.Fix)) {
			b.WriteString("    " + cli.Clean(strings.TrimSuffix(line, "\n")) + "\n")
		}
	}
	if _, err := io.WriteString(a.out, b.String()); err != nil {
		return err
	}
	return a.writeNotes(v)
}

func (a *app) writeHeadline(name string, v *decide.Answer) {
	p := a.painter(a.out)
	word := p.Paint("allowed", cli.Green)
	switch v.Verdict {
	case decide.Deny:
		word = p.Paint("refused", cli.Red) + " with " + v.Errno
	case decide.NotMediated:
		word += ", not mediated by Landlock"
	}
	fmt.Fprintf(a.out, "%s: %s: %s\n", cli.Clean(name), cli.Clean(v.Operation), word)
}

func (a *app) writeNotes(v *decide.Answer) error {
	var err error
	for _, n := range v.Notes {
		_, err = io.WriteString(a.out, wrap("  note: ", "    ", cli.Clean(n.Text)))
	}
	return err
}

// lacks says why a layer refuses.
func lacks(v *decide.Answer, l decide.Layer) string {
	missing := strings.Join(l.Missing, ", ")
	switch {
	case len(l.Missing) == 0:
		return "it handles fs rights"
	case v.Errno == "EPERM":
		return "its scope includes " + missing
	case v.Errno == "EXDEV" && !contains(l.Missing, "refer"):
		return missing + " would be gained"
	}
	return "no rule grants " + missing
}

// metText says of a rule of a denying layer what it does grant, or where a
// layer without any stands.
func metText(v *decide.Answer, r decide.Rule) string {
	switch {
	case r.Rule != "":
		return fmt.Sprintf("met: %s%s grants %s", r.Rule, place(r), strings.Join(r.Rights, ", "))
	case v.Errno == "EPERM":
		return "whatever its rules say" + place(r)
	}
	return "no rule of it is met" + place(r)
}

// place says where a rule stands: " (web.yaml:12, fragment std/base)".
func place(r decide.Rule) string {
	var parts []string
	switch {
	case r.File != "" && r.Line > 0:
		parts = append(parts, fmt.Sprintf("%s:%d", r.File, r.Line))
	case r.File != "" && r.Field != "":
		parts = append(parts, r.File, r.Field)
	case r.Field != "":
		parts = append(parts, r.Field)
	}
	if r.Fragment != "" {
		parts = append(parts, "fragment "+r.Fragment)
	}
	if len(parts) == 0 {
		return ""
	}
	return " (" + strings.Join(parts, ", ") + ")"
}

// columns is how wide text is that is made for a terminal.
const columns = 80

// wrap sets a text in lines of at most columns, as far as it can be broken at
// its spaces. first and next begin the first line and the others.
func wrap(first, next, text string) string {
	var b strings.Builder
	line := first
	for i, w := range strings.Split(text, " ") {
		switch {
		case i > 0 && len(line)+1+len(w) > columns:
			b.WriteString(line + "\n")
			line = next + w
		case i > 0:
			line += " " + w
		default:
			line += w
		}
	}
	b.WriteString(line + "\n")
	return b.String()
}
