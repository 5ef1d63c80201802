// Package kv is what admins and controllers do in a fleet's etcd: dial it, read
// and write the records of internal/fleet, each change in one transaction that
// says what must not have changed meanwhile, and the users and roles of nodes.
//
// It imports internal/fleet, internal/errs and etcd's client. Nodes do not need
// it but for Dial: they read one prefix and write two keys.
package kv
