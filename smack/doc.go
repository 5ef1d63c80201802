// Package smack is the rule core for Smack: labels and access letters, a strict
// parser of rule text, the compiled form of a policy in layers, the kernel's
// decision on it, and the settings that stand beside the rules in smackfs.
//
// The package is pure: it opens no file and asks no kernel. Reading folders and
// writing smackfs is the work of others (smack/smackfs).
//
//	access.go, label.go          letters and labels, as strict as the kernel should be
//	parse.go, builder.go         text and single rules, interned and packed
//	merge.go                     layers of rules to rows (subject, object)
//	policy.go, set.go, table.go  the compiled forms
//	encode.go, decode.go         their bytes (docs/formats.md)
//	decide.go, dead.go, lint.go  what the kernel answers, and what is odd
//	difference.go                what changes between two sets or policies
//	settings.go, cipso.go, ...   everything that is not a rule
//	import*.go, export.go        the formats of libsmack, systemd and Tizen
//
// In a policy, rules merge inside a layer (3 columns set a pair's access, 4
// columns modify it) and layers are ANDed: what reaches the kernel is what no
// layer refuses. A layer leaves letters alone that it does not handle.
//
// The package imports nothing but the standard library and must stay so: it is
// meant to be used by others as a library.
package smack
