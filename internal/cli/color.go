package cli

import (
	"fmt"
	"io"
	"os"

	"golang.org/x/term"
)

// Style is a colour by its meaning.
type Style string

// SGR codes of ECMA-48.
const (
	Bold   Style = "1"
	Red    Style = "31"
	Green  Style = "32"
	Yellow Style = "33"
	Cyan   Style = "36"
)

// Painter colours text, or leaves it alone.
type Painter bool

// NewPainter decides by the value of --color: "auto" colours on a terminal
// only, and not with $NO_COLOR (no-color.org) or TERM=dumb.
func NewPainter(mode string, w io.Writer) (Painter, error) {
	switch mode {
	case "always":
		return true, nil
	case "never":
		return false, nil
	case "auto", "":
		if os.Getenv("NO_COLOR") != "" || os.Getenv("TERM") == "dumb" {
			return false, nil
		}
		return Painter(IsTerminal(w)), nil
	}
	return false, Usage(fmt.Errorf("--color %s: want auto, always or never", mode))
}

// Paint colours s.
func (p Painter) Paint(s string, style Style) string {
	if !p || s == "" {
		return s
	}
	return "\x1b[" + string(style) + "m" + s + "\x1b[0m"
}

// IsTerminal tells whether a reader or writer is a terminal.
func IsTerminal(v any) bool {
	f, ok := v.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}
