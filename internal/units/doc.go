// Package units puts the services of systemd under policies: it reads the commands
// of a unit from the text of its files (D-Bus tells them without quotes, %-specifiers
// and variables), writes the drop-in that puts policyd-launch before each, reads it
// back, and knows a drop-in that was changed by hand.
//
// It speaks to systemd through systemctl, which as root needs no message bus. It
// imports enforce, internal/cli, internal/errs and the standard library.
package units
