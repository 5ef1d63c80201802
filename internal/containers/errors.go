package containers

import "errors"

var (
	// ErrInvalid: a record, or the id or root of one, that cannot be.
	ErrInvalid = errors.New("invalid container record")
	// ErrNone: there is no record of the container, or the runtime does not know it.
	ErrNone = errors.New("no such container")
	// ErrLauncher: what is to be the launcher in containers would not run there.
	ErrLauncher = errors.New("no container could start it")
)
