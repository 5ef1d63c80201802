// Package landlock brings a profile to this host's kernel: it opens the paths,
// builds one ruleset per layer, and restricts the thread that asks for it.
//
//	probe.go                    what the kernel can do, and what to do when it cannot
//	open.go                     paths to inodes, nothing refused or dropped silently
//	build.go, rulesets.go       a profile as ruleset descriptors, and their use
//	flatten.go, mounts.go       many layers as one, where this host's tree allows it
//	cache.go                    rulesets kept between starts, looked at again before reuse
//
// Nothing here restricts the process: only [Rulesets.RestrictThread] restricts,
// and only the calling thread.
//
// It imports enforce/profile, internal/errs, go-landlock's system calls and
// golang.org/x/sys.
package landlock
