// Package policydv1 is the contract of policyd: the policy documents, the
// services and the stored records, generated from the .proto files beside it.
//
// It imports nothing of policyd.
package policydv1
