package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"policyd.dev/policyd/internal/cli"
	"policyd.dev/policyd/internal/errs"
	"policyd.dev/policyd/internal/exchange"
	"policyd.dev/policyd/internal/policy"
)

// commandLineName is the name of a command line given as arguments, in errors.
const commandLineName = "<arguments>"

func newImport(a *app) *cobra.Command {
	var format, out string
	var o exchange.Options
	cmd := &cobra.Command{
		Use:   "import --format FORMAT FILE|FOLDER|- | import --format FORMAT -- COMMAND LINE",
		Short: "Make a policy of another tool's configuration or command line",
		Long: "import reads what another Landlock tool was given and prints a policy that says the same. What the tool\n" +
			"itself would have done otherwise is told on standard error. Unknown keys and options, relative paths\n" +
			"(without --base), ports beyond 65535 and rules that grant nothing are errors with their place; then\n" +
			"nothing is printed.\n\n" +
			importFormats() + "\n\n" +
			"Several landlockconfig files are one layer that allows what any of them allows (--compose union, as\n" +
			"landlockconfig does), or a layer each (--compose layers): then only what all allow is allowed.",
		Example: "  policyctl import --format landlockconfig web.toml > web.yaml\n" +
			"  policyctl import --format landlockconfig --compose layers --name web conf.d > web.yaml\n" +
			"  policyctl import --format island ~/.config/island/profiles/web\n" +
			"  policyctl import --format landrun -- landrun --rox /usr --ro /etc --bind-tcp 8080 server\n" +
			"  policyctl import --format setpriv --abi 6 -- setpriv --landlock-access fs --landlock-rule path-beneath::/usr ls\n" +
			"  echo rx:/bin | policyctl import --format nomad -",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return errors.New("FILE is missing (- is standard input)")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			f, ok := exchange.FormatByName(format)
			if !ok {
				return cli.Usage(fmt.Errorf("--format %q: want %s", format, strings.Join(formatNames(), ", ")))
			}
			if err := importOptions(cmd, f, &o); err != nil {
				return cli.Usage(err)
			}
			line := cmd.ArgsLenAtDash() == 0
			if line && !f.Line {
				return cli.Usage(fmt.Errorf("--format %s reads files, not a command line", format))
			}
			var files []exchange.File
			var err error
			if line {
				files = []exchange.File{{Name: commandLineName, Data: []byte(shellLine(args))}}
			} else if files, err = a.importFiles(f, args, o.TOML); err != nil {
				return err
			}
			if f.Name == "landlockconfig" && len(files) > 1 && o.Compose == "" {
				return cli.Usage(errors.New("several files: say --compose union (one layer that allows what any of them allows) or --compose layers (a layer each)"))
			}
			return a.importPolicies(f, files, o, out)
		},
	}
	f := cmd.Flags()
	f.StringVar(&format, "format", "", "what to read: "+strings.Join(formatNames(), ", "))
	f.StringVar(&o.Compose, "compose", "", "several landlockconfig files: union or layers")
	f.StringVarP(&out, "output", "o", cli.Stdin, "file to write; - is standard output")
	f.StringVar(&o.Name, "name", "", "name of the policy (default: what the text calls it, or imported)")
	f.StringVar(&o.Base, "base", "", "absolute folder that relative paths begin at (default: they are errors)")
	f.IntVar(&o.ABI, "abi", 0, "landrun, setpriv: Landlock ABI of the version or kernel the command line was for")
	f.BoolVar(&o.TOML, "toml", false, "landlockconfig: read *.toml of a folder, and standard input as TOML")
	_ = cmd.RegisterFlagCompletionFunc("format", cobra.FixedCompletions(formatNames(), cobra.ShellCompDirectiveNoFileComp))
	_ = cmd.RegisterFlagCompletionFunc("compose", cobra.FixedCompletions([]string{exchange.ComposeUnion, exchange.ComposeLayers}, cobra.ShellCompDirectiveNoFileComp))
	_ = cmd.MarkFlagRequired("format")
	return cmd
}

func formatNames() (names []string) {
	for _, f := range exchange.Formats() {
		names = append(names, f.Name)
	}
	return names
}

func importFormats() string {
	var b strings.Builder
	b.WriteString("Formats:\n")
	for _, f := range exchange.Formats() {
		fmt.Fprintf(&b, "  %-15s %s\n", f.Name, f.Doc)
	}
	return strings.TrimRight(b.String(), "\n")
}

// importOptions checks flags that only some formats have.
func importOptions(cmd *cobra.Command, f exchange.Format, o *exchange.Options) error {
	for flag, ok := range map[string]bool{"compose": f.Name == "landlockconfig", "toml": f.Name == "landlockconfig", "abi": f.ABI} {
		if cmd.Flags().Changed(flag) && !ok {
			return fmt.Errorf("--%s says nothing to --format %s", flag, f.Name)
		}
	}
	switch {
	case o.Compose != "" && o.Compose != exchange.ComposeUnion && o.Compose != exchange.ComposeLayers:
		return fmt.Errorf("--compose %q: want union or layers", o.Compose)
	case o.Base != "" && !filepath.IsAbs(o.Base):
		return fmt.Errorf("--base %s: want an absolute path", o.Base)
	case cmd.Flags().Changed("name") && o.Name == "":
		return errors.New("--name is empty")
	}
	return nil
}

// shellLine writes words as one line that is read as these words again.
func shellLine(words []string) string {
	quoted := make([]string, len(words))
	for i, w := range words {
		quoted[i] = w
		if w == "" || strings.ContainsAny(w, " \t\r\n'\"\\$`*?[]{}~;&|<>()#") {
			quoted[i] = "'" + strings.ReplaceAll(w, "'", `'\''`) + "'"
		}
	}
	return strings.Join(quoted, " ")
}

// importFiles reads the files of the command line, and the files of folders where a format has them.
func (a *app) importFiles(f exchange.Format, args []string, toml bool) ([]exchange.File, error) {
	var names []string
	for _, arg := range args {
		st, err := os.Stat(arg)
		switch {
		case arg == cli.Stdin || err == nil && !st.IsDir():
			names = append(names, arg)
		case err != nil:
			return nil, err
		case f.Name == "island":
			found, err := a.configsIn(filepath.Join(arg, "landlock"), true)
			if err != nil {
				return nil, err
			}
			names = append(append(names, filepath.Join(arg, "profile.toml")), found...)
		case f.Name == "landlockconfig":
			found, err := a.configsIn(arg, toml)
			if err != nil {
				return nil, err
			}
			names = append(names, found...)
		default:
			return nil, fmt.Errorf("%s: %w: a folder, and --format %s reads a file", arg, errs.ErrInvalid, f.Name)
		}
	}
	var files []exchange.File
	for _, name := range names {
		file, err := a.importFile(name)
		if err != nil {
			return nil, err
		}
		files = append(files, file)
	}
	return files, nil
}

func (a *app) importFile(name string) (exchange.File, error) {
	in, shown := a.in, "<stdin>"
	if name != cli.Stdin {
		f, err := os.Open(name)
		if err != nil {
			return exchange.File{}, err
		}
		defer f.Close()
		if st, err := f.Stat(); err != nil || st.IsDir() {
			return exchange.File{}, errors.Join(err, fmt.Errorf("%s: %w: a folder", name, errs.ErrInvalid))
		}
		in, shown = f, filepath.ToSlash(name)
	}
	data, err := io.ReadAll(io.LimitReader(in, policy.MaxFileBytes+1))
	if err != nil {
		return exchange.File{}, fmt.Errorf("%s: %w", shown, err)
	}
	return exchange.File{Name: shown, Data: data}, nil
}

// configsIn finds what landlockconfig would read in a folder: regular files, not hidden, of one ending.
func (a *app) configsIn(dir string, toml bool) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	found := map[string][]string{}
	for _, e := range entries {
		ext := filepath.Ext(e.Name())
		if strings.HasPrefix(e.Name(), ".") || ext != ".json" && ext != ".toml" {
			continue
		}
		if !e.Type().IsRegular() {
			a.note("%s is no regular file: landlockconfig leaves it out, and so does import", filepath.Join(dir, e.Name()))
			continue
		}
		found[ext] = append(found[ext], filepath.Join(dir, e.Name()))
	}
	names := found[".toml"]
	switch {
	case toml:
	case len(names) > 0 && len(found[".json"]) > 0:
		return nil, cli.Usage(fmt.Errorf("%s has both *.json and *.toml: landlockconfig reads one kind. Say --toml, or name the files", dir))
	default:
		names = append(names, found[".json"]...)
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("%s: %w: there is no file to read in it", dir, errs.ErrInvalid)
	}
	return names, nil
}

// importPolicies prints the policies that files make, and tells what the tool would have done otherwise.
func (a *app) importPolicies(f exchange.Format, files []exchange.File, o exchange.Options, out string) error {
	im, err := exchange.Read(f.Name, files, o)
	if problems, ok := errors.AsType[*exchange.Problems](err); ok {
		cli.Findings(a.err, a.painter(a.err), problems.Findings())
		return &cli.Exit{Code: cli.ExitRefused}
	}
	if err != nil {
		return err
	}
	origin := "Made by policyctl import --format " + f.Name
	if len(files) > 1 && o.Compose != "" {
		origin += " --compose " + o.Compose
	}
	origin += " of"
	for _, file := range files {
		origin += fmt.Sprintf("\n  %q", file.Name)
	}
	if slices.ContainsFunc(files, func(f exchange.File) bool { return f.Name == commandLineName }) {
		origin += fmt.Sprintf("\n  %q", clipLine(string(files[0].Data)))
	}
	text, err := im.Text(origin)
	if err != nil {
		return err
	}
	if !a.quiet {
		cli.Findings(a.err, a.painter(a.err), im.Remarks)
	}
	if out == cli.Stdin {
		_, err = a.out.Write(text)
		return err
	}
	return cli.WriteAtomically(out, 0o644, func(w io.Writer) error {
		_, err := w.Write(text)
		return err
	})
}

// clipLine keeps a comment short.
func clipLine(s string) string {
	const most = 400
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "..."
}
