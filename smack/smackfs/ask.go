package smackfs

import (
	"errors"
	"fmt"
	"io"

	"golang.org/x/sys/unix"

	"policyd.dev/policyd/internal/errs"
	"policyd.dev/policyd/smack"
)

// Answer is what the kernel says of a query.
type Answer struct {
	Allowed bool
	// Unknown are labels of the query that the kernel has never seen, when it was denied: it denies those whatever the
	// rules say, even what it allows to every label.
	Unknown []string
}

// Ask asks the kernel's global rules (access2). It knows nothing of load-self2 and capabilities, and cannot ask for
// nothing: an empty query is an error.
func Ask(fs FS, q smack.Query) (Answer, error) {
	for _, l := range []string{q.Subject, q.Object} {
		if err := smack.CheckLabel(l); err != nil {
			return Answer{}, fmt.Errorf("%w: %w", errs.ErrInvalid, err)
		}
	}
	if q.Access&smack.AllAccess == 0 {
		return Answer{}, fmt.Errorf("%w: no access to ask for", errs.ErrInvalid)
	}
	allowed, err := ask(fs, q)
	if err != nil || allowed {
		return Answer{Allowed: allowed}, err
	}
	a := Answer{}
	for _, l := range []string{q.Subject, q.Object} {
		known, err := known(fs, l)
		if err != nil {
			return a, err
		}
		if !known && (len(a.Unknown) == 0 || a.Unknown[0] != l) {
			a.Unknown = append(a.Unknown, l)
		}
	}
	return a, nil
}

// known says whether the kernel has a label: only such a one may do everything to the label @, which every kernel has.
// The subject * may do nothing, and is known.
func known(fs FS, label string) (bool, error) {
	if smack.BuiltIn(label) {
		return true, nil
	}
	return ask(fs, smack.Query{Subject: label, Object: smack.Web, Access: smack.Read})
}

func ask(fs FS, q smack.Query) (bool, error) {
	f, err := fs.Open(fileAccess2, unix.O_RDWR) // one question an open
	if err != nil {
		return false, explain(fs, err)
	}
	defer f.Close()
	var buf [2*maxLabel + 16]byte
	line := smack.Rule(q).Append(buf[:0])
	if _, err := f.Write(line); err != nil {
		return false, fmt.Errorf("ask for %q: %w", line, err)
	}
	var answer [4]byte
	n, err := f.Read(answer[:])
	if err != nil && !errors.Is(err, io.EOF) {
		return false, err
	}
	if n != 2 || (answer[0] != '0' && answer[0] != '1') {
		return false, fmt.Errorf("access2 answers %q", answer[:n])
	}
	return answer[0] == '1', nil
}
