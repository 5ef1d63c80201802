// Package server is policyd's gRPC side: it decides who may do what, turns requests into calls of
// store, internal/policy and internal/sandbox, and their errors into statuses.
//
//	roles.go        the one table of RPCs and the least role each needs
//	caller.go       a peer's roles, and what they hold for
//	codes.go        the one table of errors, gRPC codes and stable reasons
//	intercept.go    what happens around every RPC
//	limits.go       what one user may take
//	listen.go       the unix socket, without a moment in which it is too open
//	apply.go, policies.go, profiles.go, sandboxes.go, run.go, admin.go   the services
//
// It may import everything of policyd's but the programs.
package server
