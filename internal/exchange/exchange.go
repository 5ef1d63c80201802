package exchange

import (
	"fmt"
	"path"
	"slices"
	"strings"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/enforce/profile"
	"policyd.dev/policyd/internal/errs"
	"policyd.dev/policyd/internal/policy"
)

// defaultName is the name of a policy or layer for which nothing gives one.
const defaultName = "imported"

// Ways to make one policy of several landlockconfig files.
const (
	ComposeUnion  = "union"  // one layer, as landlockconfig does
	ComposeLayers = "layers" // a layer each
)

// Options are what reading needs beside the text.
type Options struct {
	Name    string // of the policy; "": from the text, or imported
	Compose string // landlockconfig with several files: ComposeUnion or ComposeLayers
	Base    string // folder of relative paths; "": they are errors
	ABI     int    // of the kernel or of the version of the tool that the text was for; 0: the tool's newest
	TOML    bool   // landlockconfig whose name does not tell: TOML
}

// Format is one that can be read.
type Format struct {
	Name string
	Doc  string
	Many bool // several files make one policy
	ABI  bool // heeds Options.ABI
	Line bool // a command line, which may be given as arguments

	read func(r *report, files []File, o Options) []*draft
}

var formats = [...]Format{
	{"landlockconfig", "landlockconfig's JSON or TOML, files or a folder of them", true, false, false, (*report).landlockconfig},
	{"island", "an island profile: a folder with profile.toml and landlock/*.toml", true, false, false, (*report).island},
	{"landrun", "a command line of landrun", false, true, true, (*report).landrun},
	{"setpriv", "a command line of setpriv with --landlock-access and --landlock-rule", false, true, true, (*report).setpriv},
	{"nomad", "paths with modes, rx:/path, one a line, as nomad's exec2 driver unveils them", false, false, false, (*report).nomad},
	{"podlock", "LandlockProfile documents of PodLock", false, false, false, (*report).podlock},
	{"sandboxer", "the variables LL_FS_RO, LL_FS_RW, ... of the kernel's sandboxer", false, false, true, (*report).sandboxer},
}

// Formats returns a copy of the table of formats that Read knows.
func Formats() []Format { return slices.Clone(formats[:]) }

// FormatByName finds a format.
func FormatByName(name string) (Format, bool) {
	for _, f := range formats {
		if f.Name == name {
			return f, true
		}
	}
	return Format{}, false
}

// Import is what was read.
type Import struct {
	Policies []*apiv1.LandlockPolicy // at least one, with different names
	Remarks  []*apiv1.Finding        // what the tool would have done otherwise
}

// Read makes policies of texts in a format. The error is a [*Problems], which
// holds every error, or tells of options that do not fit.
func Read(format string, files []File, o Options) (*Import, error) {
	f, ok := FormatByName(format)
	switch {
	case !ok:
		return nil, fmt.Errorf("%w: unknown format %q", errs.ErrInvalid, format)
	case len(files) == 0:
		return nil, fmt.Errorf("%w: no file to read", errs.ErrInvalid)
	case len(files) > 1 && !f.Many:
		return nil, fmt.Errorf("%w: %d files; one %s makes one policy", errs.ErrInvalid, len(files), format)
	case o.ABI < 0 || o.ABI > profile.MaxABI:
		return nil, fmt.Errorf("%w: abi %d: want 1 to %d", errs.ErrInvalid, o.ABI, profile.MaxABI)
	case o.Base != "" && !strings.HasPrefix(o.Base, "/"):
		return nil, fmt.Errorf("%w: base %q is not an absolute path", errs.ErrInvalid, clip(o.Base))
	case format == "landlockconfig" && len(files) > 1 && o.Compose != ComposeUnion && o.Compose != ComposeLayers:
		return nil, fmt.Errorf("%w: several files: say whether they are one layer that allows what any allows (union) or a layer each (layers)", errs.ErrInvalid)
	}
	r := &report{}
	total := 0
	for _, file := range files {
		if total += len(file.Data); total > policy.MaxFileBytes {
			return nil, fmt.Errorf("%w: the files have more than %d bytes together", errs.ErrTooLarge, policy.MaxFileBytes)
		}
	}
	drafts := f.read(r, files, o)
	if o.Name != "" && len(drafts) > 1 {
		r.errorf(spot{}, codeBadName, "%d policies come out: they cannot all be named %s", len(drafts), clip(o.Name))
	}
	if err := r.err(); err != nil {
		return nil, err
	}
	im := &Import{}
	taken := map[string]bool{}
	for _, d := range drafts {
		if d.name = distinct(d.name, taken); o.Name != "" {
			d.name = o.Name
		}
		p := d.message()
		if _, err := policy.FromResource(&apiv1.Resource{Kind: &apiv1.Resource_LandlockPolicy{LandlockPolicy: p}}); err != nil {
			if err = r.merge(err); err != nil {
				return nil, err
			}
		}
		im.Policies = append(im.Policies, p)
	}
	im.Remarks = r.remarks
	return im, nil
}

// Text writes the policies as YAML, with a comment on where they came from.
func (im *Import) Text(origin string) ([]byte, error) {
	var b strings.Builder
	for i, p := range im.Policies {
		if i > 0 {
			b.WriteString("---\n")
		}
		for line := range strings.SplitSeq(strings.TrimSpace(origin), "\n") {
			b.WriteString("# " + line + "\n")
		}
		text, err := policy.ToYAML(&apiv1.Resource{Kind: &apiv1.Resource_LandlockPolicy{LandlockPolicy: p}})
		if err != nil {
			return nil, err
		}
		b.Write(text)
	}
	out, err := policy.Format([]byte(b.String()))
	if err != nil {
		return nil, fmt.Errorf("what would be printed is not read again: %w", err)
	}
	return out, nil
}

// baseName is the last part of a file's name without its ending.
func baseName(name string) string {
	base := path.Base(name)
	return strings.TrimSuffix(base, path.Ext(base))
}
