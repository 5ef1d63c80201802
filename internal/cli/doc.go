// Package cli holds what the commands of policyctl share: the connection to
// policyd, exit codes, the printing of errors and tables, terminals, and the
// client's half of an attached sandbox.
//
// It may import the API, internal/policy, internal/errs and internal/paths, but
// neither the store nor the server: those who run policyctl are clients of a
// daemon.
package cli
