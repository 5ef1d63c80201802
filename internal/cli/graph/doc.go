// Package graph draws a profile: which layer grants what, where, and what of it
// all layers together allow.
//
//	model.go, words.go   the picture as data, and how rights and paths are written
//	tree.go              text for a terminal
//	dot.go               for Graphviz
//	svg.go, html.go      self-contained files: no network, no other file
//
// Paths are hostile input: whatever they hold, they cannot leave their place in
// a picture. Equal profiles give equal bytes. It imports the API for the origins
// of rows, enforce/profile and the standard library.
package graph
