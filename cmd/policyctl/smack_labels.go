package main

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"policyd.dev/policyd/internal/cli"
	"policyd.dev/policyd/internal/errs"
	"policyd.dev/policyd/smack/smackfs"
)

// fileLabel is an attribute of a file, or a change of one; the JSON names are an interface.
type fileLabel struct {
	Path  string `json:"path"`
	Attr  string `json:"attribute"`
	Old   string `json:"old,omitempty"`
	Value string `json:"value"`
}

func newSmackLabels(a *app) *cobra.Command {
	var set, remove []string
	l := smackfs.Labelling{}
	cmd := &cobra.Command{
		Use:   "labels PATH...",
		Short: "Show and set the Smack attributes of files",
		Long: "labels shows the attributes SMACK64, SMACK64EXEC, SMACK64MMAP and SMACK64TRANSMUTE of files, or sets and\n" +
			"removes them, without a daemon. With -r it does so for everything below a folder, where each file gets\n" +
			"what suits its type: SMACK64EXEC and SMACK64MMAP regular files, SMACK64TRANSMUTE (of value TRUE) folders.\n" +
			"Symbolic links are not followed. Other file systems below, and files with several names, of which one may\n" +
			"stand elsewhere, are left alone and told, unless asked for. Setting needs CAP_MAC_ADMIN; on a kernel without\n" +
			"Smack, CAP_SYS_ADMIN, and that the attributes mean nothing there is told.",
		Example: "  policyctl smack labels /usr/bin/camera\n" +
			"  policyctl smack labels -r --set SMACK64=User::Data --set SMACK64TRANSMUTE=TRUE /home/data --dry-run\n" +
			"  policyctl smack labels --remove SMACK64EXEC /usr/bin/camera",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return errors.New("PATH is missing")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			form, err := cli.ParseFormat(a.output, cli.Table, cli.JSON, cli.YAML)
			if err != nil {
				return err
			}
			values, err := pairs("--set", set)
			if err != nil {
				return err
			}
			l.Set = map[smackfs.Attr]string{}
			for attr, v := range values {
				l.Set[smackfs.Attr(strings.TrimPrefix(attr, "security."))] = v
			}
			for _, attr := range remove {
				l.Remove = append(l.Remove, smackfs.Attr(strings.TrimPrefix(attr, "security.")))
			}
			out := []fileLabel{}
			if len(l.Set)+len(l.Remove) == 0 {
				if l.DryRun {
					return cli.Usage(errors.New("--dry-run goes with --set or --remove"))
				}
				err = showLabels(args, l.Recursive, &out)
			} else {
				ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
				defer stop()
				l.Each = func(c smackfs.FileChange) {
					out = append(out, fileLabel{c.Path, string(c.Attr), c.Old, c.New})
				}
				for _, path := range args {
					end := a.patience("labelling " + path)
					report, labelErr := smackfs.LabelFiles(ctx, path, l)
					end()
					if labelErr != nil && errors.Is(labelErr, errs.ErrInvalid) {
						labelErr = cli.Usage(labelErr)
					}
					err = errors.Join(err, labelErr)
					if report != nil {
						a.tellLabelled(path, report, l.DryRun)
					}
				}
				if len(out) > 0 && !l.DryRun && !smackEnabled() {
					a.note("this kernel has no Smack: the attributes are kept and mean nothing to it")
				}
			}
			if writeErr := a.writeLabels(form, out, len(l.Set)+len(l.Remove) > 0); err == nil {
				err = writeErr
			}
			return err
		},
	}
	f := cmd.Flags()
	f.StringArrayVar(&set, "set", nil, "set an attribute, ATTRIBUTE=LABEL; may be repeated")
	f.StringArrayVar(&remove, "remove", nil, "remove an attribute; may be repeated")
	f.BoolVarP(&l.Recursive, "recursive", "r", false, "everything below, too")
	f.BoolVar(&l.DryRun, "dry-run", false, "change nothing, list what would change")
	f.BoolVar(&l.CrossMounts, "cross-mounts", false, "go into other file systems")
	f.BoolVar(&l.HardLinks, "hard-links", false, "label files with several names too")
	attributes := func(suffix string) []string {
		var s []string
		for _, attr := range []smackfs.Attr{smackfs.AttrAccess, smackfs.AttrExec, smackfs.AttrMmap, smackfs.AttrTransmute} {
			s = append(s, string(attr)+suffix)
		}
		return s
	}
	_ = cmd.RegisterFlagCompletionFunc("set", cobra.FixedCompletions(attributes("="), cobra.ShellCompDirectiveNoSpace|cobra.ShellCompDirectiveNoFileComp))
	_ = cmd.RegisterFlagCompletionFunc("remove", cobra.FixedCompletions(attributes(""), cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// smackEnabled reports whether this kernel heeds the attributes, smackfs mounted or not.
func smackEnabled() bool {
	_, err := smackfs.Find()
	return !errors.Is(err, errs.ErrSmackNotBuilt) && !errors.Is(err, errs.ErrSmackDisabled)
}

// showLabels reads the attributes of files; one without any is shown with an empty value.
func showLabels(paths []string, recursive bool, out *[]fileLabel) error {
	show := func(path string) error {
		labels, err := smackfs.FileLabels(path)
		if err != nil {
			return err
		}
		for _, attr := range slices.Sorted(maps.Keys(labels)) {
			*out = append(*out, fileLabel{Path: path, Attr: string(attr), Value: labels[attr]})
		}
		if len(labels) == 0 && !recursive {
			*out = append(*out, fileLabel{Path: path, Attr: string(smackfs.AttrAccess)})
		}
		return nil
	}
	var failed error
	for _, path := range paths {
		if !recursive {
			failed = errors.Join(failed, show(path))
			continue
		}
		failed = errors.Join(failed, filepath.WalkDir(path, func(path string, _ fs.DirEntry, err error) error {
			if err == nil {
				err = show(path)
			}
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				failed = errors.Join(failed, err) // and on to the next
				return nil
			}
			return err
		}))
	}
	return failed
}

func (a *app) writeLabels(form cli.Format, list []fileLabel, changes bool) error {
	if form != cli.Table {
		return cli.WriteValue(a.out, form, list)
	}
	if len(list) == 0 || a.quiet {
		return nil
	}
	if !changes {
		rows := cli.NewRows(a.out, "PATH", "ATTRIBUTE", "VALUE")
		for _, l := range list {
			rows.Add(l.Path, l.Attr, l.Value)
		}
		return rows.Flush()
	}
	rows := cli.NewRows(a.out, "PATH", "ATTRIBUTE", "OLD", "NEW")
	for _, l := range list {
		rows.Add(l.Path, l.Attr, l.Old, l.Value)
	}
	return rows.Flush()
}

func (a *app) tellLabelled(path string, r *smackfs.LabelReport, dry bool) {
	word := "changed"
	if dry {
		word = "to change"
	}
	a.note("%s: %s looked at, %d %s, %d right already", path, count(uint64(r.Files), "file", "files"), r.Changes, word, r.Kept)
	for _, s := range r.Skipped {
		a.note("left alone: %s", s)
	}
	if r.SkippedMore > 0 {
		a.note("left alone: %s", fmt.Sprintf("%d more", r.SkippedMore))
	}
}
