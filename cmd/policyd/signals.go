package main

import (
	"log/slog"
	"net"
	"os"
	"os/signal"
	"reflect"
	"syscall"
	"time"

	"policyd.dev/policyd/internal/server"
)

// signalWatch receives the signals the daemon acts on.
type signalWatch struct{ stop, reload chan os.Signal }

func watchSignals() *signalWatch {
	w := &signalWatch{stop: make(chan os.Signal, 2), reload: make(chan os.Signal, 1)}
	signal.Notify(w.stop, syscall.SIGTERM, syscall.SIGINT)
	signal.Notify(w.reload, syscall.SIGHUP)
	return w
}

func (w *signalWatch) close() {
	signal.Stop(w.stop)
	signal.Stop(w.reload)
}

// daemon is what is left to tend once everything is wired.
type daemon struct {
	options  *options
	server   *server.Server
	log      *slog.Logger
	level    *slog.LevelVar
	notify   notifier
	deadline time.Duration
}

// run serves until a signal stops it or a listener fails.
func (d *daemon) run(signals *signalWatch, listeners []net.Listener) error {
	ended := make(chan error, 1)
	go func() { ended <- d.server.Serve(listeners...) }()
	d.tell("READY=1", "STATUS=serving")
	for {
		select {
		case err := <-ended:
			d.server.Stop(0)
			return err
		case <-signals.reload:
			d.reload()
		case sig := <-signals.stop:
			d.log.Info("stopping; sandboxes that run detached go on", "signal", sig.String(), "deadline", d.deadline.String())
			d.tell("STOPPING=1", "STATUS=stopping")
			done := make(chan struct{})
			go func() {
				d.server.Stop(d.deadline)
				close(done)
			}()
			select {
			case <-done:
			case sig := <-signals.stop:
				// Asked twice: no more patience.
				d.log.Warn("stopping at once", "signal", sig.String())
				d.server.Stop(0)
				<-done
			}
			return <-ended
		}
	}
}

// reload takes what it can from the file. One with a mistake changes nothing.
func (d *daemon) reload() {
	d.tell(reloading()...)
	defer d.tell("READY=1", "STATUS=serving")
	cfg, err := d.options.load()
	if err != nil {
		d.log.Error("configuration was not read again; nothing is changed", "error", err)
		return
	}
	d.server.Reload(cfg.Grants, cfg.Limits)
	d.level.Set(cfg.Log.Level)
	old := d.options.config
	for name, same := range map[string]bool{
		"socket": cfg.Socket == old.Socket, "tcp": reflect.DeepEqual(cfg.TCP, old.TCP), "store": cfg.Store == old.Store,
		"log.format": cfg.Log.Format == old.Log.Format, "launcher": cfg.Launcher == old.Launcher,
		"limits.messageSize": cfg.Limits.MessageBytes == old.Limits.MessageBytes,
		"stopDeadline":       cfg.StopDeadline == old.StopDeadline,
	} {
		if !same {
			d.log.Warn("change takes effect at the next start", "key", name)
		}
	}
	d.log.Info("configuration was read again", "file", d.options.configFile, "roles", len(cfg.Grants))
}

func (d *daemon) tell(lines ...string) {
	if err := d.notify.send(lines...); err != nil {
		d.log.Warn("service manager was not told", "error", err)
	}
}
