package policy

import (
	apiv1 "policyd.dev/policyd/api/policyd/v1"
)

// The envelope of every document.
const (
	APIVersion   = "policyd/v1"
	KindPolicy   = "LandlockPolicy"
	KindFragment = "Fragment"
)

// Kinds returns the names of the kinds of documents, sorted.
func Kinds() []string { return []string{KindFragment, KindPolicy} }

// Document is one checked document.
type Document struct {
	Resource  *apiv1.Resource
	Kind      string // KindPolicy or KindFragment
	Name      string // metadata.name
	Source    string // text of this document alone; "" when it came as a message
	File      string // name of the file for messages; "" when it came as a message
	FirstLine int    // line of File where Source begins, from 1
}

// Parse reads all documents of a file. The error is an [*Errors] that holds
// every error of the file; no document is returned then.
func Parse(file string, src []byte) ([]*Document, error) { return nil, errStub }

// FromResource checks a message as Parse checks a text; errors name fields
// only.
func FromResource(r *apiv1.Resource) (*Document, error) { return nil, errStub }
