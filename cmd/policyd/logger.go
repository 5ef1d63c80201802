package main

import (
	"io"
	"log/slog"
	"os"

	"golang.org/x/term"

	"policyd.dev/policyd/internal/journal"
)

// newLogger logs, unless told otherwise, to the journal where its stream is what policyd writes to, text for people at a
// terminal, and JSON for everybody else.
func newLogger(w io.Writer, format string, level slog.Leveler) *slog.Logger {
	f, isFile := w.(*os.File)
	if format == "auto" {
		format = "json"
		switch {
		case isFile && term.IsTerminal(int(f.Fd())):
			format = "text"
		case isFile && journal.Connected(f):
			format = "journal"
		}
	}
	o := &slog.HandlerOptions{Level: level}
	switch format {
	case "journal":
		h, err := journal.New(level)
		if err == nil {
			return slog.New(h)
		}
		log := slog.New(slog.NewJSONHandler(w, o))
		log.Warn("the journal takes no fields; logging JSON", "error", err)
		return log
	case "text":
		return slog.New(slog.NewTextHandler(w, o))
	}
	return slog.New(slog.NewJSONHandler(w, o))
}
