package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"policyd.dev/policyd/internal/cli"
	"policyd.dev/policyd/internal/errs"
	"policyd.dev/policyd/internal/paths"
	"policyd.dev/policyd/store"
)

func newRestore(a *app) *cobra.Command {
	var stateDir string
	var force bool
	cmd := &cobra.Command{
		Use:   "restore FILE",
		Short: "Put a backup in place of the store (while policyd is stopped)",
		Long: "restore verifies the backup whole before it takes the place of the store. With --force an existing\n" +
			"store is replaced; it stays beside the new one under the name that is printed. A missing\n" +
			"state folder is made; run this as the user policyd runs as.",
		Example: "  policyctl restore /var/backups/policyd-2026-11-30.db --force",
		Args:    exactly("FILE"),
		RunE: func(_ *cobra.Command, args []string) error {
			f, err := os.Open(args[0])
			if err != nil {
				return err
			}
			defer f.Close()
			path := storePath(stateDir)
			kept, err := store.Restore(f, path, force)
			if errors.Is(err, errs.ErrExists) {
				return fmt.Errorf("%w; --force replaces it and keeps it beside", err)
			}
			if err != nil {
				return offline(err)
			}
			a.say("%s restored from %s", path, args[0])
			if kept != "" {
				a.say("the store before is kept as %s", kept)
			}
			return nil
		},
	}
	stateFlag(cmd, &stateDir)
	cmd.Flags().BoolVar(&force, "force", false, "replace a store that is there")
	return cmd
}

func stateFlag(cmd *cobra.Command, dir *string) {
	cmd.Flags().StringVar(dir, "state-dir", "", "policyd's state folder (default "+
		"/var/lib/policyd for root, else the user's own)")
}

// storePath is the store's file in a state folder, "" for the default one.
func storePath(stateDir string) string {
	l := paths.Default()
	if stateDir != "" {
		l = l.WithState(stateDir)
	}
	return l.Store()
}

// offline adds the way out when a policyd holds the store.
func offline(err error) error {
	switch {
	case errors.Is(err, errs.ErrStoreLocked):
		return fmt.Errorf("%w: stop policyd first", err)
	case errors.Is(err, os.ErrPermission):
		return &cli.Exit{Code: cli.ExitNotAllowed, Err: err}
	}
	return err
}
