package smack

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Limits of CIPSO (SMACK_CIPSO_MAXLEVEL, SMACK_CIPSO_MAXCATNUM).
const (
	maxCipsoLevel    = 255
	maxCipsoCategory = 184
)

// Cipso says how a label is written into packets: a level 0..255 and categories
// 1..184.
type Cipso struct {
	Label      string
	Level      int
	Categories []int
}

// Append appends what cipso2 takes: the label, a space, and columns of exactly
// four bytes for the level, the number of categories and each category. Anything
// else the kernel answers with EOVERFLOW (smk_set_cipso).
func (c Cipso) Append(b []byte) []byte {
	b = append(append(b, c.Label...), ' ')
	b = fmt.Appendf(b, "%-4d%-4d", c.Level, len(c.Categories))
	for _, n := range slices.Sorted(slices.Values(c.Categories)) {
		b = fmt.Appendf(b, "%-4d", n)
	}
	return b
}

func (c Cipso) validate() error {
	if err := CheckLabel(c.Label); err != nil {
		return fmt.Errorf("cipso: %w", err)
	}
	if c.Level < 0 || c.Level > maxCipsoLevel {
		return fmt.Errorf("%w: cipso %s: level %d, at most %d", ErrInvalid, c.Label, c.Level, maxCipsoLevel)
	}
	seen := [maxCipsoCategory + 1]bool{}
	for _, n := range c.Categories {
		switch {
		case n == 0:
			return fmt.Errorf("%w: cipso %s: category 0, which the kernel drops without an error", ErrInvalid, c.Label)
		case n < 0 || n > maxCipsoCategory:
			return fmt.Errorf("%w: cipso %s: category %d, at most %d", ErrInvalid, c.Label, n, maxCipsoCategory)
		case seen[n]:
			return fmt.Errorf("%w: cipso %s: category %d twice", ErrInvalid, c.Label, n)
		}
		seen[n] = true
	}
	return nil
}

func checkCipso(list []Cipso) error {
	seen := make(map[string]bool, len(list))
	for _, c := range list {
		if err := c.validate(); err != nil {
			return err
		}
		if seen[c.Label] {
			return fmt.Errorf("%w: cipso names %s twice", ErrInvalid, c.Label)
		}
		seen[c.Label] = true
	}
	return nil
}

// CipsoForm is how a line of cipso.d is written.
type CipsoForm uint8

// The two forms that are in use. Each of the two readers takes one form for
// something else, or refuses it.
const (
	CipsoWords   CipsoForm = iota // libsmack: label, level, categories
	CipsoColumns                  // kernel, so systemd: label, then columns of four bytes: level, count, categories
)

// ReadCipso reads a file of cipso.d, in both forms, line by line. It gives how
// many lines had which form. Comments are lines that begin with '#'. The error is
// [Problems]; the entries are valid.
func ReadCipso(file string, text []byte) (list []Cipso, forms [2]int, err error) {
	return readCipso(file, text, map[string]Place{})
}

// readCipso is ReadCipso, with the places of entries of other files.
func readCipso(file string, text []byte, places map[string]Place) (list []Cipso, forms [2]int, err error) {
	err = eachLine(file, text, func(at Place, row []byte) error {
		c, form, err := parseCipso(row)
		if err != nil {
			return err
		}
		if other, ok := places[c.Label]; ok {
			return fmt.Errorf("%w: %s has an entry at %s already", ErrInvalid, c.Label, other)
		}
		places[c.Label] = at
		forms[form]++
		list = append(list, c)
		return nil
	})
	return list, forms, err
}

// parseCipso reads a line. It has the form of columns when its numbers stand in
// columns of four and the second one counts those behind it.
func parseCipso(row []byte) (Cipso, CipsoForm, error) {
	end := bytes.IndexAny(row, " \t")
	if end < 0 {
		return Cipso{}, 0, fmt.Errorf("%w: no level behind the label", ErrSyntax)
	}
	c := Cipso{Label: string(row[:end])}
	if err := CheckLabel(c.Label); err != nil {
		return c, 0, err
	}
	var numbers []int
	columns := true
	for i := end + 1; i < len(row); {
		if class[row[i]] == classBlank {
			i++
			continue
		}
		word := column(row, i)
		n, err := strconv.Atoi(string(word))
		if err != nil || n < 0 || len(word) > 1 && word[0] == '0' || word[0] == '+' {
			return c, 0, fmt.Errorf("%w: %s is no number of a level or a category", ErrSyntax, quote(string(word)))
		}
		columns = columns && i == end+1+4*len(numbers)
		numbers = append(numbers, n)
		if len(numbers) > maxCipsoCategory+2 {
			return c, 0, fmt.Errorf("%w: more than %d categories", ErrInvalid, maxCipsoCategory)
		}
		i += len(word)
	}
	if len(numbers) == 0 {
		return c, 0, fmt.Errorf("%w: no level behind the label", ErrSyntax)
	}
	c.Level = numbers[0]
	form := CipsoWords
	if columns && len(numbers) > 1 && numbers[1] == len(numbers)-2 {
		c.Categories, form = numbers[2:], CipsoColumns
	} else {
		c.Categories = numbers[1:]
	}
	return c, form, c.validate()
}

// libsmack gives the entry as a line of libsmack's cipso.d.
func (c Cipso) libsmack() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %d", c.Label, c.Level)
	for _, n := range c.Categories {
		fmt.Fprintf(&b, " %d", n)
	}
	return b.String()
}
