package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/internal/cli"
)

func newApply(a *app) *cobra.Command {
	var files []string
	var expect string
	req := &apiv1.ApplyRequest{}
	cmd := &cobra.Command{
		Use:   "apply -f FILE|FOLDER|-",
		Short: "Store policies and fragments, all of them or none",
		Long: "apply stores every document of the files as a new version. A document that is equal to its\n" +
			"newest version makes none. When one document is wrong, nothing is stored.\n\n" +
			"A version applies to programs started from then on: Landlock cannot be changed for a running\n" +
			"program, and apply says how many still run under an older version.\n\n" +
			"When policyd goes away meanwhile, the request is repeated with its id, which stores nothing\n" +
			"twice. ^C waits for the answer; a second ^C leaves and tells the id to ask again with.",
		Example: "  policyctl apply -f web.yaml --message 'open port 8080'\n" +
			"  policyctl apply -f policies/ --dry-run --strict\n" +
			"  policyctl apply -f web.yaml --expect 3",
		Args: none,
		RunE: func(cmd *cobra.Command, _ []string) error {
			form, err := cli.ParseFormat(a.output, cli.Table, cli.JSON, cli.YAML, cli.Name)
			if err != nil {
				return err
			}
			if req.Expect, err = expectation(expect); err != nil {
				return err
			}
			if req.Files, err = cli.ReadSources(files, a.in); err != nil {
				return err
			}
			if req.RequestId == "" {
				req.RequestId = cli.RequestID()
			}
			ctx, c, cancel, err := a.call(cmd.Context())
			if err != nil {
				return err
			}
			defer cancel()
			res, err := change(a, ctx, req.RequestId, func(ctx context.Context) (*apiv1.ApplyResponse, error) {
				return cli.Retry(ctx, c, func(ctx context.Context, o ...grpc.CallOption) (*apiv1.ApplyResponse, error) {
					return c.Policies.Apply(ctx, req, o...)
				})
			})
			if err != nil {
				return err
			}
			return a.applied(form, req.DryRun, res)
		},
	}
	f := cmd.Flags()
	f.StringArrayVarP(&files, "file", "f", nil, "file, folder (all *.yaml, *.yml beneath it) or - for standard input; may be repeated")
	f.BoolVar(&req.DryRun, "dry-run", false, "check and say what would change, store nothing")
	f.StringVarP(&req.Message, "message", "m", "", "why, kept with the version")
	f.StringVar(&expect, "expect", "", "number of the version that must be the newest one (0: none yet); for one document")
	f.BoolVar(&req.Strict, "strict", false, "warnings are errors")
	f.StringVar(&req.RequestId, "request-id", "", "id of an earlier, equal request to learn the result of")
	return cmd
}

func (a *app) applied(form cli.Format, dry bool, res *apiv1.ApplyResponse) error {
	if !a.quiet {
		cli.Findings(a.err, a.painter(a.err), res.GetFindings())
	}
	if form == cli.JSON || form == cli.YAML {
		return cli.WriteMessage(a.out, form, res)
	}
	p := a.painter(a.out)
	for _, r := range res.GetResults() {
		name := title(r.GetVersion())
		if form == cli.Name {
			fmt.Fprintln(a.out, cli.Clean(name))
			continue
		}
		if a.quiet {
			continue
		}
		word, style := "unchanged", cli.Style("")
		switch r.GetOutcome() {
		case apiv1.ApplyResponse_OUTCOME_CREATED:
			word, style = "created", cli.Green
		case apiv1.ApplyResponse_OUTCOME_CHANGED:
			word, style = "changed", cli.Yellow
		}
		if style != "" {
			word = p.Paint(word, style)
		}
		if dry {
			word += " (dry run: nothing stored)"
		}
		if n := r.GetRunningOlder(); n > 0 {
			word += fmt.Sprintf("; %s under an older version until they end", count(n, "sandbox runs", "sandboxes run"))
		}
		fmt.Fprintf(a.out, "%s %s\n", cli.Clean(name), word)
	}
	return nil
}

// count is a number with the right word.
func count[N ~uint32 | ~uint64 | ~int](n N, one, many string) string {
	if n == 1 {
		return fmt.Sprintf("%d %s", n, one)
	}
	return fmt.Sprintf("%d %s", n, many)
}
