package agent

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"

	clientv3 "go.etcd.io/etcd/client/v3"

	"policyd.dev/policyd/internal/errs"
	"policyd.dev/policyd/internal/fleet"
	"policyd.dev/policyd/internal/fleet/fetch"
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
		// The manifest first: how much is read is signed. Where it is, is not.
		m, err := fleet.OpenManifest(blob.Manifest, a.cfg.Trust, a.cfg.Fleet)
		if err != nil {
			return nil, nil, err
		}
		if m.Bundle != digest {
			return nil, nil, fmt.Errorf("%w: the manifest is of bundle %s, not of %s", errs.ErrTampered, m.Bundle, digest)
		}
		if content, err = fetch.Reference(ctx, a.cfg.HTTP, blob.URL, m.Size); errors.As(err, new(*fetch.AwayError)) {
			return nil, nil, &awayError{err}
		} else if err != nil {
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
