package policy

import "policyd.dev/policyd/smack"

// Code is a line of the table of codes that findings carry.
type Code struct {
	Name    string
	Warning bool // a lint; else an error
	Doc     string
}

// Names of the codes. They never change their meaning.
const (
	codeSyntax          = "syntax"
	codeEncoding        = "encoding"
	codeTooLarge        = "too-large"
	codeAlias           = "alias"
	codeUnknownKind     = "unknown-kind"
	codeUnknownKey      = "unknown-key"
	codeRepeatedKey     = "repeated-key"
	codeWrongType       = "wrong-type"
	codeMissingKey      = "missing-key"
	codeBadValue        = "bad-value"
	codeBadName         = "bad-name"
	codeReservedName    = "reserved-name"
	codeDuplicateName   = "duplicate-name"
	codeBadABI          = "bad-abi"
	codeUnknownRight    = "unknown-right"
	codeNeedsABI        = "needs-abi"
	codeNotHandled      = "not-handled"
	codeHandlesNothing  = "handles-nothing"
	codeEmptyAllow      = "empty-allow"
	codeBadPath         = "bad-path"
	codeBadPort         = "bad-port"
	codeBadTemplate     = "bad-template"
	codeUnknownVariable = "unknown-variable"
	codeBadParameter    = "bad-parameter"
	codeUnknownFragment = "unknown-fragment"
	codeIncludeCycle    = "include-cycle"
	codeBadLabel        = "bad-label"
	codeBadAccess       = "bad-access"
	codeBadRule         = "bad-rule"

	lintExecuteWithoutRead = "execute-without-read"
	lintRedundantRule      = "redundant-rule"
	lintFileInWritable     = "file-in-writable-folder"
	lintProcSelf           = "proc-self"
	lintImplicitRefer      = "implicit-refer"
	lintPortZero           = "port-zero"
	lintTooManyLayers      = "too-many-layers"
	lintUnusedVariable     = "unused-variable"
	lintOpenParameter      = "open-parameter"
	lintRepeatedInclude    = "repeated-include"
	lintNothingToExecute   = "nothing-to-execute"
	lintBindsAll           = "binds-all"
)

var codes = [...]Code{
	{codeSyntax, false, "the text is not YAML"},
	{codeEncoding, false, "the text is not UTF-8, or holds a NUL or another control character"},
	{codeTooLarge, false, "a limit of size was passed; the message says which"},
	{codeAlias, false, "an anchor, an alias, a merge key or a tag; variables and fragments are for that"},
	{codeUnknownKind, false, "`apiVersion` or `kind` is not known"},
	{codeUnknownKey, false, "a key that does not exist at this place"},
	{codeRepeatedKey, false, "a key that stands twice in one mapping"},
	{codeWrongType, false, "a list where a mapping belongs, a word where a number belongs, a key without a value"},
	{codeMissingKey, false, "a key that must be there is not"},
	{codeBadValue, false, "a value outside of what the key takes"},
	{codeBadName, false, "a name that does not follow the rule for names"},
	{codeReservedName, false, "a document named std/...: those are shipped with policyd"},
	{codeDuplicateName, false, "two documents of one kind, two layers or two parameters with one name"},
	{codeBadABI, false, "`abi` is missing or not one that policyd knows"},
	{codeUnknownRight, false, "a right, group or mask bit that does not exist"},
	{codeNeedsABI, false, "a right or setting newer than the document's `abi`; the message names the ABI that has it"},
	{codeNotHandled, false, "a rule names a right, or an access letter, that its layer does not handle"},
	{codeHandlesNothing, false, "a layer that restricts nothing"},
	{codeEmptyAllow, false, "a rule that grants nothing: it would deny nothing either, since rules of a layer only add"},
	{codeBadPath, false, "a path that is not absolute, has a `..`, is too long or holds a NUL"},
	{codeBadPort, false, "a port that is not 0 to 65535, or a range that runs backwards"},
	{codeBadTemplate, false, "an unclosed `${`, or a lone `$` (write `$$`)"},
	{codeUnknownVariable, false, "a `${name}` that is neither a variable nor a parameter"},
	{codeBadParameter, false, "a value given at start is unknown, missing, not an absolute path, or outside of `within`"},
	{codeUnknownFragment, false, "an included fragment does not exist"},
	{codeIncludeCycle, false, "fragments that include one another in a circle"},
	{codeBadLabel, false, "SmackPolicy: not a label that the kernel would keep whole; the byte is shown"},
	{codeBadAccess, false, "SmackPolicy: something else than letters of rwxatlb"},
	{codeBadRule, false, "SmackPolicy: a line of rules that has not 3 or 4 columns"},

	{lintExecuteWithoutRead, true, "`execute` without `read_file`: the kernel asks for both when a program is executed"},
	{lintRedundantRule, true, "a path on which the layer grants all of this already, by a rule on it or on a folder above"},
	{lintFileInWritable, true, "a rule on a file in a folder whose files may be replaced: the rule stays with the old file (it binds to the inode)"},
	{lintProcSelf, true, "/proc/self and its like name whoever builds the rules, not the program; policyd refuses them at start"},
	{lintImplicitRefer, true, "a layer that does not list `refer` among what it handles: it refuses every rename and link between folders all the same"},
	{lintPortZero, true, "port 0 is the kernel's choice of a port, not a port"},
	{lintTooManyLayers, true, "more than 16 layers do not fit a kernel and have to be flattened"},
	{lintUnusedVariable, true, "a variable or parameter that no path, or no template of a SmackPolicy, uses"},
	{lintOpenParameter, true, "a parameter without `within`: whoever may start the policy chooses any path; `within: [/]` says that it is meant"},
	{lintRepeatedInclude, true, "a fragment is included twice in one layer"},
	{lintNothingToExecute, true, "a layer handles `execute` and grants it nowhere: no program can be started"},
	{lintBindsAll, true, "Binding: a selection on nothing but `*`: every workload of which there is such a fact gets the policy"},

	{string(smack.WarnDuplicate), true, "SmackPolicy: a rule of 3 columns for a pair that has one in the layer already; the last one wins"},
	{string(smack.WarnBoth), true, "SmackPolicy: a letter is allowed and denied by one rule: it is denied"},
	{string(smack.WarnComment), true, "SmackPolicy: a comment that libsmack and the kernel take for a rule (`# foo rwx`), or a rule that systemd takes for a comment"},
	{string(smack.WarnLongLine), true, "SmackPolicy: a rule of 255 bytes or more: systemd would stop loading at it"},
	{string(smack.WarnDead), true, "SmackPolicy: a rule that changes no answer of the kernel (`* X`, `X X`, `X _ rx`)"},
	{string(smack.WarnPartlyDead), true, "SmackPolicy: a rule of which only `t` has an effect (`X * rwt`)"},
	{string(smack.WarnPrefix), true, "SmackPolicy: a network of addresses that is written in another way than it was given"},
	{string(smack.LintBuiltIn), true, "SmackPolicy: a rule on a label that the kernel gives a meaning of its own (`X _ w` lets X write to all that has no label)"},
	{string(smack.LintNear), true, "SmackPolicy: two labels that are hardly different"},
	{string(smack.LintBudget), true, "SmackPolicy: more labels than `labelBudget`; the kernel never frees one"},
	{string(smack.LintObjects), true, "SmackPolicy: a subject with thousands of objects: the kernel searches them one by one"},
}

// Codes returns a copy of the table of codes: errors first, then lints.
func Codes() []Code { return append([]Code(nil), codes[:]...) }
