// Package policytest runs PolicyTest documents: what a policy must answer to
// operations, decided (internal/cli/decide) and, when asked, performed by
// processes that the kernel really confines.
//
//	files --Load--> Test --Runner.Run--> Result --> WriteText, WriteJUnit, Report (JSON), Coverage
//	                        | decide on the scratch tree
//	                        ' perform: a process of its own (Perform), one fresh tree and one thread an attempt
//
// An operation is performed twice, without the layers and under them, and a
// verdict is only believed where the two tell what Landlock did (judge.go).
// What cannot be told is skipped by name, never passed. Nothing outside of the
// scratch tree is changed.
//
// It imports the api messages, enforce/profile, enforce/landlock,
// internal/policy, internal/cli/decide and internal/errs.
package policytest
