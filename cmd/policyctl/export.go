package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"policyd.dev/policyd/internal/cli"
	"policyd.dev/policyd/internal/errs"
	"policyd.dev/policyd/internal/exchange"
)

func newExport(a *app) *cobra.Command {
	var files, sets []string
	var format, out string
	var toml, lossy bool
	cmd := &cobra.Command{
		Use:   "export REF|-f FILE --format landlockconfig [-o FILE|FOLDER]",
		Short: "Write a policy in the format of landlockconfig",
		Long: "export writes a policy with one layer to a file, or to standard output, and one with several layers to a\n" +
			"folder, a file for each. The files are JSON, or TOML with --toml. What the format cannot say is told, and\n" +
			"then nothing is written unless --lossy is given.",
		Example: "  policyctl export web@3 --format landlockconfig --toml -o web.toml\n" +
			"  policyctl export -f web.yaml --set state=/srv/web --format landlockconfig --lossy -o web.json",
		Args:              refOrFiles(&files),
		ValidArgsFunction: a.completeRefs("LandlockPolicy"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if format != "landlockconfig" {
				return cli.Usage(fmt.Errorf("--format %q: want landlockconfig", format))
			}
			set, err := pairs("--set", sets)
			if err != nil {
				return err
			}
			ref := ""
			if len(files) == 0 {
				ref = args[0]
			}
			c, err := a.load(cmd.Context(), ref, files, set, true)
			if err != nil {
				return err
			}
			e, err := exchange.ExportConfig(c.policy, c.profile, set)
			if err != nil {
				return err
			}
			for _, r := range e.Remarks {
				a.note("%s", r)
			}
			for _, l := range e.Losses { // never silent, also with -q
				fmt.Fprintln(a.err, cli.Clean("landlockconfig cannot say: "+l))
			}
			if len(e.Losses) > 0 && !lossy {
				return errors.New("landlockconfig cannot say all of the policy, so nothing is written; --lossy writes the rest of it")
			}
			return a.writeConfigs(e.Configs, c.name, out, toml)
		},
	}
	f := cmd.Flags()
	f.StringArrayVarP(&files, "file", "f", nil, "export the policy of this file instead, without a daemon; may be repeated for its fragments")
	f.StringArrayVar(&sets, "set", nil, "value of a parameter, NAME=VALUE; may be repeated")
	f.StringVar(&format, "format", "", "landlockconfig")
	f.BoolVar(&toml, "toml", false, "write TOML, with comments on where it came from")
	f.StringVarP(&out, "output", "o", cli.Stdin, "file or folder to write to; - is standard output")
	f.BoolVar(&lossy, "lossy", false, "write what the format can say, and leave out the rest")
	_ = cmd.RegisterFlagCompletionFunc("format", cobra.FixedCompletions([]string{"landlockconfig"}, cobra.ShellCompDirectiveNoFileComp))
	_ = cmd.MarkFlagRequired("format")
	return cmd
}

// configFile is a file to write.
type configFile struct {
	name string
	data []byte
}

// writeConfigs writes the files of layers: one to a file, several to a folder.
func (a *app) writeConfigs(configs []*exchange.Config, name, out string, toml bool) error {
	ext := ".json"
	if toml {
		ext = ".toml"
	}
	var files []configFile
	for i, c := range configs {
		file := configFile{name: fmt.Sprintf("%02d-%s%s", i+1, c.Name, ext)}
		if toml {
			file.data = c.TOML(fmt.Sprintf("%s, layer %s\nMade by policyctl export", name, c.Name))
		} else {
			file.data = c.JSON()
		}
		files = append(files, file)
	}
	st, err := os.Stat(out)
	isDir := err == nil && st.IsDir()
	switch {
	case len(files) == 1 && out == cli.Stdin:
		_, err := a.out.Write(files[0].data)
		return err
	case len(files) == 1 && !isDir && !strings.HasSuffix(out, "/"):
		return a.writeConfig(out, files[0].data)
	case out == cli.Stdin || err == nil && !isDir:
		return cli.Usage(fmt.Errorf("%d layers make %d files: -o must be a folder", len(files), len(files)))
	}
	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	if err := noOthers(out, ext, files); err != nil {
		return err
	}
	for _, f := range files {
		if err := a.writeConfig(filepath.Join(out, f.name), f.data); err != nil {
			return err
		}
	}
	return nil
}

// noOthers refuses a folder with more files of the same ending: a reader would compose them in.
func noOthers(dir, ext string, files []configFile) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	ours := map[string]bool{}
	for _, f := range files {
		ours[f.name] = true
	}
	for _, e := range entries {
		if !ours[e.Name()] && filepath.Ext(e.Name()) == ext && !strings.HasPrefix(e.Name(), ".") {
			return fmt.Errorf("%s: %w: %s is in it already, and whoever reads the folder would compose it in", dir, errs.ErrInvalid, e.Name())
		}
	}
	return nil
}

func (a *app) writeConfig(name string, data []byte) error {
	err := cli.WriteAtomically(name, 0o644, func(w io.Writer) error {
		_, err := w.Write(data)
		return err
	})
	if err == nil {
		a.say("%s", name)
	}
	return err
}
