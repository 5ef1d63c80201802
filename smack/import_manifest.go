package smack

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"slices"
)

const (
	maxManifest = 4 << 20 // bytes
	maxDepth    = 32      // elements one in another
)

// manifest reads a Tizen package's manifest:
//
//	<manifest>
//	  <define>
//	    <domain name="D"/>
//	    <request><smack request="O" type="rw"/></request>          the rule D O rw
//	    <permit><smack permit="S" to="L" type="w"/></permit>       the rule S L w, without to: S D w
//	  </define>
//	  <request><domain name="D"/></request>
//	  <assign><filesystem path="/p" label="L" exec_label="E" type="transmutable"/></assign>
//	</manifest>
func (im *importer) manifest(f File) {
	if len(f.Data) > maxManifest {
		im.fail(Place{File: f.Name}, ErrLimit, "%d bytes, at most %d", len(f.Data), maxManifest)
		return
	}
	m := manifest{im: im, file: f.Name, dec: xml.NewDecoder(bytes.NewReader(f.Data))}
	for !im.stopped() {
		line, column := m.dec.InputPos()
		token, err := m.dec.Token()
		if errors.Is(err, io.EOF) {
			if len(m.path) == 0 && !m.root {
				im.fail(Place{File: f.Name}, ErrSyntax, "no element <manifest>")
			}
			return
		}
		at := Place{f.Name, line, column}
		if err != nil {
			im.fail(at, ErrSyntax, "%v", err)
			return
		}
		switch t := token.(type) {
		case xml.StartElement:
			if !m.start(at, t) {
				return
			}
		case xml.EndElement:
			m.end()
		case xml.CharData:
			if body := bytes.TrimPrefix(t, []byte("\xef\xbb\xbf")); len(bytes.TrimSpace(body)) > 0 {
				im.fail(at, ErrSyntax, "text between elements: %s", quote(string(bytes.TrimSpace(body))))
			}
		case xml.Directive:
			im.fail(at, ErrSyntax, "a document type or another directive is not read")
			return
		}
	}
}

// manifest is the state of reading one.
type manifest struct {
	im      *importer
	file    string
	dec     *xml.Decoder
	path    []string
	root    bool
	domain  string          // of the define that is open
	waiting []manifestEntry // rules of the define that is open
}

// manifestEntry is a rule whose domain may not be known yet: "" stands for it.
type manifestEntry struct {
	at              Place
	subject, object string
	access          string
}

func (m *manifest) start(at Place, e xml.StartElement) bool {
	m.path = append(m.path, e.Name.Local)
	if len(m.path) > maxDepth {
		m.im.fail(at, ErrLimit, "more than %d elements one in another", maxDepth)
		return false
	}
	m.attributes(at, e)
	attr := func(name string) string {
		for _, a := range e.Attr {
			if a.Name.Local == name && a.Name.Space == "" {
				return a.Value
			}
		}
		return ""
	}
	is := func(path ...string) bool { return slices.Equal(m.path, path) }
	switch {
	case is("manifest"):
		if m.root {
			m.im.fail(at, ErrSyntax, "a second outermost element")
			return false
		}
		m.root = true
	case len(m.path) == 1:
		m.im.fail(at, ErrSyntax, "the outermost element is <%s>, not <manifest>", e.Name.Local)
		return false
	case is("manifest", "define"), is("manifest", "request"), is("manifest", "assign"),
		is("manifest", "define", "request"), is("manifest", "define", "permit"), is("manifest", "define", "provide"):
	case is("manifest", "define", "domain"):
		if m.domain != "" {
			m.im.fail(at, ErrSyntax, "a second domain in one <define>")
		}
		m.domain = attr("name")
		m.label(at, "name", m.domain)
	case is("manifest", "define", "request", "smack"):
		if attr("permit") != "" || attr("to") != "" {
			m.im.fail(at, ErrSyntax, "permit or to in a <request>, which has request and type")
		}
		m.waiting = append(m.waiting, manifestEntry{at, "", m.label(at, "request", attr("request")), attr("type")})
	case is("manifest", "define", "permit", "smack"):
		if attr("request") != "" {
			m.im.fail(at, ErrSyntax, "request in a <permit>, which has permit, to and type")
		}
		to := attr("to")
		if to != "" {
			m.label(at, "to", to)
		}
		m.waiting = append(m.waiting, manifestEntry{at, m.label(at, "permit", attr("permit")), to, attr("type")})
	case is("manifest", "define", "provide", "label"):
		m.label(at, "name", attr("name"))
	case is("manifest", "request", "domain"):
		m.im.out.Domains = append(m.im.out.Domains, m.label(at, "name", attr("name")))
	case is("manifest", "assign", "filesystem"):
		m.assign(at, attr)
	case slices.Contains(ruleElements, e.Name.Local):
		m.im.fail(at, ErrSyntax, "<%s> stands in <%s>, where it is not known what it means", e.Name.Local, m.path[len(m.path)-2])
	default:
		m.im.note(at, WarnDialect, "the element <%s> says nothing about rules and is left out", e.Name.Local)
	}
	return true
}

// ruleElements are those that say something of rules or labels where they belong. Elsewhere they
// are not left out: what they ask for would be missing.
var ruleElements = []string{"define", "domain", "request", "permit", "provide", "smack", "filesystem", "assign"}

// attributes refuses what other readers of XML refuse or take for something else.
func (m *manifest) attributes(at Place, e xml.StartElement) {
	seen := map[xml.Name]bool{}
	for _, a := range e.Attr {
		name := a.Name.Local
		if a.Name.Space != "" {
			name = a.Name.Space + ":" + name
		}
		switch {
		case seen[a.Name]:
			m.im.fail(at, ErrSyntax, "<%s> has the attribute %s twice", e.Name.Local, name)
		case a.Name.Space != "" && a.Name.Space != "xmlns" && slices.Contains(ruleElements, e.Name.Local):
			m.im.fail(at, ErrSyntax, "<%s> has the attribute %s of another namespace", e.Name.Local, a.Name.Local)
		}
		seen[a.Name] = true
	}
}

// label checks the label in an attribute and gives it.
func (m *manifest) label(at Place, attribute, label string) string {
	if err := CheckLabel(label); err != nil {
		m.im.fail(at, ErrLabel, "%s: %v", attribute, err)
	}
	return label
}

func (m *manifest) assign(at Place, attr func(string) string) {
	a := Assignment{At: at, Path: attr("path"), Label: attr("label"), ExecLabel: attr("exec_label"), Transmute: attr("type") == "transmutable"}
	if a.Path == "" {
		m.im.fail(at, ErrSyntax, "a file without a path")
	}
	if t := attr("type"); t != "" && !a.Transmute {
		m.im.fail(at, ErrSyntax, "type %s: a file can be transmutable", quote(t))
	}
	if a.Label != "" {
		m.label(at, "label", a.Label)
	}
	if a.ExecLabel != "" {
		m.label(at, "exec_label", a.ExecLabel)
	}
	m.im.out.Assignments = append(m.im.out.Assignments, a)
}

// end closes an element. A define that ends gives its rules their domain.
func (m *manifest) end() {
	if slices.Equal(m.path, []string{"manifest", "define"}) {
		for _, w := range m.waiting {
			m.rule(w)
		}
		m.domain, m.waiting = "", nil
	}
	m.path = m.path[:len(m.path)-1]
}

func (m *manifest) rule(w manifestEntry) {
	if w.subject == "" || w.object == "" {
		if m.domain == "" {
			m.im.fail(w.at, ErrSyntax, "a rule of a domain in a <define> without <domain>")
			return
		}
	}
	if w.subject == "" {
		w.subject = m.domain
	}
	if w.object == "" {
		w.object = m.domain
	}
	a, err := ParseAccess(w.access)
	if err != nil {
		m.im.fail(w.at, ErrAccess, "type: %v", err)
		return
	}
	m.im.add(ImportedRule{At: w.at, Subject: w.subject, Object: w.object, Allow: a})
}
