package metrics

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
)

const (
	headerTimeout = 5 * time.Second
	answerTimeout = 15 * time.Second
	idleTimeout   = 2 * time.Minute
	// scrapesMost bounds those under way: each reads the state.
	scrapesMost = 4
)

// Handler answers /metrics, in the text format or the one a scraper asks for.
func (m *Metrics) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{
		MaxRequestsInFlight: scrapesMost, Timeout: answerTimeout, EnableOpenMetrics: true,
	}))
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = io.WriteString(w, "policyd: /metrics is for Prometheus\n") // the client is gone
	})
	return mux
}

// Server serves metrics on one listener.
type Server struct{ http *http.Server }

// Serve begins to answer on the listener, which it closes in [Server.Close]. failed is told when it can no longer.
func (m *Metrics) Serve(l net.Listener, failed func(error)) *Server {
	s := &Server{http: &http.Server{
		Handler: m.Handler(), ReadHeaderTimeout: headerTimeout, ReadTimeout: headerTimeout,
		WriteTimeout: answerTimeout + headerTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: 16 << 10,
	}}
	go func() {
		if err := s.http.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			failed(fmt.Errorf("metrics listener %s: %w", l.Addr(), err))
		}
	}()
	return s
}

// Close ends scrapes under way after a moment.
func (s *Server) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if err := s.http.Shutdown(ctx); err != nil {
		return s.http.Close()
	}
	return nil
}
