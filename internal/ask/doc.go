// Package ask puts one question to policyd, GetProfile, and needs next to no time before and after it.
//
//	ask.go      the question, the answer, and what can go wrong
//	socket.go   a connection with a deadline, by system calls
//	http2.go    one request over HTTP/2, as gRPC has it
//	message.go  the two messages of protobuf
//
// policyd-runc is started with every container and runs for a millisecond or two. gRPC, protobuf and net take twice as
// long as that to be ready for a first call. What is spoken here is gRPC all the same, to the same service with the same
// authorization: only the client is another. It knows what it needs of the protocols and refuses the rest: one stream, no
// compression, no extensions. Its tests talk to a real server, and hold the messages against those of api.
//
// It imports the standard library and hpack, which imports nothing else.
package ask
