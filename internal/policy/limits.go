package policy

import "policyd.dev/policyd/enforce/profile"

// Limits of the language. Each is an error of code too-large.
const (
	MaxFileBytes      = 8 << 20         // of a file; 100,000 rules of 80 bytes
	MaxDocuments      = 1000            // in a file
	MaxDepth          = 24              // nesting of lists and mappings
	MaxPathBytes      = profile.MaxPath // of a path, after variables
	MaxNameBytes      = 63              // of a name, a label's key or value
	MaxDescription    = 1024            // bytes of metadata.description
	MaxLabels         = 64              // in a document
	MaxLayers         = profile.MaxLayers
	MaxRules          = 1 << 18   // paths and port ranges of a document, before variables
	MaxVariables      = 256       // variables and parameters of a document
	MaxMembers        = 4096      // of a variable
	MaxWithin         = 64        // folders that a parameter's value may lie in
	MaxExpansion      = 1 << 20   // paths of a compilation, after variables and fragments
	MaxIncludes       = 256       // fragments of a document, with all they include
	MaxEnvironment    = 256       // variables of process.environment
	MaxSettingBytes   = 4096      // bytes of a value in process
	MaxSmackExpansion = 1_000_000 // rules that the templates of a SmackPolicy stand for
	MaxTestEntries    = 4096      // of the tree of a PolicyTest
	MaxExpectations   = 10000     // of a PolicyTest
	MaxSelections     = 256       // keys or values of one key of a Binding's match
	MaxPatternBytes   = 1024      // of a key or a pattern of a Binding
)
