// Package fleet holds what the members of a fleet say to each other through
// etcd, and the rules by which they believe it: bundles of policies and their
// signed manifests, signed channel pointers, which nodes a rollout has reached,
// what a node tells of itself, and where each of these stands in etcd.
//
// etcd is the transport and never the authority. Whatever is read from it is
// checked here against keys that came another way (Trust), and nothing in this
// package opens a connection: the agent (internal/fleet/agent), the controller
// (internal/fleet/controller) and policyctl do.
//
// It imports internal/errs, golang.org/x/mod/sumdb/note and the standard
// library. docs/bundle-format.md describes the bytes, docs/fleet.md the whole.
package fleet
