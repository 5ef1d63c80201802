package smack

import "fmt"

// fault says why a line of rule text is refused.
type fault uint8

const (
	faultNone    fault = iota
	faultByte          // a byte no label can hold, at the offset
	faultDash          // a label begins with '-'
	faultLong          // a label is too long
	faultAccess        // a byte that is no access letter, at the offset
	faultFew           // columns are missing
	faultMany          // a fifth column, at the offset
	faultComment       // a comment behind a rule
)

// line is a line of rule text, taken apart. Offsets count from the line's
// beginning.
type line struct {
	subject, object []byte
	allow, deny     Access // deny has the bit threeColumns for a rule of 3 columns
	start           int    // of the first column
	access          int    // of the third column
	columns         int
}

// scanRule takes a line apart that is neither blank nor a comment. On a fault it
// gives the offset of the byte to blame. It allocates nothing.
func scanRule(text []byte) (l line, f fault, at int) {
	l.start = skipBlanks(text, 0)
	var end int
	if end, f, at = scanLabel(text, l.start); f != faultNone {
		return l, f, at
	}
	l.subject, l.columns = text[l.start:end], 1
	at = skipBlanks(text, end)
	if at == len(text) {
		return l, faultFew, at
	}
	start := at
	if end, f, at = scanLabel(text, start); f != faultNone {
		return l, f, at
	}
	l.object, l.columns = text[start:end], 2
	l.access = skipBlanks(text, end)
	if l.access == len(text) {
		return l, faultFew, l.access
	}
	if l.allow, at, f = scanLetters(text, l.access); f != faultNone {
		return l, f, at
	}
	l.columns = 3
	at = skipBlanks(text, at)
	if at == len(text) {
		l.deny = AllAccess&^l.allow | threeColumns
		return l, faultNone, 0
	}
	if l.deny, at, f = scanLetters(text, at); f != faultNone {
		return l, f, at
	}
	l.columns = 4
	at = skipBlanks(text, at)
	if at == len(text) {
		return l, faultNone, 0
	}
	if text[at] == '#' {
		return l, faultComment, at
	}
	return l, faultMany, at
}

func skipBlanks(text []byte, i int) int {
	for i < len(text) && class[text[i]] == classBlank {
		i++
	}
	return i
}

// scanLabel scans the label at start, up to a blank or the end.
func scanLabel(text []byte, start int) (end int, f fault, at int) {
	i := start
	for i < len(text) && class[text[i]] == classLabel {
		i++
	}
	switch {
	case i < len(text) && class[text[i]] != classBlank:
		return i, faultByte, i
	case text[start] == '-':
		return i, faultDash, start
	case i-start > MaxLabel:
		return i, faultLong, start
	}
	return i, faultNone, 0
}

// scanLetters scans the access letters at start, up to a blank or the end.
func scanLetters(text []byte, start int) (a Access, end int, f fault) {
	i := start
	for ; i < len(text); i++ {
		bit := accessOf[text[i]]
		if bit == 0 && text[i] != '-' {
			if class[text[i]] == classBlank {
				break
			}
			if i == start && text[i] == '#' {
				return a, i, faultComment
			}
			return a, i, faultAccess
		}
		a |= bit
	}
	return a, i, faultNone
}

// explain gives the error for a line that scanRule refused.
func explain(text []byte, l line, f fault, at int) (string, error) {
	switch f {
	case faultByte, faultDash, faultLong:
		start := at
		for start > 0 && class[text[start-1]] == classLabel {
			start--
		}
		err := &LabelError{Label: string(column(text, start)), Offset: at - start}
		if f == faultLong {
			err.Offset = -1
		}
		return err.Error(), ErrLabel
	case faultAccess:
		start := at
		for start > 0 && class[text[start-1]] != classBlank {
			start--
		}
		err := &AccessError{Text: string(column(text, start)), Offset: at - start}
		return err.Error(), ErrAccess
	case faultFew:
		return fmt.Sprintf("%d of 3 columns: a rule is SUBJECT OBJECT ACCESS, or SUBJECT OBJECT ALLOW DENY, on one line", l.columns), ErrSyntax
	case faultMany:
		return fmt.Sprintf("a fifth column, beginning with %s: a rule has 3 or 4", byteName(text[at])), ErrSyntax
	case faultComment:
		return "'#' (0x23) behind a rule: a comment stands on a line of its own, because # is legal in labels", ErrSyntax
	}
	panic("smack: a fault without words")
}

// column gives the text from start to the next blank.
func column(text []byte, start int) []byte {
	end := start
	for end < len(text) && class[text[end]] != classBlank {
		end++
	}
	return text[start:end]
}
