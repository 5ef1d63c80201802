package fetch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"policyd.dev/policyd/internal/errs"
	"policyd.dev/policyd/internal/fleet"
)

// Longest is how long the bytes of one bundle may take.
const Longest = 5 * time.Minute

// AwayError is a bundle that could not be read now, which says nothing of the bundle.
type AwayError struct{ Err error }

func (e *AwayError) Error() string { return e.Err.Error() }
func (e *AwayError) Unwrap() error { return e.Err }

func away(err error) error { return &AwayError{err} }

const maxRedirects = 5

// stay refuses to be led away from https: a reference must not become a request
// in clear, or one to a service of this host that trusts whoever reaches it.
func stay(req *http.Request, via []*http.Request) error {
	if len(via) > maxRedirects {
		return fmt.Errorf("more than %d redirects", maxRedirects)
	}
	if req.URL.Scheme != "https" {
		return fmt.Errorf("a redirect to %s://, want https://", req.URL.Scheme)
	}
	return nil
}

// Reference reads the size bytes that a blob's URL names: file:///path, or
// https://host/path by c. What is not there now is an [AwayError]; errs.ErrInvalid
// and errs.ErrTooLarge are of the reference itself, errs.ErrTampered of a file of
// another size. The bytes are not verified.
func Reference(ctx context.Context, c *http.Client, place string, size int) ([]byte, error) {
	if err := fleet.ValidURL(place); err != nil {
		return nil, err
	}
	if size < 0 || size > fleet.MaxBundleBytes {
		return nil, fmt.Errorf("%w: a bundle of %d bytes, at most %d", errs.ErrTooLarge, size, fleet.MaxBundleBytes)
	}
	u, err := url.Parse(place)
	if err != nil {
		return nil, fmt.Errorf("%w: %q: %w", errs.ErrInvalid, place, err)
	}
	ctx, cancel := context.WithTimeout(ctx, Longest)
	defer cancel()
	var from io.ReadCloser
	if u.Scheme == "file" {
		from, err = openRegular(u.Path, int64(size))
	} else {
		from, err = get(ctx, c, place)
	}
	switch {
	case errors.Is(err, errs.ErrTampered):
		return nil, err
	case err != nil:
		return nil, away(err)
	}
	defer from.Close()
	content, err := io.ReadAll(io.LimitReader(from, int64(size)+1))
	if err != nil {
		return nil, away(err)
	}
	return content, nil
}

func get(ctx context.Context, c *http.Client, place string) (io.ReadCloser, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, place, http.NoBody)
	if err != nil {
		return nil, err
	}
	within := *c
	within.CheckRedirect = stay
	r, err := within.Do(req)
	if err != nil {
		return nil, err
	}
	if r.StatusCode != http.StatusOK {
		r.Body.Close()
		return nil, fmt.Errorf("%s: %s", place, r.Status)
	}
	return r.Body, nil
}

// openRegular opens a file that holds size bytes. Opening a device may do
// something, a FIFO or a file of the kernel's (which says that it has no bytes,
// and is regular all the same) would keep the reader waiting for ever.
func openRegular(path string, size int64) (*os.File, error) {
	info, err := os.Stat(path)
	if err == nil {
		err = holds(info, size)
	}
	if err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, err
	}
	if info, err = f.Stat(); err == nil { // it may be another by now
		err = holds(info, size)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

func holds(info os.FileInfo, size int64) error {
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%s is not a regular file", info.Name())
	}
	if info.Size() != size {
		return fmt.Errorf("%w: %s has %d bytes, the bundle has %d", errs.ErrTampered, info.Name(), info.Size(), size)
	}
	return nil
}
