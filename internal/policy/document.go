package policy

import (
	apiv1 "policyd.dev/policyd/api/policyd/v1"
)

// Document is one checked document.
type Document struct {
	Resource  *apiv1.Resource
	Kind      string // one of Kinds
	Name      string // metadata.name
	Source    string // text of this document alone; "" when it came as a message
	File      string // name of the file for messages; "" when it came as a message
	FirstLine int    // line of File where Source begins, from 1

	origin origin
}

// Parse reads all documents of a file. The error is an [*Errors] that holds
// every error of the file; no document is returned then.
func Parse(file string, src []byte) ([]*Document, error) { return parse(file, src, false) }

// ParseBundled is Parse for the documents of a fleet's bundle, which carries the
// shipped fragments (std/...) that its policies include.
func ParseBundled(file string, src []byte) ([]*Document, error) { return parse(file, src, true) }

// parse is Parse; shipped allows the names that are reserved.
func parse(file string, src []byte, shipped bool) ([]*Document, error) {
	e := &Errors{}
	var docs []*Document
	seen := make(map[string]uint32)
	for _, seg := range splitFile(file, src, e) {
		root := seg.load(e)
		if root == nil {
			continue
		}
		r := reporter{origin{seg, root}, e}
		before := len(e.findings) + e.more
		res := (&decoder{r}).document(root)
		if res == nil {
			continue
		}
		if len(e.findings)+e.more == before { // else what was not read would be missing once more
			r.resource(res)
		}
		d := newDocument(res, r.origin)
		r.names(d, seen, shipped)
		docs = append(docs, d)
	}
	if len(docs) == 0 && len(e.findings) == 0 {
		e.add(&apiv1.Finding{Code: codeSyntax, File: file, Message: "there is no document in it"})
	}
	if err := e.err(); err != nil {
		return nil, err
	}
	return docs, nil
}

// names checks the document's name against the rest of the file and the shipped ones.
func (r *reporter) names(d *Document, seen map[string]uint32, shipped bool) {
	metadata := (*place)(nil).key("metadata")
	p := metadata.key("name")
	if d.Name == "" {
		return
	}
	if IsReserved(d.Name) && !shipped {
		r.addf(codeReservedName, &p, "names std/... belong to the fragments shipped with policyd")
	}
	key := d.Kind + " " + d.Name
	if first, ok := seen[key]; ok {
		r.addf(codeDuplicateName, &p, "%s is in this file twice, first in line %d", key, first)
		return
	}
	seen[key] = r.finding("", &p, "").GetLine()
}

// FromResource checks a message as Parse checks a text; errors name fields
// only.
func FromResource(res *apiv1.Resource) (*Document, error) {
	e := &Errors{}
	r := reporter{errors: e}
	r.resource(res)
	d := newDocument(res, origin{})
	r.names(d, map[string]uint32{}, false)
	if err := e.err(); err != nil {
		return nil, err
	}
	return d, nil
}

func newDocument(res *apiv1.Resource, o origin) *Document {
	d := &Document{Resource: res, Name: MetadataOf(res).GetName(), origin: o}
	d.Kind, _ = contentOf(res)
	if o.seg != nil {
		d.Source, d.File, d.FirstLine = o.seg.text, o.seg.file, o.seg.firstLine
	}
	return d
}

// KindsOf gives the kinds that the documents of a file say they are, also of a
// file with errors; what cannot be read as YAML has none.
func KindsOf(src []byte) []string {
	var kinds []string
	for _, seg := range splitFile("", src, &Errors{}) {
		root := seg.load(&Errors{})
		if root == nil {
			continue
		}
		for i := 0; i+1 < len(root.Content); i += 2 {
			if root.Content[i].Value == "kind" {
				kinds = append(kinds, root.Content[i+1].Value)
			}
		}
	}
	return kinds
}
