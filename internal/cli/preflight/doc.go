// Package preflight finds what a program needs to start, without starting it:
// the file itself, the interpreters of #! lines and of the ELF header, the
// shared libraries and the files the loader reads. Whether each is granted is
// for the caller's Grants to say.
//
// Programs and the loader's files are input that nobody vouched for: they are
// read within bounds, opened without waiting, and never run.
//
// It imports enforce/profile, enforce/spawn, internal/errs, internal/cli/decide
// and the standard library; for the rules to add also the API and internal/policy.
package preflight
