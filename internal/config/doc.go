// Package config reads policyd's configuration file: strict YAML, every mistake named
// with file:line:column.
//
// The keys are documented in docs/configuration.md and, with their defaults, in
// deploy/policyd.yaml. It imports nothing of policyd's.
package config
