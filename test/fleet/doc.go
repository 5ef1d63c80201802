// Package fleettest is the fleet from end to end: real etcd, which is embedded here and in no other module, real policyd
// processes, and what may go wrong between them.
//
// It is a module of its own so that nobody who uses policyd inherits etcd's server. test/run.sh runs it as step fleet.
package fleettest
