package main

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"policyd.dev/policyd/internal/cli"
	"policyd.dev/policyd/internal/cli/decide"
)

func newExplain(a *app) *cobra.Command {
	d := &decision{}
	cmd := &cobra.Command{
		Use:   "explain REF|-f FILE|--profile FILE|--container ID -- OPERATION [WORD...]",
		Short: "Show how the kernel comes to its answer: each step, each layer",
		Long: "explain answers as check does and shows the walk: what is asked of which object, each folder up\n" +
			"to /, the rules met there, what each layer granted by them and what stayed unfulfilled. A rename has\n" +
			"two walks, a script one for itself and one for its interpreter.\n\n" +
			"  + LAYER: RIGHTS      granted by a rule met at this place\n" +
			"  . LAYER              a rule that grants nothing of what is still asked\n" +
			"  - LAYER: RIGHTS      still unfulfilled\n\n" +
			containerHelp +
			operationsHelp() + "\n" +
			"Exit codes are those of check.",
		Example: "  policyctl explain web -- open /etc/shadow r\n" +
			"  policyctl explain --container 3f2a -- open /etc/shadow r\n" +
			"  policyctl explain -f web.yaml -- rename /srv/in/x /srv/out/x\n" +
			"  policyctl explain --profile web.profile --lexical -o json -- exec /usr/bin/env",
		Args: func(cmd *cobra.Command, args []string) error {
			_, words, err := d.split(cmd, args)
			if err == nil && len(words) == 0 {
				err = errNoQuestion(cmd)
			}
			return err
		},
		Annotations:       map[string]string{exitRuleKey: exitAnswers},
		ValidArgsFunction: a.completeQuestion(d),
		RunE: func(cmd *cobra.Command, args []string) error {
			form, err := cli.ParseFormat(a.output, cli.Table, cli.JSON, cli.YAML)
			if err != nil {
				return err
			}
			ref, words, err := d.split(cmd, args)
			if err != nil {
				return cli.Usage(err)
			}
			q, err := question(words)
			if err != nil {
				return err
			}
			dec, c, err := d.decider(a, cmd, ref)
			if err != nil {
				return err
			}
			v, err := ask(dec, q, true)
			if err != nil {
				return err
			}
			if form != cli.Table {
				err = cli.WriteValue(a.out, form, v)
			} else {
				err = a.writeWalk(c.name, v)
			}
			return errors.Join(err, verdictExit(v))
		},
	}
	d.flags(a, cmd)
	return cmd
}

const containerHelp = "With --container the answer is that in a container, for a program that is executed in it now: by the\n" +
	"profile it was started under, with paths as its own mounts and root have them. It takes root.\n\n"

// writeWalk prints an answer with its walk.
func (a *app) writeWalk(name string, v *decide.Answer) error {
	a.writeHeadline(name, v)
	for i := range v.Looks {
		if _, err := io.WriteString(a.out, lookText(&v.Looks[i])); err != nil {
			return err
		}
	}
	for _, l := range v.Layers {
		where := ""
		for _, r := range v.DecidedBy {
			if r.Layer == l.Name && r.Rule == "" {
				where = place(r) // no rule in the walk says it
			}
		}
		if _, err := io.WriteString(a.out, wrap("layer "+l.Name+" refuses: ", "    ", cli.Clean(lacks(v, l)+where))); err != nil {
			return err
		}
	}
	return a.writeNotes(v)
}

func lookText(l *decide.Look) string {
	var b strings.Builder
	head := []string{l.What}
	if l.Object != "" {
		head = append(head, cli.Clean(l.Object))
	}
	switch l.What {
	case "parent", "from", "to":
		head = append(head, "in", cli.Clean(l.Real))
	default:
		if l.Real != "" && l.Real != l.Object {
			head = append(head, "->", cli.Clean(l.Real))
		}
	}
	if len(l.Rights) > 0 {
		head = append(head, "asks for", strings.Join(l.Rights, ", "))
	}
	b.WriteString(wrap("", "    ", strings.Join(head, " ")))
	for _, s := range l.Steps {
		at := s.At
		if at == "" {
			at = "(asked)"
		}
		fmt.Fprintf(&b, "  %s\n", cli.Clean(at))
		for _, r := range s.Rules {
			rule := "by " + r.Rule + place(r)
			if len(r.Rights) == 0 {
				b.WriteString(wrap("    . "+r.Layer+": ", "        ", cli.Clean("nothing "+rule)))
				continue
			}
			b.WriteString(wrap("    + "+r.Layer+": ", "        ", cli.Clean(strings.Join(r.Rights, ", ")+" "+rule)))
		}
		if at != "(asked)" && len(s.Rules) == 0 {
			continue // nothing has changed
		}
		for _, left := range s.Unfulfilled {
			b.WriteString(wrap("    - "+left.Name+": ", "        ", strings.Join(left.Missing, ", ")))
		}
		if len(s.Unfulfilled) == 0 {
			b.WriteString("    nothing is left unfulfilled\n")
		}
	}
	return b.String()
}
