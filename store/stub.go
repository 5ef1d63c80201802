package store

import (
	"context"
	"errors"
	"io"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
)

var errStub = errors.New("not implemented")

type Store struct{}

func Open(path string, o Options) (*Store, error) { return nil, errStub }
func (s *Store) Close() error                     { return errStub }
func (s *Store) Apply(ctx context.Context, a Actor, puts []Put) ([]Applied, error) {
	return nil, errStub
}

// Get: errs.ErrDeleted for the bare name of a deleted document; name@N still answers, with Info.Deleted set.
func (s *Store) Get(kind, ref string) (*apiv1.Version, error)            { return nil, errStub }
func (s *Store) Info(kind, ref string) (*apiv1.VersionInfo, error)       { return nil, errStub }
func (s *Store) FragmentByDigest(digest string) (*apiv1.Fragment, error) { return nil, errStub }
func (s *Store) List(kind string, f Filter) ([]*apiv1.VersionInfo, string, error) {
	return nil, "", errStub
}

// History lists newest first; before 0: from the newest.
func (s *Store) History(kind, name string, before uint64, limit int) ([]*apiv1.VersionInfo, error) {
	return nil, errStub
}
func (s *Store) Rollback(ctx context.Context, a Actor, kind, name string, to uint64, expect *uint64) (*apiv1.VersionInfo, error) {
	return nil, errStub
}
func (s *Store) SetTag(ctx context.Context, a Actor, kind, ref, tag string, remove bool) (*apiv1.VersionInfo, error) {
	return nil, errStub
}
func (s *Store) Delete(ctx context.Context, a Actor, kind, name string, expect *uint64, purge bool) error {
	return errStub
}

// Recall/Remember are for requests whose effect is not one of the store's own methods (a start). nil, nil: not remembered.
func (s *Store) Recall(a Actor, method string) ([]byte, error) { return nil, errStub }
func (s *Store) Remember(ctx context.Context, a Actor, method string, answer []byte) error {
	return errStub
}
func (s *Store) CachedProfile(key string) ([]byte, bool)       { return nil, false }
func (s *Store) CacheProfile(key string, profile []byte) error { return errStub }
func (s *Store) PutSandboxes(ctx context.Context, sandboxes []*apiv1.Sandbox, events []*apiv1.Event) error {
	return errStub
}

// Sandbox: by id or a unique beginning of it.
func (s *Store) Sandbox(id string) (*apiv1.Sandbox, error) { return nil, errStub }
func (s *Store) Sandboxes(f SandboxFilter) ([]*apiv1.Sandbox, string, error) {
	return nil, "", errStub
}

// DeleteSandbox forgets records; ids that are not there are no error.
func (s *Store) DeleteSandbox(ctx context.Context, ids ...string) error { return errStub }

// Append: time, type, actor, subject, message, attributes, request_id come from the caller; seq and hashes are filled in.
func (s *Store) Append(ctx context.Context, events ...*apiv1.Event) error { return errStub }
func (s *Store) Events(from uint64, limit int) ([]*apiv1.Event, error)    { return nil, errStub }
func (s *Store) LastSeq() (uint64, error)                                 { return 0, errStub }
func (s *Store) Watch() (<-chan struct{}, func())                         { return nil, nil }
func (s *Store) Check(ctx context.Context) (problems []string, entries uint64, head string, err error) {
	return nil, 0, "", errStub
}

// Sizer: a writer given to Backup that has SetSize is told the size before the first byte.
type Sizer interface{ SetSize(bytes int64) }

func (s *Store) Backup(w io.Writer) (int64, error)                               { return 0, errStub }
func (s *Store) Stats() (*apiv1.StoreStatus, error)                              { return nil, errStub }
func (s *Store) GC(ctx context.Context, a Actor) (removed int, err error)        { return 0, errStub }
func Restore(backup io.Reader, path string, force bool) (kept string, err error) { return "", errStub }
func Compact(path string) (before, after int64, err error)                       { return 0, 0, errStub }
func CheckFile(ctx context.Context, path string) (problems []string, entries uint64, head string, err error) {
	return nil, 0, "", errStub
}

type Ref struct {
	Name        string
	Number      uint64
	Tag, Digest string
}

func ParseRef(kind, s string) (Ref, error) { return Ref{}, errStub }
func CheckName(kind, name string) error    { return errStub }
func CheckTag(tag string) error            { return errStub }
