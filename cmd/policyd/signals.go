package main

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/enforce/landlock"
	"policyd.dev/policyd/internal/config"
	"policyd.dev/policyd/internal/metrics"
	"policyd.dev/policyd/internal/sandbox"
	"policyd.dev/policyd/internal/server"
	"policyd.dev/policyd/internal/smackhost"
	"policyd.dev/policyd/store"
)

// signalWatch receives the signals the daemon acts on.
type signalWatch struct{ stop, reload, restart chan os.Signal }

func watchSignals() *signalWatch {
	w := &signalWatch{stop: make(chan os.Signal, 2), reload: make(chan os.Signal, 1), restart: make(chan os.Signal, 1)}
	signal.Notify(w.stop, syscall.SIGTERM, syscall.SIGINT)
	signal.Notify(w.reload, syscall.SIGHUP)
	signal.Notify(w.restart, syscall.SIGWINCH) // a policyd that does not know it, during an upgrade, ignores it
	return w
}

func (w *signalWatch) close() {
	signal.Stop(w.stop)
	signal.Stop(w.reload)
	signal.Stop(w.restart)
}

// daemon is what is left to tend once everything is wired.
type daemon struct {
	options  *options
	server   *server.Server
	boxes    *sandbox.Manager
	smack    *smackhost.Manager
	metrics  *metrics.Metrics
	log      *slog.Logger
	level    *slog.LevelVar
	notify   notifier
	deadline time.Duration
	look     *time.Ticker // asks whether policyd is ready until it is, then what there is to tell

	records       *store.Store
	support       landlock.Support
	certificates  *certificates
	watchdog      time.Duration // 0: none
	keeps         bool          // the service manager keeps descriptors
	restarts      time.Time     // until then a stop is one of a restart
	configuration *apiv1.ConfigurationStatus
	told          bool   // that policyd is ready
	shown         string // the text that was told last
	unwell        error  // of the watchdog's last question
}

// run serves until a signal stops it or a listener fails.
func (d *daemon) run(signals *signalWatch, listeners []net.Listener) error {
	ended := make(chan error, 1)
	go func() { ended <- d.server.Serve(listeners...) }()
	d.look = time.NewTicker(lookAgain)
	defer d.look.Stop()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	answers := make(chan error)
	if d.watchdog > 0 {
		go watch(ctx, d.watchdog, func(ctx context.Context) error { return works(ctx, d.records, listeners) }, answers)
	}
	d.ready()
	for {
		select {
		case <-d.look.C:
			d.tend()
		case err := <-answers:
			d.worked(err)
		case err := <-ended:
			d.server.Stop(0)
			return err
		case <-signals.reload:
			d.reload()
		case <-signals.restart:
			d.restarts = time.Now().Add(restartWindow)
		case sig := <-signals.stop:
			select {
			case <-signals.restart: // came at the same time
				d.restarts = time.Now().Add(restartWindow)
			default:
			}
			// A connection to a socket that systemd holds would start policyd again.
			cancel()
			handOver := d.keeps && time.Now().Before(d.restarts)
			d.log.Info("stopping; sandboxes that run detached go on", "signal", sig.String(), "deadline", d.deadline.String(), "attached_go_on", handOver)
			d.tell("STOPPING=1", "STATUS=stopping")
			if handOver {
				d.boxes.Suspend()
			}
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

// restartWindow is how soon after SIGWINCH a stop must follow to be one of a restart.
const restartWindow = time.Minute

// lookAgain is how often a policyd that is not ready looks whether it is.
const lookAgain = time.Second

// ready tells the service manager so once the assigned SmackPolicy is in force; until then, why not, and to go on waiting. What
// becomes of the policy later is in the text alone.
func (d *daemon) ready() {
	if err := d.smack.Failed(); err != nil && !d.told {
		why := strings.Join(strings.Fields(err.Error()), " ") // one line
		d.tell("STATUS=not ready: "+why, fmt.Sprintf("EXTEND_TIMEOUT_USEC=%d", (10*lookAgain).Microseconds()))
		return
	}
	d.look.Reset(statusEvery)
	d.told, d.shown = true, d.text()
	d.tell("READY=1", "STATUS="+d.shown)
}

// tend is what comes round: not yet ready, is it; and then the text.
func (d *daemon) tend() {
	if !d.told {
		d.ready()
		return
	}
	d.show()
}

// worked takes an answer of the watchdog's question. Without one that is good the service manager ends policyd.
func (d *daemon) worked(err error) {
	if err == nil {
		d.tell("WATCHDOG=1")
	} else {
		d.log.Error("policyd does not work; the service manager is not told otherwise", "error", err)
	}
	if (err == nil) != (d.unwell == nil) {
		d.unwell = err
		if d.told {
			d.show()
		}
	}
}

// reload takes what it can from the file. One with a mistake changes nothing.
func (d *daemon) reload() {
	d.tell(reloading()...)
	defer d.ready()
	cfg, err := d.options.load()
	if err == nil && d.options.config.TCP != nil && cfg.TCP != nil {
		err = d.certificates.load(cfg.TCP)
	}
	d.metrics.Reloaded(err)
	defer func() { d.server.SetConfiguration(d.configuration) }()
	if err != nil {
		d.configuration.Error = err.Error()
		d.log.Error("configuration was not read again; nothing is changed", "error", err)
		return
	}
	d.server.Reload(cfg.Grants, cfg.Limits)
	d.server.SetUnmatched(cfg.Unmatched)
	d.level.Set(cfg.Log.Level)
	d.deadline = cfg.StopDeadline
	d.configuration = configurationOf(d.options)
	d.configuration.Restart = needRestart(d.options.config, cfg)
	for _, key := range d.configuration.GetRestart() {
		d.log.Warn("change takes effect at the next start", "key", key)
	}
	d.log.Info("configuration was read again", "file", d.options.configFile, "roles", len(cfg.Grants))
}

// configurationOf is what was read just now.
func configurationOf(o *options) *apiv1.ConfigurationStatus {
	return &apiv1.ConfigurationStatus{File: o.configFile, Read: timestamppb.Now()}
}

// needRestart names the keys that have changed since the start and are read there only, sorted.
func needRestart(old, now *config.Config) []string {
	listen := func(c *config.Config) string {
		if c.TCP == nil {
			return ""
		}
		return c.TCP.Listen
	}
	var keys []string
	for name, same := range map[string]bool{
		"socket": now.Socket == old.Socket, "tcp.listen": listen(now) == listen(old), "store": now.Store == old.Store,
		"log.format": now.Log.Format == old.Log.Format, "launcher": now.Launcher == old.Launcher, "fleet": reflect.DeepEqual(now.Fleet, old.Fleet),
		"limits.messageSize": now.Limits.MessageBytes == old.Limits.MessageBytes,
		"limits.logSize":     now.Limits.LogBytes == old.Limits.LogBytes,
		"metrics.listen":     now.Metrics == old.Metrics,
		"smack.poolSize":     now.LabelPool == old.LabelPool,
		"containers.records": now.Records == old.Records,
	} {
		if !same {
			keys = append(keys, name)
		}
	}
	slices.Sort(keys)
	return keys
}

func (d *daemon) tell(lines ...string) {
	if err := d.notify.send(lines...); err != nil {
		d.log.Warn("service manager was not told", "error", err)
	}
}
