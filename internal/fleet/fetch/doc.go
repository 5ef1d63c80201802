// Package fetch reads the bytes of a bundle that etcd only refers to. The
// reference is the one thing of a blob that nobody has signed, so what it names
// is taken for hostile: it opens regular files of the very size that was signed
// and https, and reads no more than that size.
//
// It imports internal/fleet and internal/errs.
package fetch
