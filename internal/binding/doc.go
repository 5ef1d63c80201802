// Package binding finds the Binding that gives a workload its policy: patterns, an index of all Bindings, and the order of
// precedence among those that match.
//
// It imports only the api.
package binding
