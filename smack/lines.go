package smack

import (
	"bytes"
	"errors"
	"fmt"
)

// eachLine calls f for each line of a file of settings, without the blanks around
// it, but for blank lines and lines that begin with '#'. What f refuses becomes a
// [Problem] at the line; all are given, at most [MaxProblems].
func eachLine(file string, text []byte, f func(at Place, row []byte) error) error {
	var errs Problems
	fail := func(line, column int, err error) {
		errs = append(errs, Problem{Place: Place{file, line, column}, Text: err.Error(), Err: sentinel(err)})
	}
	if len(text) > MaxText {
		fail(0, 0, fmt.Errorf("%w: %d bytes, at most %d", ErrLimit, len(text), MaxText))
		return errs
	}
	if skip, name := byteOrderMark(text); skip > 0 {
		fail(1, 1, fmt.Errorf("%w: the text begins with a byte order mark (%s)", ErrSyntax, name))
		text = text[skip:]
	}
	number := 0
	for row := range bytes.Lines(text) {
		number++
		if len(errs) >= MaxProblems {
			fail(number, 0, fmt.Errorf("%w: more than %d errors: the text is not read further", ErrSyntax, MaxProblems))
			break
		}
		if len(row) > MaxLine+1 {
			fail(number, MaxLine+1, fmt.Errorf("%w: the line has more than %d bytes", ErrLimit, MaxLine))
			continue
		}
		body := bytes.TrimRight(row, " \t\r\n")
		start := skipBlanks(body, 0)
		if start == len(body) || body[start] == '#' {
			continue
		}
		if i := bytes.IndexFunc(body, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }); i >= 0 {
			fail(number, i+1, fmt.Errorf("%w: %s in a line", ErrSyntax, byteName(body[i])))
			continue
		}
		if err := f(Place{file, number, start + 1}, body[start:]); err != nil {
			fail(number, start+1, err)
		}
	}
	if len(errs) > 0 {
		return errs
	}
	return nil
}

// sentinel gives the error of this package that err wraps.
func sentinel(err error) error {
	for _, s := range []error{ErrLabel, ErrAccess, ErrSyntax, ErrLimit, ErrInvalid} {
		if errors.Is(err, s) {
			return s
		}
	}
	return err
}

// ReadLabels reads a file that is a list of labels, parted by blanks or by lines,
// as onlycap and unconfined are. Lines that begin with '#' are comments. The
// error is [Problems].
func ReadLabels(file string, text []byte) ([]string, error) {
	var list []string
	places := map[string]Place{}
	err := eachLine(file, text, func(at Place, row []byte) error {
		for _, word := range bytes.Fields(row) {
			label := string(word)
			if err := CheckLabel(label); err != nil {
				return err
			}
			if other, ok := places[label]; ok {
				return fmt.Errorf("%w: %s stands at %s already", ErrInvalid, label, other)
			}
			places[label] = at
			list = append(list, label)
			if len(list) > maxEntries {
				return fmt.Errorf("%w: more than %d labels", ErrLimit, maxEntries)
			}
		}
		return nil
	})
	return list, err
}
