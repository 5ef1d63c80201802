package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"

	"policyd.dev/policyd/internal/cli"
	"policyd.dev/policyd/internal/policy"
	"policyd.dev/policyd/smack"
)

// exportDialects are the formats that export writes.
var exportDialects = []string{string(smack.DialectLibsmack), string(smack.DialectSystemd)}

func newSmackExport(a *app) *cobra.Command {
	var files []string
	var dialect, dir string
	var lossy bool
	cmd := &cobra.Command{
		Use:   "export REF|-f FILE --dialect libsmack|systemd -o FOLDER",
		Short: "Write a Smack policy in the format of another loader",
		Long: "export writes accesses.d, cipso.d, netlabel.d and onlycap, as far as the format has them, beneath a\n" +
			"folder, which is made when it is missing. Layers become one. Files named policyd of an earlier export\n" +
			"that are no longer needed are removed, others are left alone and named: the loader reads them too. What the\n" +
			"format cannot say is told, and then nothing is written unless --lossy is given.",
		Example: "  policyctl smack export platform@3 --dialect systemd -o /etc/smack\n" +
			"  policyctl smack export -f platform.yaml --dialect libsmack --lossy -o out",
		Args:              refOrFiles(&files),
		ValidArgsFunction: a.completeRefs(policy.KindSmack),
		RunE: func(cmd *cobra.Command, args []string) error {
			var write func(*smack.Set, *smack.Settings) ([]smack.File, []string)
			switch dialect {
			case string(smack.DialectLibsmack):
				write = smack.ExportLibsmack
			case string(smack.DialectSystemd):
				write = smack.ExportSystemd
			default:
				return cli.Usage(fmt.Errorf("--dialect %q: want libsmack or systemd", dialect))
			}
			if dir == "" {
				return cli.Usage(errors.New("no folder given: use -o FOLDER"))
			}
			c, err := a.loadSmack(cmd.Context(), args, files)
			if err != nil {
				return err
			}
			out, lost := write(c.Policy.Effective(), &c.Policy.Settings)
			for _, l := range lost {
				a.note("%s cannot say: %s", dialect, l)
			}
			if len(lost) > 0 && !lossy {
				return fmt.Errorf("%s cannot say all of the policy, so nothing is written; --lossy writes the rest of it", dialect)
			}
			if err := writeTree(dir, out); err != nil {
				return err
			}
			for _, f := range out {
				a.say("%s", filepath.Join(dir, f.Name))
			}
			for _, name := range othersIn(dir) {
				a.note("%s: loaded beside the policy, in no defined order: what it says and the policy takes away is in force; move it away", name)
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.StringArrayVarP(&files, "file", "f", nil, "export the policy of this file instead, without a daemon")
	f.StringVar(&dialect, "dialect", "", "libsmack or systemd")
	f.StringVarP(&dir, "output", "o", "", "folder to write to")
	f.BoolVar(&lossy, "lossy", false, "write what the format can say, and leave out the rest")
	_ = cmd.RegisterFlagCompletionFunc("dialect", cobra.FixedCompletions(exportDialects, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// loadSmack gets a policy from files, or else a version of the store.
func (a *app) loadSmack(ctx context.Context, args, files []string) (*policy.CompiledSmack, error) {
	if len(files) > 0 {
		return a.compileSmackFile(files)
	}
	v, err := a.version(ctx, policy.KindSmack, smackRef(args[0]))
	if err != nil {
		return nil, err
	}
	return policy.CompileSmackVersion(v)
}

// exportPaths are all the files an export may write.
var exportPaths = []string{"accesses.d/policyd", "cipso.d/policyd", "netlabel.d/policyd", "onlycap"}

// othersIn gives the files of a folder that a loader reads beside those of an export.
func othersIn(dir string) []string {
	var out []string
	if name := filepath.Join(dir, "accesses"); isRegular(name) { // of old libsmack
		out = append(out, name)
	}
	for _, d := range []string{"accesses.d", "cipso.d", "netlabel.d"} {
		entries, err := os.ReadDir(filepath.Join(dir, d))
		if err != nil {
			continue // most often it is not there, and nobody reads it
		}
		for _, e := range entries {
			if name := filepath.Join(dir, d, e.Name()); e.Name() != "policyd" && e.Name()[0] != '.' && isRegular(name) {
				out = append(out, name)
			}
		}
	}
	return out
}

func isRegular(name string) bool {
	st, err := os.Stat(name)
	return err == nil && st.Mode().IsRegular()
}

// writeTree writes files beneath a folder. All are written beside it before the first takes its place, so that a full
// disk or a missing right leaves what was there. A file of an earlier export that is not among them is removed; onlycap may
// be another's, and stays.
func writeTree(dir string, files []smack.File) (err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	stage, err := os.MkdirTemp(dir, ".policyctl-export-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(stage)) }()
	written := map[string]bool{}
	for i, f := range files {
		written[f.Name] = true
		name := filepath.Join(dir, f.Name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			return err
		}
		if st, err := os.Lstat(name); err == nil && st.IsDir() {
			return fmt.Errorf("%s is a folder; nothing is written", name)
		}
		if err := writeSynced(filepath.Join(stage, fmt.Sprint(i)), f.Data); err != nil {
			return err
		}
	}
	for i, f := range files {
		if err := os.Rename(filepath.Join(stage, fmt.Sprint(i)), filepath.Join(dir, f.Name)); err != nil {
			return err
		}
	}
	for _, name := range exportPaths {
		if filepath.Base(name) == "policyd" && !written[name] {
			if err := os.Remove(filepath.Join(dir, name)); err != nil && !errors.Is(err, os.ErrNotExist) {
				return err
			}
		}
	}
	for _, name := range exportPaths {
		if err := syncFolder(filepath.Dir(filepath.Join(dir, name))); err != nil {
			return err
		}
	}
	return nil
}

// syncFolder brings what was renamed in a folder to the disk; a folder that is not there has nothing.
func syncFolder(name string) error {
	f, err := os.Open(name)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	err = f.Sync()
	if errors.Is(err, syscall.EINVAL) { // of file systems that keep nothing on a disk
		err = nil
	}
	return errors.Join(err, f.Close())
}

func writeSynced(name string, data []byte) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Sync(), f.Close())
}
