// Package decide answers what the kernel says to an operation of a program
// under a profile, and why: policyctl's check and explain, policy tests, and
// the look at what a program needs stand on it.
//
// There is one decision procedure, that of enforce/profile. What this package
// adds is the host: a path is resolved as the system call would, and a rule
// holds for an inode, whatever its names are (hard links, bind mounts). For
// each question the rules that stand on the inodes from the object up to "/"
// become rows of a small profile, and the engine decides on that. With
// [Options.Lexical] nothing of the host is looked at and the profile is decided
// on as it is.
//
// It speaks of Landlock alone: file modes, capabilities and other security
// modules may refuse as well, and the file system's own errors may come first.
//
// It imports the API for the origins of rows, enforce/profile, the standard
// library and golang.org/x/sys/unix.
package decide
