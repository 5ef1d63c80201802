// Package spawn starts programs under rulesets, waits for them and ends them
// with all their descendants.
//
//	command.go, limits.go, lookpath.go   what to start
//	spawner.go, thread.go, start.go      the way to exec, on a thread of its own
//	smack.go                             a Smack label on the way
//	faults.go                            the steps of that way, for tests that fail each
//	diagnose.go, chain.go, explain.go    why a start failed, in words and as an errs sentinel
//	child.go, wait.go                    a started program: pidfd, exit status
//	group.go, cgroup.go                  descendants held by a cgroup (v2)
//	supervised.go, supervise.go,
//	protocol.go, descendants.go          or by a small supervisor process
//
// The daemon itself is never restricted: only threads made for one start are,
// and each ends with it.
//
// It imports enforce/profile, enforce/landlock, internal/errs and
// golang.org/x/sys.
package spawn
