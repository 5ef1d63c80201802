package smack

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"path"
	"slices"
	"strings"
)

// Dialect is a format of rules that others use.
type Dialect string

// The dialects.
const (
	DialectAuto          Dialect = "auto"           // told for each file by its name and text
	DialectLibsmack      Dialect = "libsmack"       // smackload, smackctl: no comments, all or nothing
	DialectSystemd       Dialect = "systemd"        // accesses.d read by systemd: comments at the line's beginning
	DialectTizenManifest Dialect = "tizen-manifest" // XML
	DialectTemplate      Dialect = "template"       // rules with ~NAME~ or {{name}}
)

// ParseDialect reads a dialect's name.
func ParseDialect(s string) (Dialect, error) {
	switch d := Dialect(s); d {
	case DialectAuto, DialectLibsmack, DialectSystemd, DialectTizenManifest, DialectTemplate:
		return d, nil
	}
	return "", fmt.Errorf("%w: no dialect %s: auto, libsmack, systemd, tizen-manifest or template", ErrInvalid, quote(s))
}

// File is a file by name and content. In an import, the name tells cipso.d,
// netlabel.d, onlycap and unconfined from rules.
type File struct {
	Name string // with slashes
	Data []byte
}

// ImportOptions say how to read.
type ImportOptions struct {
	Dialect Dialect // of the files of rules
	// Set gives the variables of templates their values. A section {{#a}} is
	// repeated for each value of a, or of a.b, which {{b}} stands for inside.
	Set map[string][]string
	// MaxRules is how many bytes the imported rules may have as text, 0 for [MaxText]: what is
	// made of them may hold less than files do, and far less than they need as [ImportedRule].
	MaxRules int
}

// ImportedRule is a rule with its place.
type ImportedRule struct {
	At              Place
	Subject, Object string
	Modify          bool // 4 columns
	Allow, Deny     Access
}

// Text gives the rule as a line of rule text; false when the line would be a
// comment, so that the rule must be written as a list of its parts.
func (r ImportedRule) Text() (string, bool) {
	text := fmt.Sprintf("%s %s %s", r.Subject, r.Object, r.Allow)
	if r.Modify {
		text += " " + r.Deny.String()
	}
	return text, r.Subject[0] != '#'
}

// Assignment is the label a manifest gives to a file.
type Assignment struct {
	At                     Place
	Path, Label, ExecLabel string
	Transmute              bool
}

// ImportedFile says as what a file was read.
type ImportedFile struct {
	Name    string
	Kind    string  // "rules", "cipso", "netlabel", "onlycap" or "unconfined"
	Dialect Dialect // of rules
}

// Import is what files of other formats say.
type Import struct {
	Files       []ImportedFile
	Rules       []ImportedRule // in the order of the files' names, and in a file as written
	Settings    Settings
	Assignments []Assignment
	Domains     []string // of manifests: the labels of the package's processes
	// Notes are warnings, most of them where the readers that the files were
	// written for do something else than what is imported.
	Notes Problems
}

// AddTo adds the rules to a layer.
func (im *Import) AddTo(l *LayerBuilder) error {
	for _, r := range im.Rules {
		var err error
		if r.Modify {
			err = l.Modify(r.At, r.Subject, r.Object, r.Allow, r.Deny)
		} else {
			err = l.Set(r.At, r.Subject, r.Object, r.Allow)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// ImportFiles reads files in other formats, in the order of their names. The
// error is [Problems]: what cannot be read, of all files, with what the reader it was
// written for would have done. Nothing is guessed: a label that the kernel would cut
// is an error.
func ImportFiles(files []File, o ImportOptions) (*Import, error) {
	im := importer{o: o, out: &Import{}, single: map[string]string{}, cipsoAt: map[string]Place{}, prefixAt: map[netip.Prefix]Place{}}
	sorted := slices.Clone(files)
	slices.SortStableFunc(sorted, func(a, b File) int { return strings.Compare(a.Name, b.Name) })
	for _, f := range sorted {
		im.file(f)
		if im.dropped > 0 {
			im.out.Notes = append(im.out.Notes, Problem{Place: Place{File: f.Name}, Code: WarnDialect, Text: fmt.Sprintf("%d more remarks on the file", im.dropped)})
			im.dropped = 0
		}
		if im.stopped() {
			break
		}
	}
	im.acrossFiles()
	for _, name := range unnamed(im.templates, o.Set) {
		im.fail(Place{}, ErrInvalid, "no template names %s, which is given a value", name)
	}
	if err := im.out.Settings.Validate(); err != nil && len(im.errs) == 0 {
		im.errs = append(im.errs, Problem{Text: err.Error(), Err: sentinel(err)})
	}
	if len(im.errs) > 0 {
		return nil, im.errs
	}
	return im.out, nil
}

type importer struct {
	o         ImportOptions
	out       *Import
	errs      Problems
	templates []File
	size      int // bytes of the rules
	full      bool
	dropped   int // notes on the file at hand

	// Where entries and lists of settings stand that were read.
	single   map[string]string // files of one kind, by kind
	cipsoAt  map[string]Place
	prefixAt map[netip.Prefix]Place
}

// add takes over a rule.
func (im *importer) add(r ImportedRule) {
	im.size += len(r.Subject) + len(r.Object) + len("  -\n")
	most := cmp.Or(im.o.MaxRules, MaxText)
	switch {
	case im.full:
	case im.size > most:
		im.full = true
		im.fail(r.At, ErrLimit, "the rules have more than %d bytes together", most)
		im.out.Rules = nil
	default:
		im.out.Rules = append(im.out.Rules, r)
	}
}

// stopped says that nothing more is to be read.
func (im *importer) stopped() bool { return im.full || len(im.errs) > MaxProblems }

func (im *importer) fail(at Place, err error, format string, args ...any) {
	if len(im.errs) <= MaxProblems {
		im.errs = append(im.errs, Problem{Place: at, Text: fmt.Sprintf(format, args...), Err: err})
	}
}

// failAll takes over the errors of a reader.
func (im *importer) failAll(err error) bool {
	var ps Problems
	if errors.As(err, &ps) {
		im.errs = append(im.errs, ps...)
	}
	return err != nil
}

// note keeps a note, at most MaxProblems of a code and a file.
func (im *importer) note(at Place, code Code, format string, args ...any) {
	n := 0
	for i := len(im.out.Notes) - 1; i >= 0 && im.out.Notes[i].Place.File == at.File; i-- {
		n++
	}
	if n >= MaxProblems {
		im.dropped++
	} else {
		im.out.Notes = append(im.out.Notes, Problem{Place: at, Code: code, Text: fmt.Sprintf(format, args...)})
	}
}

// file reads one file by its kind.
func (im *importer) file(f File) {
	base, folder := path.Base(f.Name), path.Base(path.Dir(f.Name))
	kind := "rules"
	switch {
	case base == "onlycap" || base == "unconfined":
		kind = base
	case folder == "cipso.d":
		kind = "cipso"
	case folder == "netlabel.d":
		kind = "netlabel"
	}
	dialect := im.o.Dialect
	if kind != "rules" {
		dialect = ""
	} else if dialect == DialectAuto || dialect == "" {
		dialect = Detect(f)
	}
	if dialect != DialectLibsmack && base != "" && (base[0] == '.' || base[len(base)-1] == '~') {
		im.note(Place{File: f.Name}, WarnDialect, "the file is left out, as systemd does with names that begin with a dot or end in ~; libsmack reads it")
		return
	}
	im.out.Files = append(im.out.Files, ImportedFile{f.Name, kind, dialect})
	switch kind {
	case "cipso":
		im.cipso(f)
	case "netlabel":
		im.netlabel(f)
	case "onlycap", "unconfined":
		im.labels(f, kind)
	default:
		im.rules(f, dialect)
	}
}

func (im *importer) rules(f File, dialect Dialect) {
	switch dialect {
	case DialectTizenManifest:
		im.manifest(f)
	case DialectTemplate:
		im.templates = append(im.templates, f)
		rows, errs := expand(f, im.o.Set)
		im.errs = append(im.errs, errs...)
		for _, row := range rows {
			if im.stopped() {
				return
			}
			im.line(Place{File: f.Name, Line: row.number}, []byte(row.text), dialect)
		}
	default:
		im.text(f, dialect)
	}
}

// acrossFiles tells of pairs that more than one file sets.
func (im *importer) acrossFiles() {
	if len(im.out.Files) < 2 {
		return
	}
	type pair struct{ subject, object string }
	seen := map[pair]ImportedRule{}
	for _, r := range im.out.Rules {
		p := pair{r.Subject, r.Object}
		if first, ok := seen[p]; ok && first.At.File != r.At.File && (r.Modify || first.Modify || first.Allow != r.Allow) {
			im.out.Notes = append(im.out.Notes, Problem{
				Place: r.At, Code: WarnDuplicate, Other: first.At,
				Text: fmt.Sprintf("%s %s has a rule at %s too: here files are read by name, libsmack and systemd read them in no defined order", r.Subject, r.Object, first.At),
			})
			if len(im.out.Notes) > 10*MaxProblems {
				return
			}
		}
		seen[p] = r
	}
}

// Detect tells in which dialect a file of rules is written. A file that libsmack
// takes and that has no line systemd leaves out is the same in both, and called
// libsmack's.
func Detect(f File) Dialect {
	body := bytes.TrimLeft(bytes.TrimPrefix(f.Data, []byte("\xef\xbb\xbf")), " \t\r\n")
	switch {
	case bytes.HasPrefix(body, []byte("<")) && (bytes.HasPrefix(body, []byte("<?xml")) || bytes.HasPrefix(body, []byte("<!--")) || bytes.HasPrefix(body, []byte("<manifest"))):
		return DialectTizenManifest
	case isTemplate(body):
		return DialectTemplate
	}
	for row := range bytes.Lines(f.Data) {
		if row[0] == '#' || row[0] == ';' || libsmackRefuses(bytes.TrimSuffix(row, newline)) != "" {
			return DialectSystemd
		}
	}
	return DialectLibsmack
}

// Variables gives the names of the variables of templates, in order.
func Variables(files []File) []string {
	names := map[string]bool{}
	for _, f := range files {
		for row := range bytes.Lines(f.Data) {
			variables(row, func(name string) { names[name] = true })
		}
	}
	return slices.Sorted(maps.Keys(names))
}
