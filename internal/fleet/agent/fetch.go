package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"policyd.dev/policyd/internal/errs"
	"policyd.dev/policyd/internal/fleet"
)

// awayError is a bundle that could not be fetched now, which says nothing of the bundle.
type awayError struct{ err error }

func (e *awayError) Error() string {
	return "etcd, or where the bundle is, does not answer now: " + e.err.Error()
}
func (e *awayError) Unwrap() error { return e.err }

// connection is the client, an awayError while there is none.
func (a *Agent) connection() (*clientv3.Client, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.client == nil {
		return nil, &awayError{errors.New("etcd was not reached yet")}
	}
	return a.client, nil
}

// fetch gives a verified bundle with its bytes: the one that this host has kept, else etcd's. Where the bytes are elsewhere
// the blob that it gives holds them all the same.
func (a *Agent) fetch(ctx context.Context, digest string) ([]byte, *fleet.Manifest, *fleet.Bundle, error) {
	raw, err := a.cfg.Host.Blob(digest)
	if err == nil {
		if m, b, err := a.open(ctx, &raw, digest); err == nil {
			return raw, m, b, nil
		}
		// Keys may have changed since; etcd may have it with other signatures.
	} else if !errors.Is(err, errs.ErrNotFound) {
		return nil, nil, nil, err
	}
	if !sleep(ctx, rand.N(a.cfg.Timing.Spread+1)) {
		return nil, nil, nil, ctx.Err()
	}
	client, err := a.connection()
	if err != nil {
		return nil, nil, nil, err
	}
	asked, cancel := context.WithTimeout(ctx, a.cfg.Timing.Request)
	defer cancel()
	// Blobs are never changed: an answer of any member will do, and spares the leader.
	r, err := client.Get(asked, a.layout.Blob(digest), clientv3.WithSerializable())
	if err == nil && len(r.Kvs) == 0 {
		r, err = client.Get(asked, a.layout.Blob(digest))
	}
	if err != nil {
		return nil, nil, nil, &awayError{err}
	}
	if len(r.Kvs) == 0 {
		return nil, nil, nil, fmt.Errorf("%w: bundle %s is not in etcd", errs.ErrNotFound, digest)
	}
	raw = r.Kvs[0].Value
	m, b, err := a.open(ctx, &raw, digest)
	return raw, m, b, err
}

// open verifies a blob, after its bytes were fetched where it names them only; raw then holds them.
func (a *Agent) open(ctx context.Context, raw *[]byte, digest string) (*fleet.Manifest, *fleet.Bundle, error) {
	blob, err := fleet.DecodeBlob(*raw)
	if err != nil {
		return nil, nil, err
	}
	var content []byte
	if blob.URL != "" {
		// The manifest first: nobody but those with the content keys says where this host fetches from, and how much.
		m, err := fleet.OpenManifest(blob.Manifest, a.cfg.Trust, a.cfg.Fleet)
		if err != nil {
			return nil, nil, err
		}
		if content, err = a.download(ctx, blob.URL, m.Size); err != nil {
			return nil, nil, err
		}
	}
	m, b, err := blob.Open(a.cfg.Trust, a.cfg.Fleet, digest, content)
	if err != nil || blob.URL == "" {
		return m, b, err
	}
	*raw, err = fleet.EncodeBlob(&fleet.Blob{Manifest: blob.Manifest, Bundle: content})
	return m, b, err
}

// downloadTime is how long the bytes of one bundle may take.
const downloadTime = 5 * time.Minute

// download reads exactly size bytes.
func (a *Agent) download(ctx context.Context, place string, size int) ([]byte, error) {
	if size > fleet.MaxBundleBytes {
		return nil, fmt.Errorf("%w: a bundle of %d bytes, at most %d", errs.ErrTooLarge, size, fleet.MaxBundleBytes)
	}
	u, err := url.Parse(place)
	if err != nil {
		return nil, fmt.Errorf("%w: %q: %w", errs.ErrInvalid, place, err)
	}
	ctx, cancel := context.WithTimeout(ctx, downloadTime)
	defer cancel()
	var from io.ReadCloser
	switch u.Scheme {
	case "file":
		if from, err = openRegular(u.Path); err != nil {
			return nil, &awayError{err}
		}
	case "https":
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, place, nil)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", errs.ErrInvalid, err)
		}
		r, err := a.cfg.HTTP.Do(req)
		if err != nil {
			return nil, &awayError{err}
		}
		if from = r.Body; r.StatusCode != http.StatusOK {
			from.Close()
			return nil, &awayError{fmt.Errorf("%s: %s", place, r.Status)}
		}
	default:
		return nil, fmt.Errorf("%w: %q: want file:///path or https://host/path", errs.ErrInvalid, place)
	}
	defer from.Close()
	content, err := io.ReadAll(io.LimitReader(from, int64(size)+1))
	if err != nil {
		return nil, &awayError{err}
	}
	return content, nil
}

// openRegular opens a file that is one: a FIFO would keep the agent waiting.
func openRegular(path string) (*os.File, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file", path)
	}
	return os.Open(path)
}
