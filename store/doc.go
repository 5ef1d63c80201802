// Package store keeps documents as immutable numbered versions, the records of sandboxes and a hash-chained log of every
// change, in one bbolt file.
//
// What a call has returned without an error survives kill -9 and power loss: it returns after the commit's fdatasync.
// Calls that come while a commit is under way share the next one. A commit that fails changes nothing, and is put back
// when its meta page was already written.
//
// # Layout
//
// Every value is a sealed record (record.go): format byte, CRC-32C over key and payload, payload. Numbers in keys are
// 8 bytes, big-endian. <kind> is one of kinds.go and is a bucket made at the first document of the kind.
//
//	meta
//	 ├── schema                         : <uint32>         version of this layout
//	 ├── id                             : <16 bytes>       random, names the store
//	 └── log_head                       : <seq><sha256>    newest log entry, so that a cut log is found
//	heads
//	 └── <kind>
//	      └── <name>                    : VersionInfo      newest version; stays after a purge (without digest), so that
//	                                                       a number is never given twice
//	infos
//	 └── <kind>
//	      └── <name> 0x00 <number>      : VersionInfo
//	contents
//	 └── <kind>
//	      └── <name> 0x00 <number>      : Version          without info: document, source text, its name
//	tags
//	 └── <kind>
//	      └── <name> 0x00 <tag>         : <number>
//	digests                                              since schema 2
//	 └── <kind>
//	      └── <name> 0x00 <digest> 0x00 <number> : (empty)
//	pinned
//	 └── <digest>                       : Fragment         content of an included fragment, while a version pins it
//	pin_refs
//	 └── <digest> 0x00 <kind> 0x00 <name> 0x00 <number> : (empty)
//	requests
//	 └── <actor> 0x00 <request id>      : answer           of a request with an id, for a day
//	requests_by_time
//	 └── <unix nanoseconds><requests key> : (empty)
//	profiles
//	 └── <key>                          : encoded profile  cache, bounded; may be lost
//	profiles_order
//	 └── <insertion number>             : <size><profiles key>
//	sandboxes
//	 └── <id>                           : Sandbox
//	smack                                                since schema 3
//	 └── state                          : SmackState       what is assigned, what policyd put into the kernel
//	fleet                                                since schema 4
//	 ├── state                          : FleetState       the channel that is followed, the cursor in it
//	 └── bundle 0x00 <digest>           : bundle's bytes   the one in force and the one before it
//	fleet_documents                                      since schema 4
//	 └── <kind> 0x00 <name>             : FleetDocument    what the bundle in force holds
//	log
//	 └── <seq>                          : Event            append-only, chained by hash (log.go)
//
// The package imports the api, internal/errs, bbolt and protobuf, and nothing of enforcement.
package store
