package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"

	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sys/unix"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/enforce/landlock"
	"policyd.dev/policyd/internal/buildinfo"
	"policyd.dev/policyd/internal/config"
	"policyd.dev/policyd/internal/fleet"
	"policyd.dev/policyd/internal/fleet/agent"
	"policyd.dev/policyd/internal/fleet/host"
	"policyd.dev/policyd/internal/fleet/kv"
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
	})
	a, err := agent.New(agent.Config{
		Fleet: c.Name, Node: node, Channel: c.Channel, Host: h, Log: p.log, Reason: server.Reason,
		Trust: fleet.Trust{
			Content: fleet.Signers{Threshold: c.Content.Threshold, Keys: c.Content.Keys},
			Rollout: fleet.Signers{Threshold: c.Rollout.Threshold, Keys: c.Rollout.Keys},
		},
		Client: func() (*clientv3.Client, error) { return dialFleet(c) },
		Facts:  agent.Facts{BootID: smackfs.BootID(), Version: buildinfo.Version, Kernel: kernelRelease(), LandlockABI: p.support.ABI},
	})
	if err != nil {
		return nil, fmt.Errorf("fleet: %w", err)
	}
	p.server.SetFleet(a.Status)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		a.Run(ctx)
	}()
	return func() {
		cancel()
		<-ended
	}, nil
}

// dialFleet makes the client of etcd; it does not wait for a connection.
func dialFleet(c *config.Fleet) (*clientv3.Client, error) {
	e := kv.Endpoint{URLs: c.Endpoints}
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
