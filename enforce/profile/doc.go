// Package profile holds the compiled form of a Landlock policy: the transposed
// layer form, its binary encoding, and the decisions a kernel takes on it.
//
// A [Profile] is pure. It knows layers and two tables of rows (paths and
// ports), each row holding one mask of granted rights per layer, and nothing of
// any host: no inode was looked at, no path was opened. That makes it
// comparable, cacheable by digest and testable without a kernel.
//
//	rights.go, groups.go, flags.go, abi.go   the tables everything else reads
//	errata.go                                where kernels of one ABI differ
//	profile.go, validate.go, builder.go      the data and how it is made
//	encode.go, decode.go, limits.go          the bytes (docs/profile-format.md)
//	operation.go, operate.go                 what an operation asks of the kernel
//	decide.go, refer.go, explain.go          the kernel's algorithm
//	index.go, united.go, pathtable.go        the same answers from united rows
//	tree.go, spot.go                         the same on objects, to which rules are bound
//	require.go                               what a kernel of some ABI lacks
//	flatten.go                               many layers as one
//	compare*.go                              what two profiles allow otherwise
//
// The package imports nothing but the standard library and must stay so: it is
// meant to be used by others as a library.
package profile
