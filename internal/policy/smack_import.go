package policy

import (
	"bytes"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/internal/errs"
	"policyd.dev/policyd/smack"
)

// importedLayer is the name of the layer that an import makes.
const importedLayer = "imported"

// ImportedSmack is a SmackPolicy made of files in other formats.
type ImportedSmack struct {
	Text     []byte // the document
	Import   *smack.Import
	Policy   *smack.Policy  // what the document compiles to
	Warnings smack.Problems // on the files, with places in them
}

// ImportSmack makes a SmackPolicy of files in other formats. The error is
// [smack.Problems] for what cannot be read, all of it, and an [*Errors] for a bad name.
// The document is read again and compared with what was imported before it is
// given, so it says the same.
func ImportSmack(files []smack.File, o smack.ImportOptions, name string) (*ImportedSmack, error) {
	o.MaxRules = MaxFileBytes
	im, err := smack.ImportFiles(files, o)
	if err != nil {
		return nil, err
	}
	b := smack.NewBuilder(name)
	if err := im.AddTo(b.Layer(importedLayer, smack.AllAccess)); err != nil {
		return nil, err
	}
	want, warnings, err := b.Build()
	if err != nil {
		return nil, err
	}
	want.Settings = im.Settings
	text, err := ToYAML(&apiv1.Resource{Kind: &apiv1.Resource_SmackPolicy{SmackPolicy: importedDocument(im, name)}})
	if err != nil {
		return nil, err
	}
	if len(text) > MaxFileBytes {
		return nil, fmt.Errorf("%w: the document of all that is imported would have %d bytes, at most %d; import in parts, or write templates", errs.ErrTooLarge, len(text), MaxFileBytes)
	}
	docs, err := Parse("", text)
	if err != nil {
		return nil, err
	}
	got, err := CompileSmack(docs[0].Resource.GetSmackPolicy(), docs[0])
	if err != nil {
		return nil, err
	}
	if !bytes.Equal(got.Policy.Encode(), want.Encode()) {
		return nil, errors.New("the document of an import says something else than the files")
	}
	return &ImportedSmack{Text: text, Import: im, Policy: want, Warnings: slices.Concat(im.Notes, warnings)}, nil
}

// importedDocument makes the document. Each file is a part of the text of rules;
// rules that the text cannot hold, since a line that begins with # is a comment,
// stand in the list. They name other pairs, so the order between them does not count.
func importedDocument(im *smack.Import, name string) *apiv1.SmackPolicy {
	layer := &apiv1.SmackLayer{Name: importedLayer}
	var text strings.Builder
	file := ""
	for _, r := range im.Rules {
		line, ok := r.Text()
		if !ok {
			rule := &apiv1.SmackRule{Subject: r.Subject, Object: r.Object}
			if r.Modify {
				rule.Allow, rule.Deny = r.Allow.String(), r.Deny.String()
			} else {
				rule.Access = r.Allow.String()
			}
			layer.List = append(layer.List, rule)
			continue
		}
		if r.At.File != file {
			file = r.At.File
			fmt.Fprintf(&text, "# from %q\n", path.Join(path.Base(path.Dir(file)), path.Base(file)))
		}
		text.WriteString(line + "\n")
	}
	layer.Rules = text.String()
	return &apiv1.SmackPolicy{
		Metadata: &apiv1.Metadata{Name: name},
		Spec:     &apiv1.SmackSpec{Layers: []*apiv1.SmackLayer{layer}, Settings: SmackSettings(&im.Settings)},
	}
}
