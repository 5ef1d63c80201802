package decide

// Answer is what the kernel says to a question, and why. Its JSON names are an
// interface (docs/decisions.md): lists are [] when empty.
type Answer struct {
	Operation string  `json:"operation"`  // the question's words
	Verdict   string  `json:"verdict"`    // "allow", "deny", "not_mediated"
	Errno     string  `json:"errno"`      // "EACCES", "EXDEV", "EPERM"; "" unless denied
	Layers    []Layer `json:"layers"`     // those that deny, the oldest first
	DecidedBy []Rule  `json:"decided_by"` // the rules that granted, or those met that did not
	Notes     []Note  `json:"notes"`
	Looks     []Look  `json:"looks,omitempty"` // only of [Decider.Explain]
}

// The verdicts.
const (
	Allow       = "allow"
	Deny        = "deny"
	NotMediated = "not_mediated"
)

// Allowed tells whether the operation goes through, as far as Landlock is asked.
func (a *Answer) Allowed() bool { return a.Verdict != Deny }

// Layer is a layer that denies, with the rights that no rule of it grants; for
// a move refused for what the object would gain (note "gain"), these rights.
type Layer struct {
	Name    string   `json:"name"`
	Missing []string `json:"missing"`
}

// Rule is a rule of the policy in one layer. Of a denial it is a rule that was
// met on the way but does not grant what is missing; or, with an empty Rule,
// the layer itself, when no rule of it was met.
type Rule struct {
	Layer    string   `json:"layer"`
	Rights   []string `json:"rights"`   // granted by it: of those asked for an allow, all of a denial
	Rule     string   `json:"rule"`     // its path, or its ports ("80-90")
	File     string   `json:"file"`     // where it stands in the policy's text: "" and 0 when that is not known,
	Line     uint32   `json:"line"`     // as in a profile compiled to a file
	Column   uint32   `json:"column"`   // of the line, from 1
	Field    string   `json:"field"`    // "spec.layers[0].paths[1]"
	Fragment string   `json:"fragment"` // name of the fragment it comes from
}

// Note says what the verdict alone does not. Codes are stable, see [NoteCodes].
type Note struct {
	Code string `json:"code"`
	Text string `json:"text"`
}

// Look is one question of the kernel about one object: a program and each of
// its interpreters are looks of their own, and so are the two parents of a move.
type Look struct {
	What    string   `json:"what"`   // "file", "directory", "program", "interpreter", "parent", "from", "to", "port", "process", "mount" ...
	Object  string   `json:"object"` // the path as asked for, the port, ...
	Real    string   `json:"real"`   // the path behind symbolic links; "" when there is none
	Rights  []string `json:"rights"` // asked for
	Verdict string   `json:"verdict"`
	Steps   []Step   `json:"steps"`
	Layers  []Layer  `json:"layers"` // those that deny in the end
}

// Step is one place the kernel looks at on its way up from the object, or the
// beginning of the walk (At is "").
type Step struct {
	At          string  `json:"at"`          // path, or ports of a rule
	Rules       []Rule  `json:"rules"`       // met here; Rights are those they are the first to grant of what is asked, [] for none
	Unfulfilled []Layer `json:"unfulfilled"` // what each layer still lacks after it
}
