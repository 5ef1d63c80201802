// Package smackfs is everything between compiled Smack rules and the kernel: it finds and probes smackfs, reads what is
// loaded, loads rules and settings by difference, asks the kernel for decisions, and reads and sets the labels of files,
// processes and peers.
//
// The kernel validates next to nothing: labels end silently at the first byte it dislikes, an error in the middle of a
// write leaves the rules before it loaded, an onlycap that cannot be parsed removes the restriction. So everything is
// checked before it is written and read back after.
//
// [FS] is where the files are: [Mounted] for the kernel's, [Model] for a pure Go model with the kernel's odd semantics,
// which the tests of this package hold against real kernels.
//
// It imports package smack, internal/errs and golang.org/x/sys/unix.
package smackfs
