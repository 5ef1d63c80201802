package smack

import "fmt"

// Access is a set of access letters: a bit for each of "rwxatlb", in this
// order from the lowest.
type Access uint8

// The letters of a rule (smk_perm_from_str in the kernel's smackfs.c).
const (
	Read      Access = 1 << iota // r
	Write                        // w; implies Lock when the kernel decides
	Execute                      // x
	Append                       // a
	Transmute                    // t: what is made in a directory takes the directory's label
	Lock                         // l
	Bringup                      // b: accesses allowed by the rule are logged

	// AllAccess is every letter.
	AllAccess Access = 1<<iota - 1
)

const letters = "rwxatlb"

// String gives the letters in the kernel's order, "-" for none.
func (a Access) String() string { return accessText[a&AllAccess] }

// Append appends the text of [Access.String] to b.
func (a Access) Append(b []byte) []byte { return append(b, accessText[a&AllAccess]...) }

// accessText is the text of every set of letters: it is written for each of many rules. All are parts of one text, so
// that a program which needs none of them starts as fast.
var accessText = func() (t [AllAccess + 1]string) {
	all := []byte("-")
	var end [AllAccess + 1]int
	end[0] = len(all)
	for a := 1; a < len(t); a++ {
		for i := range len(letters) {
			if a&(1<<i) != 0 {
				all = append(all, letters[i])
			}
		}
		end[a] = len(all)
	}
	text := string(all)
	t[0] = text[:end[0]]
	for a := 1; a < len(t); a++ {
		t[a] = text[end[a-1]:end[a]]
	}
	return t
}()

// closed adds what the letters imply when the kernel decides (smk_access_entry:
// write implies lock).
func (a Access) closed() Access {
	if a&Write != 0 {
		a |= Lock
	}
	return a
}

// accessOf maps a byte to its letter; '-' and all that is no letter map to 0.
var accessOf = func() (t [256]Access) {
	for i := range len(letters) {
		t[letters[i]] = 1 << i
		t[letters[i]-'a'+'A'] = 1 << i
	}
	return t
}()

// AccessError says which byte of a list of access letters is not one. It wraps
// [ErrAccess].
type AccessError struct {
	Text   string
	Offset int // of the byte in Text; len(Text) when the text is empty
}

func (e *AccessError) Error() string {
	if e.Text == "" {
		return "no access letters: write \"-\" for no access"
	}
	kernel, _ := scanAccess([]byte(e.Text[:e.Offset]))
	return fmt.Sprintf("access %s: %s is not one of the letters %s or -; the kernel would stop there without an error and take %q",
		quote(e.Text), byteName(e.Text[e.Offset]), letters, kernel.String())
}

// Unwrap gives ErrAccess.
func (e *AccessError) Unwrap() error { return ErrAccess }

// ParseAccess reads access letters: upper or lower case, in any order, repeated
// or not, '-' anywhere and without meaning. Everything else is an
// [*AccessError], where the kernel stops reading without an error.
func ParseAccess(s string) (Access, error) {
	var a Access
	for i := range len(s) {
		bit := accessOf[s[i]]
		if bit == 0 && s[i] != '-' {
			return 0, &AccessError{Text: s, Offset: i}
		}
		a |= bit
	}
	if s == "" {
		return 0, &AccessError{}
	}
	return a, nil
}

// scanAccess is ParseAccess on bytes, without allocation: bad is the offset of
// the first byte that is no letter, len(tok) when there is none.
func scanAccess(tok []byte) (a Access, bad int) {
	for i, c := range tok {
		bit := accessOf[c]
		if bit == 0 && c != '-' {
			return a, i
		}
		a |= bit
	}
	return a, len(tok)
}
