// Package containers keeps what is known of the containers that run under a profile: which policy, by which reference
// or Binding, for which workload. Whoever confines a container writes its record; the daemon lists them.
//
//	record.go   the record, its file, and what is refused in it
//	folder.go   writing, reading, listing and removing records
//	runtime.go  what the runtime itself keeps of a container: runc's state.json, crun's status
//	process.go  whether a container lives
//	launcher.go whether containers could start the launcher
//	smack.go    the Smack label of a container, as far as it must be given from outside
//
// A record says what was asked for; what a container is, the runtime knows. A create that failed because its name was
// taken has left a record too, so records are files by root, id and digest of the profile, and [Read] takes the one of
// the digest that the runtime has. Records stand in a file system that goes with the boot, as containers do. They are
// removed when the runtime is told to delete the container and, for those it deletes by itself, by [Prune]: when
// neither the runtime nor a process knows the container, and the record is older than a start may take.
//
// It imports the standard library and the rule core of Smack, which does so too: policyd-runc is started with every command of a runtime.
package containers
