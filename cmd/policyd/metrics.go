package main

import (
	"fmt"
	"log/slog"
	"net"

	"policyd.dev/policyd/internal/config"
	"policyd.dev/policyd/internal/metrics"
	"policyd.dev/policyd/internal/server"
)

// newMetrics counts when somebody may ask; nil otherwise.
func newMetrics(c *config.Config) *metrics.Metrics {
	if c.Metrics == (config.Metrics{}) {
		return nil
	}
	return metrics.New()
}

// serveMetrics answers at metrics.listen until close. With nil it does nothing.
func serveMetrics(c *config.Config, m *metrics.Metrics, log *slog.Logger) (closing func(), err error) {
	if m == nil {
		return func() {}, nil
	}
	var l net.Listener
	if c.Metrics.Path != "" {
		l, err = server.ListenUnix(c.Metrics.Path, c.Socket.Mode, c.Socket.GID)
	} else {
		l, err = net.Listen("tcp", c.Metrics.Address)
	}
	if err != nil {
		return nil, fmt.Errorf("metrics.listen: %w", err)
	}
	log.Info("serving metrics", "address", l.Addr().String(), "network", l.Addr().Network())
	// Sandboxes and policies do not need it: that it fails is told and ends nothing.
	s := m.Serve(l, func(err error) { log.Error("metrics are no longer served", "error", err) })
	return func() {
		if err := s.Close(); err != nil {
			log.Warn("metrics listener could not be closed", "error", err)
		}
	}, nil
}
