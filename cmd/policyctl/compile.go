package main

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"

	"github.com/spf13/cobra"

	"policyd.dev/policyd/enforce/profile"
	"policyd.dev/policyd/internal/cli"
)

func realFile(name string) (string, error) { return filepath.EvalSymlinks(name) }

func newCompile(a *app) *cobra.Command {
	var files, sets []string
	var abi uint32
	var out string
	cmd := &cobra.Command{
		Use:   "compile REF | compile -f FILE",
		Short: "Compile a policy to a profile",
		Long: "compile writes the binary profile of a stored version, or of a file without a daemon, to -o FILE,\n" +
			"or to standard output unless that is a terminal. Its digest is printed on standard error.\n" +
			"--abi says for which kernel: what it cannot enforce is refused, or listed where the policy says\n" +
			"`enforcement: degrade`. Without --abi a policy is compiled as it is written, whatever kernel runs.",
		Example: "  policyctl compile web@3 -o web.profile\n" +
			"  policyctl compile -f web.yaml --set state=/srv/web -o web.profile\n" +
			"  policyctl compile -f web.yaml --abi 4 -o - | policyctl inspect -",
		Args:              refOrFiles(&files),
		ValidArgsFunction: a.completeRefs("LandlockPolicy"),
		RunE: func(cmd *cobra.Command, args []string) error {
			set, err := pairs("--set", sets)
			if err != nil {
				return err
			}
			if abi > profile.MaxABI {
				return cli.Usage(fmt.Errorf("--abi %d: want 1 to %d", abi, profile.MaxABI))
			}
			if out == "" && cli.IsTerminal(a.out) {
				return cli.Usage(errors.New("a profile is binary: give -o FILE, or send the output elsewhere"))
			}
			var c *compiled
			if len(files) > 0 {
				if c, err = a.compileFiles(files, set); err == nil && abi > 0 {
					err = a.reduce(c, int(abi))
				}
			} else {
				if abi == 0 {
					abi = asWritten
				}
				c, err = a.fetch(cmd.Context(), args[0], set, abi, false)
			}
			if err != nil {
				return err
			}
			if out == "" || out == cli.Stdin {
				_, err = a.out.Write(c.encoded)
			} else {
				err = cli.WriteAtomically(out, 0o644, func(w io.Writer) error {
					_, err := w.Write(c.encoded)
					return err
				})
			}
			if err == nil {
				a.note("%s: %s, %s, %s, %s", c.name, count(len(c.profile.Layers), "layer", "layers"),
					count(len(c.profile.Paths)+len(c.profile.Ports), "row", "rows"), count(len(c.encoded), "byte", "bytes"), c.digest)
			}
			return err
		},
	}
	f := cmd.Flags()
	f.StringArrayVarP(&files, "file", "f", nil, "compile the policy of this file instead; may be repeated for its fragments")
	f.StringArrayVar(&sets, "set", nil, "value of a parameter, NAME=VALUE; may be repeated")
	_ = cmd.RegisterFlagCompletionFunc("set", a.completeSet)
	f.Uint32Var(&abi, "abi", 0, "Landlock ABI to compile for")
	f.StringVarP(&out, "output", "o", "", "file to write; - is standard output")
	return cmd
}

// reduce makes a profile what a kernel of an ABI enforces of it, or refuses.
func (a *app) reduce(c *compiled, abi int) error {
	p, lost := c.profile.Reduce(abi)
	var text []string
	for _, n := range lost {
		if n.Confines() && !c.profile.Degrade {
			text = append(text, n.String())
		} else {
			a.note("not enforced: %v", n)
		}
	}
	if len(text) > 0 {
		return unsupported(abi, text)
	}
	if len(p.Layers) == 0 {
		return nothingLeft(c.name, abi)
	}
	c.profile = p
	c.encoded = p.Encode()
	c.digest = profile.Digest(c.encoded)
	return nil
}

// refOrFiles wants one reference, or none with -f.
func refOrFiles(files *[]string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(*files) > 0 && len(args) > 0:
			return errors.New("REF and -f: only one of them")
		case len(*files) == 0:
			return exactly("REF (or -f FILE)")(cmd, args)
		}
		return nil
	}
}
