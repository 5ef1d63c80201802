package smack

import "policyd.dev/policyd/smack/label"

// Limits. Those of the kernel are named after what sets them; the others keep
// memory bounded by the input and are far beyond any policy in use.
const (
	// MaxLabel is the length of the longest label in bytes (SMK_LONGLABEL is
	// 256 and counts the final NUL).
	MaxLabel = label.Max

	// MaxLabels is how many labels the rules of one policy can name: a label
	// is two bytes in a packed rule.
	MaxLabels = 1<<16 - 1

	// MaxLayers is how many layers a policy can have.
	MaxLayers = 64

	// MaxRules is how many rules the layers of a policy can have together.
	MaxRules = 1 << 22

	// MaxLine is the length of the longest line of rule text in bytes: what
	// load2 takes in one write, PAGE_SIZE-1.
	MaxLine = 4095

	// MaxText is the size of the largest file of rules or settings in bytes.
	MaxText = 64 << 20

	// MaxProblems is how many errors, and how many warnings of one kind, are
	// told of one text.
	MaxProblems = 100

	maxRowLayers   = 1 << 25 // rows times layers
	maxPolicyBytes = 1 << 28
	maxName        = 255
	maxFiles       = 1<<16 - 1
	systemdLine    = 255 // read_line(..., NAME_MAX) gives up when the line has as many bytes
)
