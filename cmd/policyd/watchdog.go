package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
)

// watchdogInterval is how long the service manager waits for a sign (sd_watchdog_enabled(3)); 0: it does not. The
// variables are not for children.
func watchdogInterval() time.Duration {
	usec, pid := os.Getenv("WATCHDOG_USEC"), os.Getenv("WATCHDOG_PID")
	os.Unsetenv("WATCHDOG_USEC")
	os.Unsetenv("WATCHDOG_PID")
	n, err := strconv.ParseInt(usec, 10, 64)
	if err != nil || n <= 0 || n > int64(time.Hour/time.Microsecond) || pid != "" && pid != strconv.Itoa(os.Getpid()) {
		return 0
	}
	return time.Duration(n) * time.Microsecond
}

// prober has the way of a change; the store does.
type prober interface {
	Probe(ctx context.Context) error
}

// works tells whether policyd does: a change would go through its store, and its own socket takes a connection and answers
// a call. That the answer is "not serving" is none of the watchdog's business: a restart mends no policy.
func works(ctx context.Context, st prober, listeners []net.Listener) error {
	if err := st.Probe(ctx); err != nil {
		return fmt.Errorf("store: %w", err)
	}
	for _, l := range listeners {
		if l.Addr().Network() != "unix" {
			continue // policyd has no certificate to call itself with
		}
		if _, err := answers(ctx, l.Addr().String()); err != nil {
			// Where the service manager listens a restart of policyd alone does not bring it back.
			if _, gone := os.Lstat(l.Addr().String()); errors.Is(gone, os.ErrNotExist) {
				return fmt.Errorf("socket %s: its file is gone: systemctl restart policyd.socket policyd.service", l.Addr())
			}
			return fmt.Errorf("socket %s: %w", l.Addr(), err)
		}
	}
	return nil
}

// answers asks a socket's policyd for its health: the stored policies compiled, the assigned SmackPolicy in force.
func answers(ctx context.Context, socket string) (serving bool, err error) {
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	r, err := healthv1.NewHealthClient(conn).Check(ctx, &healthv1.HealthCheckRequest{})
	return r.GetStatus() == healthv1.HealthCheckResponse_SERVING, err
}

// watch asks time and again whether policyd works, until ctx ends, and gives every answer to told. A question that is not
// answered by half of the interval is answered with an error; a later one may be better.
func watch(ctx context.Context, interval time.Duration, ask func(context.Context) error, told chan<- error) {
	tick := time.NewTicker(interval / 4)
	defer tick.Stop()
	for {
		each, cancel := context.WithTimeout(ctx, interval/2)
		err := ask(each)
		cancel()
		select {
		case told <- err:
		case <-ctx.Done():
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}
