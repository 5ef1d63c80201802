// Package decide answers what a profile allows on this host: may a program
// under it open this path, execute that one, bind or connect that port.
//
// Unlike enforce/profile, which decides by the text of paths, it looks at the
// host as the kernel does: symbolic links are followed, rules hold for inodes
// (so for hard links and bind mounts of them), rights for directories count
// only on directories. It speaks of Landlock alone: file modes, capabilities
// and other security modules may refuse as well.
//
// It imports the API for the origins of rows, enforce/profile and the standard library.
package decide
