// Package std holds the tests of the shipped fragments: real programs run under
// policies that include them, on real kernels. It imports the language
// (internal/policy) and the enforcement, which do not know of one another.
package std
