// Package journal writes policyd's log to the systemd journal with fields that can be asked for (journalctl SANDBOX=ID),
// and names the events that have an entry in the journal's catalog (journalctl -x).
//
//	events.go   the one table of MESSAGE_IDs, and the catalog made from it
//	handler.go  a slog.Handler: fields, and a message that says all in one line
//
// It imports the standard library and the systemd project's handler.
package journal
