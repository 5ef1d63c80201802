// Package smackhost owns the host's smackfs for policyd: which SmackPolicy is in force, which is loaded again at every
// start, and what of the kernel's rules is policyd's and so may be taken out again.
//
//	manager.go   one change at a time, and why labels cannot be used
//	state.go     what the store keeps: the record, owned rules, the intent of a change
//	load.go      a policy into the kernel
//	mend.go      a change that was cut off is undone
//	boot.go      the assigned policy at the start of policyd
//	early.go     the same before there is a daemon, and what it hands over
//	unload.go    what policyd loaded, out again; a subject revoked
//	compare.go   the kernel beside the policy
//	check.go     a decision with its reason and its places
//
// The order that makes it survive being killed: the intent of a change is in the store before the first write to the
// kernel, and what is owned after the last one, in the same transaction that forgets the intent. So a record with an
// intent means a change nobody was told has succeeded, and it is undone.
//
// It imports api, store, smack, smack/smackfs, internal/policy and internal/errs.
package smackhost
