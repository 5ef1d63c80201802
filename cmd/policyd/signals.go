package main

import (
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"reflect"
	"strings"
	"syscall"
	"time"

	"policyd.dev/policyd/internal/metrics"
	"policyd.dev/policyd/internal/server"
	"policyd.dev/policyd/internal/smackhost"
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
	smack    *smackhost.Manager
	metrics  *metrics.Metrics
	log      *slog.Logger
	level    *slog.LevelVar
	notify   notifier
	deadline time.Duration
	look     *time.Ticker // runs until the service manager was told that policyd is ready
}

// run serves until a signal stops it or a listener fails.
func (d *daemon) run(signals *signalWatch, listeners []net.Listener) error {
	ended := make(chan error, 1)
	go func() { ended <- d.server.Serve(listeners...) }()
	d.look = time.NewTicker(lookAgain)
	defer d.look.Stop()
	d.ready()
	for {
		select {
		case <-d.look.C:
			d.ready()
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

// lookAgain is how often a policyd that is not ready looks whether it is.
const lookAgain = time.Second

// ready tells the service manager so once the assigned SmackPolicy is in force; until then, why not, and to go on waiting.
func (d *daemon) ready() {
	if err := d.smack.Failed(); err != nil {
		why := strings.Join(strings.Fields(err.Error()), " ") // one line
		d.tell("STATUS=not ready: "+why, fmt.Sprintf("EXTEND_TIMEOUT_USEC=%d", (10*lookAgain).Microseconds()))
		return
	}
	d.look.Stop()
	d.tell("READY=1", "STATUS=serving")
}

// reload takes what it can from the file. One with a mistake changes nothing.
func (d *daemon) reload() {
	d.tell(reloading()...)
	defer d.ready()
	cfg, err := d.options.load()
	d.metrics.Reloaded(err)
	if err != nil {
		d.log.Error("configuration was not read again; nothing is changed", "error", err)
		return
	}
	d.server.Reload(cfg.Grants, cfg.Limits)
	d.server.SetUnmatched(cfg.Unmatched)
	d.level.Set(cfg.Log.Level)
	old := d.options.config
	for name, same := range map[string]bool{
		"socket": cfg.Socket == old.Socket, "tcp": reflect.DeepEqual(cfg.TCP, old.TCP), "store": cfg.Store == old.Store,
		"log.format": cfg.Log.Format == old.Log.Format, "launcher": cfg.Launcher == old.Launcher,
		"limits.messageSize": cfg.Limits.MessageBytes == old.Limits.MessageBytes,
		"stopDeadline":       cfg.StopDeadline == old.StopDeadline,
		"metrics.listen":     cfg.Metrics == old.Metrics,
		"smack.poolSize":     cfg.LabelPool == old.LabelPool,
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
