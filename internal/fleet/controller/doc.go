// Package controller takes a rollout from stage to stage: a pure step that
// looks at a channel's pointer and its nodes and says what comes next, and the
// loop over etcd around it, in which one of many candidates is elected.
//
// The same step serves policyd (elected) and a person (policyctl fleet advance).
// It never goes past a Hold: the transaction that writes the next pointer has
// the Hold's absence among its conditions.
//
// It imports internal/fleet, internal/fleet/kv, internal/errs and etcd's client.
package controller
