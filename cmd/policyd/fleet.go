package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/mod/sumdb/note"
	"golang.org/x/sys/unix"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/enforce/landlock"
	"policyd.dev/policyd/internal/buildinfo"
	"policyd.dev/policyd/internal/config"
	"policyd.dev/policyd/internal/fleet"
	"policyd.dev/policyd/internal/fleet/agent"
	"policyd.dev/policyd/internal/fleet/controller"
	"policyd.dev/policyd/internal/fleet/host"
	"policyd.dev/policyd/internal/fleet/kv"
	"policyd.dev/policyd/internal/metrics"
	"policyd.dev/policyd/internal/sandbox"
	"policyd.dev/policyd/internal/server"
	"policyd.dev/policyd/internal/smackhost"
	"policyd.dev/policyd/smack/smackfs"
	"policyd.dev/policyd/store"
)

// fleetParts are those of the daemon that a fleet's agent works with.
type fleetParts struct {
	store   *store.Store
	smack   *smackhost.Manager
	boxes   *sandbox.Manager
	support landlock.Support
	server  *server.Server
	log     *slog.Logger
	metrics *metrics.Metrics // nil: nobody asks
	records string           // folder of those of containers
}

// startFleet begins to follow the channel that the configuration names. What was in force last is so already; nothing here
// waits for the network. Without the section this host belongs to no fleet, and what it had of one is its own.
func startFleet(c *config.Fleet, p fleetParts) (stop func(), err error) {
	if c == nil {
		return func() {}, p.store.LeaveFleet(context.Background(), store.Actor{Name: "policyd", Message: "the configuration names no fleet"})
	}
	node := c.Node
	if node == "" {
		if node, err = os.Hostname(); err != nil {
			return nil, fmt.Errorf("fleet.node: %w", err)
		}
	}
	h := host.New(host.Config{
		Store: p.store, Smack: p.smack, Support: p.support, Changed: p.server.StoreChanged,
		Sandboxes: func() ([]*apiv1.Sandbox, error) {
			alive, _, err := p.boxes.List(sandbox.Filter{})
			return alive, err
		},
		Others: (&elsewhere{records: p.records, log: p.log}).running,
	})
	trust := fleet.Trust{
		Content: fleet.Signers{Threshold: c.Content.Threshold, Keys: c.Content.Keys},
		Rollout: fleet.Signers{Threshold: c.Rollout.Threshold, Keys: c.Rollout.Keys},
	}
	a, err := agent.New(agent.Config{
		Fleet: c.Name, Node: node, Channel: c.Channel, Channels: c.Channels, Host: h, Log: p.log, Reason: server.Reason, Trust: trust,
		Client: func() (*clientv3.Client, error) { return dialFleet(c, nodeAnswer) },
		Facts:  agent.Facts{BootID: smackfs.BootID(), Version: buildinfo.Version, Kernel: kernelRelease(), LandlockABI: p.support.ABI},
	})
	if err != nil {
		return nil, fmt.Errorf("fleet: %w", err)
	}
	p.server.SetFleet(a.Status)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { a.Run(ctx) })
	if c.Controller {
		running.Go(func() { controlWhenReady(ctx, c, node, trust, p) })
	}
	return func() {
		cancel()
		running.Wait()
	}, nil
}

// witness keeps what this host has seen of channels in its store.
type witness struct {
	store *store.Store
	fleet string
}

func (w witness) Seen(channel string) (uint64, error) {
	return w.store.FleetWitnessed(w.fleet, channel)
}

func (w witness) Note(ctx context.Context, channel string, p *fleet.Pointer) error {
	return w.store.WitnessFleet(ctx, w.fleet, channel, p.Seq, p.ID())
}

// signers reads the rollout key, again whenever it is needed: it may be replaced.
func signers(c *config.Fleet) ([]note.Signer, error) {
	path, err := config.File(c.RolloutKey)
	if err != nil {
		return nil, err
	}
	place := path
	if path != c.RolloutKey {
		place = c.RolloutKey // a credential, whose folder the service manager keeps closed
	}
	s, err := fleet.ReadSigner(place)
	return []note.Signer{s}, err
}

// controlWhenReady waits until certificate and rollout key can be read. A host whose files are not as they should be goes on
// with the policies that it has; it does not carry rollouts on, and says so.
func controlWhenReady(ctx context.Context, c *config.Fleet, node string, trust fleet.Trust, p fleetParts) {
	for told := ""; ; {
		client, err := dialFleet(c, 0)
		if err == nil {
			if _, err = signers(c); err == nil {
				defer client.Close()
				controlFleet(ctx, c, node, trust, client, p)
				return
			}
			client.Close()
		}
		if err.Error() != told {
			told = err.Error()
			p.log.Error("this host cannot carry rollouts on", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(readyPause):
		}
	}
}

// readyPause is between two looks whether the files of a controller can be read.
const readyPause = 10 * time.Second

// controlFleet carries rollouts on while this host is elected.
func controlFleet(ctx context.Context, c *config.Fleet, node string, trust fleet.Trust, client *clientv3.Client, p fleetParts) {
	s, err := kv.New(client, c.Name)
	if err != nil {
		p.log.Error("this host carries no rollouts on", "error", err)
		return
	}
	controller.Run(ctx, controller.Config{
		Member: controller.Member{Store: s, Trust: trust, Name: node, Now: time.Now, Signers: func() ([]note.Signer, error) { return signers(c) }},
		Log:    p.log,
		Memory: witness{p.store, c.Name},
		Decided: func(channel string, d controller.Decision) {
			if d.Action != controller.Halt {
				return // the controller has logged it
			}
			p.metrics.RolloutHalted()
			e := &apiv1.Event{
				Type: store.EventFleetHalt, Actor: "fleet-controller:" + node, Subject: channel, Message: d.Why, Attributes: map[string]string{"fleet": c.Name},
			}
			if err := p.store.Append(ctx, e); err != nil {
				p.log.Error("the halt could not be written into the log", "error", err)
			}
		},
	})
}

// nodeAnswer bounds what etcd may say to a node at once, bytes: a bundle of at most 1 MiB, or four small records.
const nodeAnswer = 8 << 20

// dialFleet makes the client of etcd; it does not wait for a connection.
func dialFleet(c *config.Fleet, mostBytes int) (*clientv3.Client, error) {
	e := kv.Endpoint{URLs: c.Endpoints, MostBytes: mostBytes}
	for _, f := range []struct {
		value string
		into  *string
	}{{c.Certificate, &e.Cert}, {c.Key, &e.Key}, {c.CA, &e.CA}} {
		if f.value == "" {
			continue
		}
		path, err := config.File(f.value)
		if err != nil {
			return nil, err
		}
		*f.into = path
	}
	return kv.Dial(e)
}

func kernelRelease() string {
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return ""
	}
	return unix.ByteSliceToString(u.Release[:])
}
