// Package oci edits what an OCI runtime is given, so that a container's program
// is started by policyd-launch under a profile.
//
//	json.go     where things stand in a JSON text
//	config.go   config.json: which profile is asked for, the edit, and its undoing
//	process.go  the process file of an exec
//	parameters.go  values of a policy's parameters by annotation
//
// Texts are edited in place: what the edit does not touch keeps its bytes, so a
// field that this package does not know is never lost. Editing twice is editing
// once. Nothing here opens a file or asks anybody.
//
// It imports the standard library and internal/errs.
package oci
