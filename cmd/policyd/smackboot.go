package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"policyd.dev/policyd/internal/errs"
	"policyd.dev/policyd/internal/journal"
	"policyd.dev/policyd/internal/smackhost"
	"policyd.dev/policyd/store"
)

// smackUnit runs smackBoot.
const smackUnit = "policyd-smack.service"

// smackBoot loads the SmackPolicy that is assigned to this host, early in a boot: it reads the store, and notes what it
// does in the runtime folder, from where the daemon takes it over. Where no store is, nothing is assigned.
func smackBoot(o *options, stderr io.Writer) error {
	var level slog.LevelVar
	level.Set(o.config.Log.Level)
	log := newLogger(stderr, o.config.Log.Format, &level)
	if h, ok := log.Handler().(*journal.Handler); ok {
		log = slog.New(h.OfUnit(smackUnit))
	}
	err := loadAssigned(o, log)
	if err != nil {
		log.Error("the smack policy of this host could not be loaded at boot", "error", err)
	}
	return err
}

// runningHas is nil when a policyd holds the store and says itself that the assigned policy is in force.
func runningHas(o *options, log *slog.Logger, locked error) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	serving, err := answers(ctx, o.layout.Socket())
	switch {
	case err != nil:
		return errors.Join(locked, err)
	case !serving:
		return fmt.Errorf("%w, which does not say that its policy is in force", locked)
	}
	log.Info("policyd runs, and what is assigned to this host is in force")
	return nil
}

func loadAssigned(o *options, log *slog.Logger) (err error) {
	if _, err := os.Stat(o.layout.State); errors.Is(err, os.ErrNotExist) {
		log.Info("no store, so no smack policy is assigned", "folder", o.layout.State)
		return nil
	}
	st, err := store.Open(o.layout.Store(), store.Options{Timeout: time.Second, ReadOnly: true})
	if errors.Is(err, errs.ErrStoreReadOnly) {
		// Of an older schema: a newer policyd was installed and has not run yet. It is migrated as the daemon would.
		log.Info("the store must be migrated first", "reason", err)
		st, err = store.Open(o.layout.Store(), store.Options{Timeout: time.Second, KeepVersions: o.config.Store.KeepVersions})
	}
	switch {
	case errors.Is(err, errs.ErrNotFound):
		log.Info("no store, so no smack policy is assigned", "folder", o.layout.State)
		return nil
	case errors.Is(err, errs.ErrStoreLocked):
		return runningHas(o, log, err)
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
