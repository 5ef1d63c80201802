package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"policyd.dev/policyd/internal/cli"
	"policyd.dev/policyd/internal/cli/graph"
)

// Forms of output of graph alone.
const (
	treeForm cli.Format = "tree"
	dotForm  cli.Format = "dot"
	svgForm  cli.Format = "svg"
	htmlForm cli.Format = "html"
)

func newGraph(a *app) *cobra.Command {
	var files, sets, layers []string
	var compiledFile string
	var depth int
	var fragments bool
	cmd := &cobra.Command{
		Use:   "graph REF|-f FILE|--profile FILE",
		Short: "Draw what a policy grants, where, and by which layer",
		Long: "graph draws the paths of a policy as a tree, then its ports and scopes: what all layers together\n" +
			"allow, and what the rules of each layer grant right there. Folders without a rule of their own are\n" +
			"folded into the path beneath. Rules that fragments alone have are counted, by fragment, and shown with\n" +
			"--fragments; what they grant counts either way. It shows the text of the policy; no host is looked at.\n\n" +
			"-o tree is for a terminal (in ASCII where the locale is not UTF-8), dot for Graphviz; svg and html\n" +
			"are complete in one file and load nothing. The html page folds, unfolds and searches.",
		Example: "  policyctl graph web\n" +
			"  policyctl graph web --depth 2 --layer host\n" +
			"  policyctl graph -f web.yaml --set state=/srv/web -o html > web.html\n" +
			"  policyctl graph --profile web.profile -o dot | dot -Tpdf > web.pdf",
		Args: func(cmd *cobra.Command, args []string) error {
			switch {
			case compiledFile == "":
				return refOrFiles(&files)(cmd, args)
			case len(files) > 0:
				return errors.New("-f and --profile: only one of them")
			case len(args) > 0:
				return errors.New("REF and --profile: only one of them")
			case len(sets) > 0:
				return errors.New("--set: a compiled profile has no parameters left")
			}
			return nil
		},
		ValidArgsFunction: a.completeRefs("LandlockPolicy"),
		RunE: func(cmd *cobra.Command, args []string) error {
			form, err := cli.ParseFormat(a.output, treeForm, dotForm, svgForm, htmlForm)
			if err != nil {
				return err
			}
			if cmd.Flags().Changed("depth") && depth < 1 {
				return cli.Usage(fmt.Errorf("--depth %d: want 1 or more", depth))
			}
			set, err := pairs("--set", sets)
			if err != nil {
				return err
			}
			var c *compiled
			switch {
			case compiledFile != "":
				if c, err = a.readProfile(compiledFile); err != nil {
					err = cli.Usage(err)
				}
			case len(files) > 0:
				c, err = a.compileFiles(files, set)
			default:
				c, err = a.fetch(cmd.Context(), args[0], set, asWritten, false)
			}
			if err != nil {
				return err
			}
			g, err := graph.New(c.profile, c.origins, graph.Options{Name: c.name, Layers: layers, Depth: depth, Fold: !fragments})
			if err != nil {
				return cli.Usage(err)
			}
			return a.drawGraph(g, form)
		},
	}
	f := cmd.Flags()
	f.StringArrayVarP(&files, "file", "f", nil, "draw the policy of this file instead; may be repeated for its fragments")
	f.StringVar(&compiledFile, "profile", "", "draw this compiled profile instead (see compile)")
	f.StringArrayVar(&sets, "set", nil, "value of a parameter, NAME=VALUE; may be repeated")
	_ = cmd.RegisterFlagCompletionFunc("set", a.completeSet)
	f.StringArrayVar(&layers, "layer", nil, "show the rules of this layer alone; may be repeated")
	_ = cmd.RegisterFlagCompletionFunc("layer", a.completeLayer)
	f.BoolVar(&fragments, "fragments", false, "show the rules of fragments too")
	f.IntVar(&depth, "depth", 0, "show paths down to this many folders, and count the rules beneath (default: all)")
	f.StringVarP(&a.output, "output", "o", "", "tree, dot, svg or html")
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{"tree", "dot", "svg", "html"}, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

func (a *app) drawGraph(g *graph.Graph, form cli.Format) error {
	draw := map[cli.Format]func(io.Writer) error{dotForm: g.Dot, svgForm: g.SVG, htmlForm: g.HTML}[form]
	if draw != nil {
		return draw(a.out)
	}
	p := a.painter(a.out)
	styles := map[graph.Style]cli.Style{graph.Title: cli.Bold, graph.Rule: cli.Bold, graph.Allowed: cli.Green, graph.Nothing: cli.Red, graph.Faint: cli.Cyan}
	return g.Tree(a.out, graph.TreeOptions{
		ASCII: !graph.UTF8(),
		Paint: func(s string, style graph.Style) string {
			if c, ok := styles[style]; ok {
				return p.Paint(s, c)
			}
			return s
		},
	})
}
