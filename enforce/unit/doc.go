// Package unit is the file that stands between policyctl attach, which writes it
// as root, and policyd-launch unit, which puts the profile in it on before it
// becomes a service's program. It imports only enforce/profile, internal/errs and
// the standard library: the launcher must start fast and run in any root.
package unit
