package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/nri/pkg/stub"
)

// How long a registration may take before it is tried anew, and the pauses between attempts.
const (
	registering = 15 * time.Second
	pauseLeast  = 100 * time.Millisecond
	pauseMost   = time.Second
)

// failClosed asks the runtime to fail a container that it got no answer about in time, and to go on asking. A runtime of
// before NRI 0.12.4 does not know it and starts the container as it is.
var failClosed = stub.WithFailurePolicy(&api.FailurePolicy{FailRequest: true, KeepConnected: true})

// serve is a plugin of the runtime until ctx ends. When the runtime goes away it is looked for again, without end:
// containers start unconfined while this is not connected.
func (p *plugin) serve(ctx context.Context) {
	pause, told := pauseLeast, ""
	for {
		began := time.Now()
		err := p.session(ctx)
		if ctx.Err() != nil {
			return
		}
		if time.Since(began) > pauseMost {
			pause, told = pauseLeast, ""
		}
		if err.Error() != told { // not each attempt in vain
			told = err.Error()
			p.log.Warn("not connected to the runtime; containers start unconfined until it is", "socket", p.settings.NRISocket, "error", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
		pause = min(2*pause, pauseMost)
	}
}

// session is one connection to the runtime, from registering to its end.
func (p *plugin) session(ctx context.Context) error {
	conn, err := new(net.Dialer).DialContext(ctx, "unix", p.settings.NRISocket)
	if err != nil {
		return err
	}
	defer conn.Close()
	ended := make(chan struct{})
	once := sync.OnceFunc(func() { close(ended) })
	s, err := stub.New(p, stub.WithPluginName("policyd"), stub.WithPluginIdx(p.settings.Index), stub.WithConnection(conn),
		stub.WithOnClose(once), stub.WithLogger(nriLog{p.log}), failClosed)
	if err != nil {
		return err
	}
	version := s.RuntimeNRIVersion
	p.version.Store(&version)
	// Start waits for the runtime's word without end, also when the connection has ended meanwhile; one that is given up
	// stays behind, with nothing but its memory.
	started := make(chan error, 1)
	go func() { started <- s.Start(ctx) }()
	select {
	case err = <-started:
	case <-time.After(registering):
		err = fmt.Errorf("no answer to the registration within %v", registering)
	case <-ctx.Done():
		return ctx.Err()
	}
	if err != nil {
		return err
	}
	select {
	case <-ended:
		return errors.New("the runtime closed the connection")
	case <-ctx.Done():
		s.Stop()
		return ctx.Err()
	}
}
