package journal

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"syscall"

	slogjournal "github.com/systemd/slog-journal"
)

// StreamEnv tells the device and inode of the socket that leads to the journal (systemd.exec(5)).
const StreamEnv = "JOURNAL_STREAM"

// Connected tells whether a file is the stream to the journal that the service manager gave this process. It is
// not when the output was redirected since.
func Connected(f *os.File) bool {
	device, inode, ok := strings.Cut(os.Getenv(StreamEnv), ":")
	if !ok {
		return false
	}
	dev, err := strconv.ParseUint(device, 10, 64)
	if err != nil {
		return false
	}
	ino, err := strconv.ParseUint(inode, 10, 64)
	if err != nil {
		return false
	}
	info, err := f.Stat()
	if err != nil {
		return false
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && st.Dev == dev && st.Ino == ino
}

// fields are the attributes of policyd's log that have a field of their own name; any other KEY is POLICYD_KEY, so that none
// is taken for a field that the journal knows.
var fields = map[string]string{
	"policy":     "POLICY", // without its version
	"version":    "VERSION",
	"sandbox":    "SANDBOX",
	"request_id": "REQUEST_ID",
	"unit":       "UNIT",
	"caller":     "CALLER",
	"method":     "METHOD",
	"container":  "CONTAINER",
	"channel":    "CHANNEL",
}

// messageIDField names the catalog's entry.
const messageIDField = "MESSAGE_ID"

// field gives the name of the journal's field of an attribute.
func field(key string) string {
	if name, ok := fields[key]; ok {
		return name
	}
	up := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z':
			return r - 'a' + 'A'
		case r >= 'A' && r <= 'Z', r >= '0' && r <= '9':
			return r
		}
		return '_'
	}, key)
	return "POLICYD_" + up
}

// Handler writes records to the journal.
type Handler struct {
	to    slog.Handler
	attrs []slog.Attr // of WithAttrs
	group string      // of WithGroup, before each key
	unit  string      // of OfUnit
}

// New connects to the journal.
func New(level slog.Leveler) (*Handler, error) {
	to, err := slogjournal.NewHandler(&slogjournal.Options{Level: level})
	if err != nil {
		return nil, fmt.Errorf("the journal: %w", err)
	}
	return &Handler{to: to}, nil
}

// OfUnit says of every line that it is about a unit. The journal finds out by itself to which one a line belongs, but asks after
// it was written: of a program that has ended by then it finds none (journalctl -u takes this field of root's too).
func (h *Handler) OfUnit(unit string) *Handler {
	out := *h
	out.unit = unit
	return &out
}

// Enabled implements slog.Handler.
func (h *Handler) Enabled(ctx context.Context, level slog.Level) bool {
	return h.to.Enabled(ctx, level)
}

// Handle implements slog.Handler.
func (h *Handler) Handle(ctx context.Context, r slog.Record) error {
	attrs := append([]slog.Attr(nil), h.attrs...)
	r.Attrs(func(a slog.Attr) bool {
		attrs = h.flatten(attrs, h.group, a)
		return true
	})
	out := slog.NewRecord(r.Time, r.Level, line(r.Message, attrs), r.PC)
	if id := MessageID(r.Message); id != "" {
		out.AddAttrs(slog.String(messageIDField, id))
	}
	if h.unit != "" {
		out.AddAttrs(slog.String("OBJECT_SYSTEMD_UNIT", h.unit))
	}
	for _, a := range attrs {
		value := a.Value.String()
		if name, version, ok := strings.Cut(value, "@"); ok && a.Key == "policy" {
			out.AddAttrs(slog.String("POLICY", name), slog.String("VERSION", version))
			continue
		}
		out.AddAttrs(slog.String(field(a.Key), value))
	}
	return h.to.Handle(ctx, out)
}

// flatten appends an attribute, those of a group with the group's name before theirs.
func (h *Handler) flatten(to []slog.Attr, prefix string, a slog.Attr) []slog.Attr {
	a.Value = a.Value.Resolve()
	if a.Equal(slog.Attr{}) {
		return to
	}
	if a.Value.Kind() != slog.KindGroup {
		return append(to, slog.Attr{Key: prefix + a.Key, Value: a.Value})
	}
	if a.Key != "" {
		prefix += a.Key + "."
	}
	for _, inner := range a.Value.Group() {
		to = h.flatten(to, prefix, inner)
	}
	return to
}

// WithAttrs implements slog.Handler.
func (h *Handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	out := *h
	out.attrs = append([]slog.Attr(nil), h.attrs...)
	for _, a := range attrs {
		out.attrs = h.flatten(out.attrs, h.group, a)
	}
	return &out
}

// WithGroup implements slog.Handler.
func (h *Handler) WithGroup(name string) slog.Handler {
	out := *h
	if name != "" {
		out.group += name + "."
	}
	return &out
}

// line is what journalctl shows: the message and, since it shows nothing else, the attributes.
func line(message string, attrs []slog.Attr) string {
	var b strings.Builder
	b.WriteString(message)
	for i, a := range attrs {
		if i == 0 {
			b.WriteByte(':')
		}
		value := a.Value.String()
		if value == "" || strings.ContainsAny(value, " \t\r\n\"=") {
			value = strconv.Quote(value)
		}
		b.WriteByte(' ')
		b.WriteString(a.Key)
		b.WriteByte('=')
		b.WriteString(value)
	}
	return b.String()
}
