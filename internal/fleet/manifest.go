package fleet

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/mod/sumdb/note"

	"policyd.dev/policyd/internal/errs"
)

// TypeManifest is the first line of a manifest.
const TypeManifest = "policyd.dev/fleet/manifest/v1"

// Manifest says what a bundle is and everything that is in it. The content keys
// sign it.
type Manifest struct {
	Fleet   string
	Bundle  string // digest of the encoded bundle
	Size    int    // of the encoded bundle, bytes
	Created time.Time
	Message string
	Local   []string // Bundle.Local
	Docs    []Entry  // in the bundle's order
}

// Entry is a document of a bundle, without its text.
type Entry struct{ Kind, Name, Digest string }

const maxMessage = 1024

// NewManifest describes an encoded bundle.
func NewManifest(fleet string, raw []byte, created time.Time, message string) (*Manifest, error) {
	b, err := Decode(raw)
	if err != nil {
		return nil, err
	}
	m := &Manifest{Fleet: fleet, Bundle: Digest(raw), Size: len(raw), Created: created.UTC().Truncate(time.Second), Message: message, Local: b.Local, Docs: b.entries()}
	return m, m.check()
}

func (b *Bundle) entries() []Entry {
	var out []Entry
	for _, d := range b.Docs {
		out = append(out, Entry{d.Kind, d.Name, d.Digest})
	}
	return out
}

func (m *Manifest) check() error {
	if err := ValidName(m.Fleet); err != nil {
		return fmt.Errorf("fleet: %w", err)
	}
	if err := ValidDigest(m.Bundle); err != nil {
		return err
	}
	if len(m.Message) > maxMessage {
		return fmt.Errorf("%w: a message of %d bytes, at most %d", errs.ErrTooLarge, len(m.Message), maxMessage)
	}
	if n := len(m.Text()); n > maxSignedText {
		return fmt.Errorf("%w: a manifest of %d bytes, at most %d", errs.ErrTooLarge, n, maxSignedText)
	}
	return nil
}

// maxSignedText leaves room for signatures below the note package's limit of a million bytes.
const maxSignedText = 900_000

// Text is the text that is signed.
func (m *Manifest) Text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\nfleet %s\nbundle %s\nsize %d\ncreated %s\nmessage %s\n",
		TypeManifest, m.Fleet, m.Bundle, m.Size, timeText(m.Created), strconv.QuoteToASCII(m.Message))
	for _, name := range m.Local {
		fmt.Fprintf(&b, "local %s\n", name)
	}
	for _, d := range m.Docs {
		fmt.Fprintf(&b, "document %s %s %s\n", d.Kind, d.Name, d.Digest)
	}
	return b.String()
}

// SignManifest signs a manifest with content keys.
func SignManifest(m *Manifest, signers ...note.Signer) ([]byte, error) {
	if err := m.check(); err != nil {
		return nil, err
	}
	return sign(m.Text(), signers)
}

// OpenManifest checks a signed manifest of a fleet: errs.ErrTampered,
// errs.ErrWrongType, errs.ErrTooFewSignatures, errs.ErrWrongFleet, errs.ErrInvalid.
func OpenManifest(signed []byte, trust Trust, fleet string) (*Manifest, error) {
	text, err := trust.Content.open(signed, TypeManifest)
	if err != nil {
		return nil, fmt.Errorf("manifest: %w", err)
	}
	m, err := parseManifest(text)
	if err != nil {
		return nil, err
	}
	if m.Fleet != fleet {
		return nil, fmt.Errorf("manifest: %w: it is of %s, this is %s", errs.ErrWrongFleet, m.Fleet, fleet)
	}
	return m, nil
}

func parseManifest(text string) (*Manifest, error) {
	f := &fields{rest: strings.TrimPrefix(text, TypeManifest+"\n"), what: "manifest"}
	m := &Manifest{Fleet: f.value("fleet"), Bundle: f.value("bundle"), Size: int(f.number("size")), Created: f.time("created"), Message: f.quoted("message")}
	for f.more("local") {
		m.Local = append(m.Local, f.value("local"))
	}
	for f.more("document") {
		words := strings.Split(f.value("document"), " ")
		if len(words) != 3 {
			f.fail("want document KIND NAME DIGEST")
			break
		}
		m.Docs = append(m.Docs, Entry{words[0], words[1], words[2]})
	}
	if f.err != nil {
		return nil, f.err
	}
	if m.Text() != text {
		return nil, fmt.Errorf("%w: manifest: not in its one form", errs.ErrInvalid)
	}
	return m, m.check()
}

// Match checks encoded bundle bytes against the manifest: digest, size, and that
// the documents are those listed, no more and no fewer.
func (m *Manifest) Match(raw []byte) (*Bundle, error) {
	if len(raw) != m.Size || Digest(raw) != m.Bundle {
		return nil, fmt.Errorf("%w: the bundle's bytes are not those of its manifest", errs.ErrTampered)
	}
	b, err := Decode(raw)
	if err != nil {
		return nil, err
	}
	if !slices.Equal(b.entries(), m.Docs) || !slices.Equal(b.Local, m.Local) {
		return nil, fmt.Errorf("%w: the manifest does not list what is in the bundle", errs.ErrTampered)
	}
	return b, nil
}
