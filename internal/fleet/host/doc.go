// Package host puts a fleet's bundles into force on this machine: it compiles every document for this kernel, gives the
// host's SmackPolicy to smackfs, and has the store move to the bundle in one transaction. Nothing happens in halves: when
// a step fails, what was in force before stays in force.
//
// It knows nothing of etcd: the agent brings bundles that are fetched and verified. It imports the store, the policy
// language, enforce, internal/smackhost and internal/fleet.
package host
