package exchange

import (
	"strings"
	"unicode/utf8"

	"policyd.dev/policyd/enforce/profile"
)

// nomadABI has what the library of nomad's exec2 driver handles: no truncate, so that is not denied.
const nomadABI = 2

// nomadModes are the letters of a mode.
var nomadModes = map[rune]profile.Access{
	'r': readRights,
	'w': profile.FSWriteFile,
	'x': profile.FSExecute,
	'c': makeRights&^profile.FSMakeChar | profile.FSRefer,
}

// nomad reads lines of MODES:PATH. A line may stand in double quotes with a comma after it, as in a job's list.
func (r *report) nomad(files []File, o Options) []*draft {
	s := newSource(files[0])
	if !r.text(s) {
		return nil
	}
	l := &draftLayer{name: "nomad", fs: profile.Handled(profile.FS, nomadABI)}
	seen := map[string]int{}
	for n := 1; n <= len(s.starts); n++ {
		end := len(s.Data)
		if n < len(s.starts) {
			end = s.starts[n]
		}
		line := string(s.Data[s.starts[n-1]:end])
		text := strings.TrimSpace(line)
		if text == "" || strings.HasPrefix(text, "#") {
			continue
		}
		at := spot{file: s, line: n, col: utf8.RuneCountInString(line[:strings.Index(line, text)]) + 1}
		if inner, ok := strings.CutPrefix(text, `"`); ok {
			if text, ok = strings.CutSuffix(strings.TrimSuffix(inner, ","), `"`); !ok || strings.Contains(text, `"`) {
				r.errorf(at, codeSyntax, "a quote that is not closed")
				continue
			}
			at.col++
		}
		r.nomadLine(l, text, at, seen, o.Base)
	}
	if len(l.paths) == 0 && len(r.errors) == 0 {
		r.errorf(s.whole(), codeSyntax, "there is no path in it")
	}
	r.remarkf(s.whole(), "nomad also grants the task's and the allocation's folders, and by default a list of its own (unveil_defaults); they are not here")
	r.remarkf(s.whole(), "nomad handles no truncate, so it is not denied; without it files can be emptied where they cannot be written")
	return []*draft{{name: defaultName, abi: nomadABI, layers: []*draftLayer{l}}}
}

func (r *report) nomadLine(l *draftLayer, text string, at spot, seen map[string]int, base string) {
	modes, path, ok := strings.Cut(text, ":")
	if !ok || modes == "" {
		r.errorf(at, codeBadValue, "%q: want MODES:PATH, as in rx:/bin", clip(text))
		return
	}
	var allow profile.Access
	for i, c := range modes {
		access, known := nomadModes[c]
		if !known || strings.ContainsRune(modes[:i], c) {
			here := at
			here.col += utf8.RuneCountInString(modes[:i])
			r.errorf(here, codeUnknownRight, "mode %q: want each of r, w, x and c at most once", c)
			return
		}
		allow |= access
	}
	here := at
	here.col += utf8.RuneCountInString(modes) + 1
	if strings.Contains(path, "${") {
		r.errorf(here, codeBadPath, "nomad replaces ${...} here: write what it stands for")
		return
	}
	clean, ok := r.literal(here, path, base)
	if !ok {
		return
	}
	if first, twice := seen[clean]; twice {
		r.errorf(here, codeRepeatedKey, "path %s stands twice, first in line %d; nomad keeps only one of them", clip(clean), first)
		return
	}
	seen[clean] = at.line
	l.grant(clean, allow, false)
}
