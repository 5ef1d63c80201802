package main

import (
	"context"
	"fmt"
	"log/slog"
)

// nriLog makes NRI's log lines ours. What NRI tells as a matter of course is of interest to those who look for a fault.
type nriLog struct{ log *slog.Logger }

// Debugf logs at level debug.
func (l nriLog) Debugf(ctx context.Context, format string, args ...any) {
	l.log.DebugContext(ctx, fmt.Sprintf(format, args...))
}

// Infof logs at level debug.
func (l nriLog) Infof(ctx context.Context, format string, args ...any) {
	l.log.DebugContext(ctx, fmt.Sprintf(format, args...))
}

// Warnf logs at level warn.
func (l nriLog) Warnf(ctx context.Context, format string, args ...any) {
	l.log.WarnContext(ctx, fmt.Sprintf(format, args...))
}

// Errorf logs at level error.
func (l nriLog) Errorf(ctx context.Context, format string, args ...any) {
	l.log.ErrorContext(ctx, fmt.Sprintf(format, args...))
}
