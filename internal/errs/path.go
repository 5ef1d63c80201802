package errs

// PathError is what is wrong with the path of one rule, as it stands in the profile. Its text is that of Err, which
// names the path.
type PathError struct {
	Path string
	Err  error
}

func (e *PathError) Error() string { return e.Err.Error() }

// Unwrap gives Err.
func (e *PathError) Unwrap() error { return e.Err }

// Paths gives every PathError in the tree of an error, in order.
func Paths(err error) []*PathError {
	var out []*PathError
	var walk func(error)
	walk = func(err error) {
		if p, ok := err.(*PathError); ok { //nolint:errorlint // the tree is walked here, node by node
			out = append(out, p)
			return
		}
		switch e := err.(type) { //nolint:errorlint // as above
		case interface{ Unwrap() error }:
			walk(e.Unwrap())
		case interface{ Unwrap() []error }:
			for _, one := range e.Unwrap() {
				walk(one)
			}
		}
	}
	walk(err)
	return out
}
