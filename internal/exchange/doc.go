// Package exchange reads the policies of other Landlock tools into policyd's own
// documents, and writes policyd's in the format of landlockconfig.
//
//	text --tree (JSON, TOML, YAML) or words (command lines)--> draft --> api LandlockPolicy
//	api LandlockPolicy --> Config --> JSON, TOML
//
// Reading is strict: a key, option, right, port or path that cannot be kept as it
// was meant is an error with its place, and then there is no policy. What the tool
// itself would have done otherwise is a remark. docs/import.md tells what maps to
// what in each format.
//
// Nothing here looks at the host. The package imports the api messages,
// enforce/profile, internal/errs, internal/policy and readers of YAML and TOML.
package exchange
