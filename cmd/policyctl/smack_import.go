package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/internal/cli"
	"policyd.dev/policyd/internal/errs"
	"policyd.dev/policyd/internal/policy"
	"policyd.dev/policyd/smack"
)

// dialects are the formats that import reads, as --dialect names them.
var dialects = []string{string(smack.DialectAuto), string(smack.DialectLibsmack), string(smack.DialectSystemd), string(smack.DialectTizenManifest), string(smack.DialectTemplate)}

func newSmackImport(a *app) *cobra.Command {
	var dialect, name string
	var sets []string
	cmd := &cobra.Command{
		Use:   "import FOLDER|FILE...",
		Short: "Make a Smack policy of files in other formats",
		Long: "import reads accesses.d, cipso.d, netlabel.d, onlycap and unconfined of a folder such as /etc/smack,\n" +
			"or files of rules, and prints a SmackPolicy that says the same. What the reader the files were\n" +
			"written for would have done differently is told on standard error. A line that cannot be read is an\n" +
			"error, and then nothing is printed: all of them are told.\n\n" +
			"Files are read in the order of their names. The dialect is told by the text of each file (auto), or\n" +
			"libsmack, systemd (comments), tizen-manifest (XML) or template (~NAME~ and {{name}}, with --set).",
		Example: "  policyctl smack import /etc/smack --name platform > platform.yaml\n" +
			"  policyctl smack import --dialect systemd /etc/smack/accesses.d/extra\n" +
			"  policyctl smack import --set APP=mail --set plugs=usb --set plugs=net app.template",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return errors.New("FOLDER or FILE is missing")
			}
			return nil
		},
		RunE: func(_ *cobra.Command, args []string) error {
			d, err := smack.ParseDialect(dialect)
			if err != nil {
				return cli.Usage(fmt.Errorf("--dialect: %w", err))
			}
			set := map[string][]string{}
			for _, s := range sets {
				name, value, ok := strings.Cut(s, "=")
				if !ok || name == "" {
					return cli.Usage(fmt.Errorf("--set %q: want NAME=VALUE", s))
				}
				set[name] = append(set[name], value)
			}
			files, err := a.smackFiles(args)
			if err != nil {
				return err
			}
			text, err := a.smackImport(files, smack.ImportOptions{Dialect: d, Set: set}, name)
			if err != nil {
				return err
			}
			_, err = a.out.Write(text)
			return err
		},
	}
	f := cmd.Flags()
	f.StringVar(&dialect, "dialect", dialects[0], "format of the files of rules: "+strings.Join(dialects, ", "))
	f.StringArrayVar(&sets, "set", nil, "value of a variable of a template, NAME=VALUE; may be repeated, also for one name, for a section")
	f.StringVar(&name, "name", "imported", "name of the policy")
	_ = cmd.RegisterFlagCompletionFunc("dialect", cobra.FixedCompletions(dialects, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// smackFiles reads files, and all files beneath folders.
func (a *app) smackFiles(names []string) ([]smack.File, error) {
	var files []smack.File
	total := 0
	add := func(name string, r io.Reader) error {
		data, err := io.ReadAll(io.LimitReader(r, smack.MaxText+1-int64(total)))
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if total += len(data); total > smack.MaxText {
			return fmt.Errorf("%w: the files have more than %d bytes together", errs.ErrTooLarge, smack.MaxText)
		}
		files = append(files, smack.File{Name: filepath.ToSlash(name), Data: data})
		return nil
	}
	open := func(name string) error {
		st, err := os.Stat(name)
		if err != nil {
			return err
		}
		regular := func(st fs.FileInfo) error {
			switch {
			case st.IsDir():
				return fmt.Errorf("%s: %w: a symbolic link to a folder is not followed; name the folder itself", name, errs.ErrInvalid)
			case !st.Mode().IsRegular():
				return fmt.Errorf("%s: %w: not a regular file", name, errs.ErrInvalid)
			}
			return nil
		}
		if err := regular(st); err != nil { // before it is opened: that means something to a device
			return err
		}
		f, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0) // it may be a pipe by now
		if err != nil {
			return err
		}
		defer f.Close()
		if st, err = f.Stat(); err == nil {
			err = regular(st)
		}
		if err != nil {
			return err
		}
		return add(name, f)
	}
	for _, name := range names {
		if name == cli.Stdin {
			if err := add("<stdin>", a.in); err != nil {
				return nil, err
			}
			continue
		}
		if st, err := os.Stat(name); err != nil || !st.IsDir() {
			if err := open(name); err != nil {
				return nil, err
			}
			continue
		}
		before := len(files)
		// With the slash a symbolic link in the place of the folder is followed.
		err := filepath.WalkDir(name+"/", func(p string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			return open(p)
		})
		if err != nil {
			return nil, err
		}
		if len(files) == before {
			return nil, fmt.Errorf("%s: %w: there is no file in it", name, errs.ErrInvalid)
		}
	}
	return files, nil
}

// smackImport gives the document that says what the files say, and tells what is to be told of them.
func (a *app) smackImport(files []smack.File, o smack.ImportOptions, name string) ([]byte, error) {
	im, err := policy.ImportSmack(files, o, name)
	if problems, ok := errors.AsType[smack.Problems](err); ok {
		a.problems(problems, apiv1.Finding_SEVERITY_ERROR)
		return nil, &cli.Exit{Code: cli.ExitRefused}
	}
	if err != nil {
		return nil, err
	}
	if a.quiet {
		return im.Text, nil
	}
	a.problems(im.Warnings, apiv1.Finding_SEVERITY_WARNING)
	for _, s := range im.Import.Assignments {
		a.note("%s: the label of a file is no part of a policy: %s", s.At, assignmentText(s))
	}
	for _, d := range im.Import.Domains {
		a.note("processes of the package have the label %s", d)
	}
	for _, f := range im.Import.Files {
		kind := f.Kind
		if f.Dialect != "" {
			kind += ", " + string(f.Dialect)
		}
		a.note("%s: read as %s", f.Name, kind)
	}
	a.note("%s of %s, %s", count(im.Policy.Len(), "rule", "rules"), count(im.Policy.Labels(), "label", "labels"), count(len(im.Import.Files), "file", "files"))
	return im.Text, nil
}

func assignmentText(s smack.Assignment) string {
	text := s.Path
	if s.Label != "" {
		text += " SMACK64=" + s.Label
	}
	if s.ExecLabel != "" {
		text += " SMACK64EXEC=" + s.ExecLabel
	}
	if s.Transmute {
		text += " SMACK64TRANSMUTE=TRUE"
	}
	return text
}

// problems tells of what package smack found in files.
func (a *app) problems(ps smack.Problems, severity apiv1.Finding_Severity) {
	found := make([]*apiv1.Finding, 0, len(ps))
	for _, p := range ps {
		found = append(found, &apiv1.Finding{
			Severity: severity, Code: policy.SmackCode(p), File: p.Place.File,
			Line: uint32(p.Place.Line), Column: uint32(p.Place.Column), Message: p.Text,
		})
	}
	cli.Findings(a.err, a.painter(a.err), found)
}
