// Package policy is the source language of policyd: YAML documents read
// strictly into the api messages, checked, linted, formatted, and compiled into
// the layers of a profile. The language is described in docs/policy-language.md.
//
//	text --Parse--> Document (api message, checked) --Compile--> Compiled (profile, origins)
//	                 | Lint, Format, ToYAML, ContentDigest, Pin
//
// Nothing here looks at the host: the same text gives the same profile
// everywhere. It imports the api messages, enforce/profile, internal/errs, the
// YAML library and protobuf, and must not import the store, the kernel side of
// enforce or the server.
package policy
