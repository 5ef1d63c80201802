// Package buildinfo tells which policyd this is. It imports nothing.
package buildinfo

// Version is set by the linker (make build); a plain `go build` says "dev".
var Version = "dev"
