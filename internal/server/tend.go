package server

import (
	"context"
	"log/slog"

	"google.golang.org/protobuf/proto"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/internal/sandbox"
)

// SetConfiguration tells what became of the configuration file, for Status.
func (s *Server) SetConfiguration(c *apiv1.ConfigurationStatus) {
	s.configuration.Store(proto.CloneOf(c))
}

// Summary is what a line about the daemon says.
type Summary struct {
	// Alive sandboxes; of them with something not enforced, and with an older version than the newest.
	Sandboxes, Degraded, Outdated int
}

// Summary counts the sandboxes of everybody.
func (s *Server) Summary() (Summary, error) {
	alive, _, err := s.sandboxes.List(sandbox.Filter{})
	if err != nil {
		return Summary{}, err
	}
	out := Summary{Sandboxes: len(alive)}
	for _, sb := range alive {
		if len(sb.GetMissing()) > 0 {
			out.Degraded++
		}
		if sb.GetOutdated() {
			out.Outdated++
		}
	}
	return out, nil
}

// noted adds what a call turned out to concern to its line in the log. The handler's own goroutine alone may call it.
func noted(ctx context.Context, attrs ...slog.Attr) {
	c := callFrom(ctx)
	c.noted = append(c.noted, attrs...)
}

// notedSandbox is noted for a sandbox that was started.
func notedSandbox(ctx context.Context, sb *apiv1.Sandbox) {
	noted(ctx, slog.String("sandbox", sb.GetId()), slog.String("policy", sb.GetPolicy()), slog.Uint64("version", sb.GetVersion()))
}
