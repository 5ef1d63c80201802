package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"time"

	"policyd.dev/policyd/internal/errs"
	"policyd.dev/policyd/internal/smackhost"
	"policyd.dev/policyd/store"
)

// smackBoot loads the SmackPolicy that is assigned to this host, early in a boot: it reads the store, and notes what it
// does in the runtime folder, from where the daemon takes it over. Where no store is, nothing is assigned.
func smackBoot(o *options, stderr io.Writer) error {
	var level slog.LevelVar
	level.Set(o.config.Log.Level)
	log := newLogger(stderr, o.config.Log.Format, &level)
	err := loadAssigned(o, log)
	if err != nil {
		log.Error("the smack policy of this host could not be loaded at boot", "error", err)
	}
	return err
}

func loadAssigned(o *options, log *slog.Logger) (err error) {
	if _, err := os.Stat(o.layout.State); errors.Is(err, os.ErrNotExist) {
		log.Info("no store, so no smack policy is assigned", "folder", o.layout.State)
		return nil
	}
	st, err := store.Open(o.layout.Store(), store.Options{Timeout: min(o.config.Store.OpenTimeout, 10*time.Second), ReadOnly: true})
	switch {
	case errors.Is(err, errs.ErrNotFound):
		log.Info("no store, so no smack policy is assigned", "folder", o.layout.State)
		return nil
	case err != nil:
		return err
	}
	defer func() { err = errors.Join(err, st.Close()) }()
	if err := ownFolder(o.layout.Runtime, 0o755); err != nil {
		return err
	}
	state, err := st.SmackState()
	if err != nil {
		return err
	}
	if state.GetAssigned() == "" && len(state.GetRevoked()) == 0 {
		log.Info("no smack policy is assigned to this host")
		return nil
	}
	host := smackhost.New(smackhost.Config{Store: smackhost.NewEarly(st, o.layout.Runtime), Log: log, Find: findSmackfs})
	return host.Boot(context.Background())
}
