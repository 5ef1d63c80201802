// Package sandbox owns the life of sandboxes: it starts programs under compiled
// profiles, carries or keeps their output, sees their end, ends what they leave
// behind, and finds them again after a restart of policyd.
//
// A sandbox is either attached, its standard streams carried by a client of
// [Manager.Run] over pipes or a terminal, or detached, its output appended by the
// child itself to log files, so that no pipe dies with policyd.
//
// # What is never lost
//
// A start is written to the journal in the runtime folder before anything is
// executed, and again with the pid before it is acknowledged. The journal is
// committed to the store in groups, at most [commitDelay] after the fact, and
// replayed by [New]. So kill -9 of policyd at any moment forgets no acknowledged
// sandbox; a power loss ends the sandboxes themselves.
//
// # What dies with what
//
// When the first process of a sandbox ends, all its descendants are ended
// (containment of enforce/spawn). Detached sandboxes outlive policyd. Attached ones
// whose client went away get SIGHUP, and are ended [Config.HangupGrace] later.
//
// It may import api, store, enforce/profile, enforce/landlock, enforce/spawn and
// internal/errs. It knows no policy language and no gRPC.
package sandbox
