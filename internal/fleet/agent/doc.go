// Package agent follows a fleet's channel in etcd and has this host put into force what it says.
//
// What was in force last is in force before etcd is dialled, and stays whatever etcd does. The agent reads a snapshot,
// watches from the next revision on, and acts on what is there now, never on the event that told of it: a thousand events
// are one look. Nothing is believed before its signatures are verified here; etcd is the transport only.
//
//	agent.go      what is given, and the three loops: follow, act, report
//	follow.go     snapshot and watch, and when to begin anew
//	act.go        from what is there to what is in force
//	fetch.go      a bundle's bytes, from this host, etcd, a file or https
//	report.go     the node's status under its lease, and for this host
//
// The agent talks to etcd through clientv3 and to this machine through [Host]. It imports the api, the
// store's names of events, internal/errs and internal/fleet.
package agent
