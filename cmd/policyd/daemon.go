package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"time"

	"policyd.dev/policyd/enforce/landlock"
	"policyd.dev/policyd/enforce/spawn"
	"policyd.dev/policyd/internal/buildinfo"
	"policyd.dev/policyd/internal/containers"
	"policyd.dev/policyd/internal/sandbox"
	"policyd.dev/policyd/internal/server"
	"policyd.dev/policyd/internal/smackhost"
	"policyd.dev/policyd/smack/smackfs"
	"policyd.dev/policyd/store"
)

// stopSandboxes is how long the records of sandboxes may take to be stored at the end, beyond the grace of hung up ones.
const stopSandboxes = 10 * time.Second

// findSmackfs is nil: tests put themselves between policyd and the kernel.
var findSmackfs func() (smackfs.FS, error)

// serve runs the daemon until a signal stops it.
func serve(o *options, stderr io.Writer) (err error) {
	var level slog.LevelVar
	level.Set(o.config.Log.Level)
	log := newLogger(stderr, o.config.Log.Format, &level)
	notify, watchdog := newNotifier(), watchdogInterval()
	kept := newFDStore(notify, log)
	inherited, err := server.TakeInherited(storedPrefix)
	if err != nil {
		return err
	}
	if err := keepToSelf(); err != nil {
		return err
	}

	// Before anything slow, so that a signal during the start is not the default action.
	signals := watchSignals()
	defer signals.close()

	if err := ownFolder(o.layout.State, 0o700); err != nil {
		return err
	}
	if err := ownFolder(o.layout.Runtime, 0o755); err != nil {
		return err
	}
	st, err := store.Open(o.layout.Store(), store.Options{
		Timeout: o.config.Store.OpenTimeout, KeepVersions: o.config.Store.KeepVersions,
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, st.Close()) }()

	sup := landlock.Probe()
	if sup.State != landlock.Available {
		// It serves all the same: policies can be stored, and a start says what is wrong.
		log.Error("landlock cannot be used: no policy that requires it can be started", "error", sup.Err)
	}
	containment, err := spawn.DetectContainment(spawn.Options{
		Launcher: o.config.Launcher, StateDir: o.layout.State, OwnChildren: true,
	})
	if err != nil {
		return err
	}
	defer func() {
		if cerr := containment.Close(); cerr != nil {
			log.Warn("the folder of groups could not be removed", "error", cerr)
		}
	}()
	streams, names := handed(inherited.Stored)
	boxes, err := sandbox.New(context.Background(), sandbox.Config{
		StateDir: o.layout.State, RuntimeDir: o.layout.Runtime, Store: st, Support: sup, Containment: containment,
		CgroupRoot: containment.Root(), Log: log, LogLimit: o.config.Limits.LogBytes, Outdated: server.Outdated(st),
		HandOver: kept.handOver(), Handed: streams,
	})
	if err != nil {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.Background(), stopSandboxes)
		defer cancel()
		err = errors.Join(err, boxes.Stop(ctx))
	}()
	if err := forget(notify, names); err != nil {
		log.Warn("streams of sandboxes are still in the service manager's store: their programs do not see that they end", "error", err)
	}

	if adopted, err := smackhost.AdoptEarly(context.Background(), st, o.layout.Runtime); err != nil {
		// What is in the kernel then is somebody else's for policyd, which the load below compares all the same.
		log.Error("what was loaded at boot is not taken over", "error", err)
	} else if adopted {
		log.Info("what was loaded at boot is taken over")
	}
	host := smackhost.New(smackhost.Config{Store: st, Log: log, Find: findSmackfs})
	if err := host.Boot(context.Background()); err != nil {
		// It serves all the same, so that somebody can mend it, but does not say that it is ready.
		log.Error("the assigned smack policy is not in force: no sandbox with a label is started", "error", err)
	}

	certs := &certificates{}
	if o.config.TCP != nil {
		if err := certs.load(o.config.TCP); err != nil {
			return err
		}
	}
	counted := newMetrics(o.config)
	records := cmp.Or(o.config.Records, containers.Dir(o.layout.Runtime))
	srv, err := server.New(server.Config{
		Store: st, Sandboxes: boxes, Support: sup, Containment: containment.Name(), Grants: o.config.Grants,
		Limits: o.config.Limits, TLS: certs.config(), Log: log, UID: os.Geteuid(), Smack: host, LabelPool: o.config.LabelPool,
		Unmatched: o.config.Unmatched, Metrics: counted, Records: records,
	})
	if err != nil {
		return err
	}
	listeners, err := listen(o, inherited, log)
	if err != nil {
		srv.Stop(0)
		return err
	}
	closeMetrics, err := serveMetrics(o.config, counted, log)
	if err != nil {
		for _, l := range listeners {
			l.Close()
		}
		srv.Stop(0)
		return err
	}
	defer closeMetrics()
	stopFleet, err := startFleet(o.config.Fleet, fleetParts{store: st, smack: host, boxes: boxes, support: sup, server: srv, log: log, metrics: counted, records: records})
	if err != nil {
		for _, l := range listeners {
			l.Close()
		}
		srv.Stop(0)
		return err
	}
	defer stopFleet()
	for _, l := range listeners {
		log.Info("listening", "address", l.Addr().String(), "network", l.Addr().Network())
	}
	log.Info("policyd serves", "release", buildinfo.Version, "state", o.layout.State, "landlock_abi", sup.ABI, "containment", containment.Name())
	d := &daemon{
		options: o, server: srv, boxes: boxes, keeps: kept != nil, smack: host, metrics: counted, log: log, level: &level, notify: notify, deadline: o.config.StopDeadline,
		records: st, support: sup, certificates: certs, watchdog: watchdog, configuration: configurationOf(o),
	}
	srv.SetConfiguration(d.configuration)
	return d.run(signals, listeners)
}

// listen takes what the service manager handed over, and opens what it did not: the unix socket, and the network's when
// there is one.
func listen(o *options, inherited *server.Inherited, log *slog.Logger) (out []net.Listener, err error) {
	out, err = inherited.Listeners(o.config.TCP != nil)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			for _, l := range out {
				l.Close()
			}
		}
	}()
	given := map[string]bool{}
	for _, l := range out {
		given[l.Addr().Network()] = true
	}
	if given["unix"] {
		log.Info("listening on the service manager's socket; socket.* is its unit's")
	} else {
		l, err := server.ListenUnix(o.socket, o.config.Socket.Mode, o.config.Socket.GID)
		if err != nil {
			return out, err
		}
		out = append(out, l)
	}
	if o.config.TCP != nil && !given["tcp"] {
		l, err := net.Listen("tcp", o.config.TCP.Listen)
		if err != nil {
			return out, fmt.Errorf("tcp.listen: %w", err)
		}
		out = append(out, l)
	}
	return out, nil
}
