package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"unicode"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

// Format is a form of output, the value of -o.
type Format string

// The forms of output.
const (
	Table Format = "table"
	Wide  Format = "wide"
	JSON  Format = "json"
	YAML  Format = "yaml"
	Name  Format = "name"
)

// ParseFormat checks the value of -o against what a command can do; "" is the
// first of them.
func ParseFormat(value string, can ...Format) (Format, error) {
	if value == "" {
		return can[0], nil
	}
	if f := Format(value); slices.Contains(can, f) {
		return f, nil
	}
	var names []string
	for _, f := range can {
		names = append(names, string(f))
	}
	return "", Usage(fmt.Errorf("-o %s: this command can do %s", value, strings.Join(names, ", ")))
}

// marshal writes fields by their JSON names of the API, those with zero values
// too, so that a script finds the same fields always.
var marshal = protojson.MarshalOptions{EmitDefaultValues: true}

// CompactJSON encodes a message on one line. Equal messages give equal bytes
// (protojson itself puts in random spaces).
func CompactJSON(m proto.Message) ([]byte, error) {
	raw, err := marshal.Marshal(m)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	if err := json.Compact(&b, raw); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// WriteMessage writes a message as JSON (indented by two spaces) or YAML.
func WriteMessage(w io.Writer, f Format, m proto.Message) error {
	raw, err := CompactJSON(m)
	if err != nil {
		return err
	}
	return writeJSON(w, f, raw)
}

// WriteValue is WriteMessage for a value of encoding/json.
func WriteValue(w io.Writer, f Format, v any) error {
	raw, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return writeJSON(w, f, raw)
}

func writeJSON(w io.Writer, f Format, raw []byte) error {
	if f == YAML {
		return writeYAML(w, raw)
	}
	var b bytes.Buffer
	if err := json.Indent(&b, raw, "", "  "); err != nil {
		return err
	}
	b.WriteByte('\n')
	_, err := w.Write(b.Bytes())
	return err
}

// Rows is a table for people. Cells hold no control characters when printed.
type Rows struct {
	w *tabwriter.Writer
}

// NewRows begins a table with its column titles; without any there is no line
// for them.
func NewRows(w io.Writer, titles ...string) *Rows {
	r := &Rows{tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)}
	if len(titles) > 0 {
		r.Add(titles...)
	}
	return r
}

// Add appends a row.
func (r *Rows) Add(cells ...string) {
	for i, c := range cells {
		c = Clean(c)
		if c == "" {
			c = "-"
		}
		if i > 0 {
			_, _ = io.WriteString(r.w, "\t")
		}
		_, _ = io.WriteString(r.w, c)
	}
	_, _ = io.WriteString(r.w, "\n")
}

// Flush writes the table.
func (r *Rows) Flush() error { return r.w.Flush() }

// Clean makes text from elsewhere (command lines, messages) safe for a
// terminal: control characters, and those that turn the direction of writing or
// take no room, become their Go escapes.
func Clean(s string) string {
	if !strings.ContainsFunc(s, isControl) {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		if isControl(r) {
			q := fmt.Sprintf("%+q", r)
			b.WriteString(q[1 : len(q)-1])
			continue
		}
		b.WriteRune(r)
	}
	return b.String()
}

func isControl(r rune) bool { return unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp) }
