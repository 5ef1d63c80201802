package policy

// JSONSchema is the JSON Schema (draft 2020-12) of a document, for editors.
func JSONSchema() []byte { return nil }
