package main

import (
	"context"
	"log/slog"
	"os"
	"sync"
	"time"

	"policyd.dev/policyd/internal/containers"
	"policyd.dev/policyd/internal/fleet/host"
	"policyd.dev/policyd/internal/units"
	"policyd.dev/policyd/store"
)

// elsewhere knows what runs under policies of this host though policyd did not start it: containers, by the records that
// their runtimes' wrappers leave, and attached services, by what systemd says.
type elsewhere struct {
	records string // folder
	log     *slog.Logger

	mu    sync.Mutex
	until time.Time
	known []host.Running
}

// fresh is how long an answer holds: systemd is asked by a program for each attached service.
const fresh = 20 * time.Second

// running lists them. What cannot be looked at is not counted; it is no reason for a node to be in a worse state.
func (e *elsewhere) running() []host.Running {
	e.mu.Lock()
	defer e.mu.Unlock()
	if time.Now().After(e.until) {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		e.known = append(e.containers(), e.services(ctx)...)
		e.until = time.Now().Add(fresh)
	}
	return e.known
}

func (e *elsewhere) containers() (list []host.Running) {
	all, bad := containers.List(e.records)
	if len(bad) > 0 {
		e.log.Debug("containers that are not counted", "error", bad[0], "files", len(bad))
	}
	for _, c := range all {
		if c.State == containers.Running || c.State == containers.Created {
			list = e.add(list, c.Version)
		}
	}
	return list
}

func (e *elsewhere) services(ctx context.Context) (list []host.Running) {
	user := os.Geteuid() != 0
	p, err := units.PlaceOf(user)
	if err != nil {
		return nil // no session of a user: nothing is attached there
	}
	all, err := p.All()
	m := &units.Manager{User: user}
	for _, d := range all {
		names := []string{d.Unit}
		if units.IsTemplate(d.Unit) {
			if names, err = m.Instances(ctx, d.Unit); err != nil {
				break
			}
		}
		for _, name := range names {
			var u *units.Unit
			if u, err = m.Show(ctx, name); err != nil {
				break
			}
			if change, ok := p.Running(d.Unit, d.Runtime, u); ok && u.Active() {
				list = e.add(list, change.Policy)
			}
		}
	}
	if err != nil {
		e.log.Debug("services that are not counted", "error", err)
	}
	return list
}

func (e *elsewhere) add(list []host.Running, version string) []host.Running {
	ref, err := store.ParseRef(store.KindLandlockPolicy, version)
	if err != nil || ref.Number == 0 {
		e.log.Debug("a program that is not counted", "version", version, "error", err)
		return list
	}
	return append(list, host.Running{Policy: ref.Name, Version: ref.Number})
}
