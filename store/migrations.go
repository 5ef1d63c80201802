package store

import (
	"errors"
	"fmt"
	"os"

	bolt "go.etcd.io/bbolt"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
)

// migration brings a store to a schema from the one before it. Each one MUST come with a test on a stored file that the
// code of the schema before wrote: testdata/schema-N.db, by go test -run TestGolden . -args -write-golden BEFORE
// schemaVersion is raised.
type migration struct {
	schema uint32
	what   string
	run    func(*wtx) error
}

// migrations are in ascending order without gaps, the last one to schemaVersion.
var migrations = []migration{
	{2, "versions are found by digest without reading the history", migrateDigests},
	{3, "what policyd has put into smackfs is kept", func(t *wtx) error {
		_, err := t.tx.CreateBucket(bucketKeySmack)
		return err
	}},
	{4, "policies of a fleet's channel are kept with the bundle they came in", func(t *wtx) error {
		if _, err := t.tx.CreateBucket(bucketKeyFleet); err != nil {
			return err
		}
		_, err := t.tx.CreateBucket(bucketKeyFleetDocuments)
		return err
	}},
}

// migrateDigests lists the versions of schema 1 by digest.
func migrateDigests(t *wtx) error {
	if _, err := t.tx.CreateBucket(bucketKeyDigests); err != nil {
		return err
	}
	for _, kind := range []string{KindLandlockPolicy, KindFragment} {
		infos := kindBucket(t.tx, bucketKeyInfos, kind)
		if infos == nil {
			continue
		}
		err := infos.ForEach(func(k, v []byte) error {
			info := &apiv1.VersionInfo{}
			if err := unsealMessage(k, v, info); err != nil {
				return err
			}
			return t.addDigest(info)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// migrate brings the store from a schema to schemaVersion, all steps in one transaction, after a copy of the store was
// put beside it.
func (s *Store) migrate(from uint32) error {
	if err := s.keepCopy(fmt.Sprintf("%s.schema-%d", s.path, from)); err != nil {
		return fmt.Errorf("copy of the store as it was: %w", err)
	}
	tx, err := s.db.Begin(true)
	if err != nil {
		return classify(err)
	}
	defer tx.Rollback()
	t := &wtx{tx: tx, now: s.options.Now()}
	for _, m := range migrations {
		if m.schema <= from {
			continue
		}
		if err := m.run(t); err != nil {
			return fmt.Errorf("schema %d (%s): %w", m.schema, m.what, err)
		}
		if err := t.putSchema(m.schema); err != nil {
			return err
		}
		attributes := map[string]string{"schema": fmt.Sprint(m.schema)}
		if err := t.log(event(EventMigrate, Actor{Name: localActor, Message: m.what}, "store", attributes)); err != nil {
			return err
		}
	}
	if err := tx.Commit(); err != nil {
		return classify(err)
	}
	return nil
}

// keepCopy writes a copy of the store to path, whole or not at all. A copy that is there already stays: it is of an
// earlier attempt, and so the same.
func (s *Store) keepCopy(path string) error {
	if _, err := os.Stat(path); err == nil {
		return nil
	}
	temp, err := tempBeside(path)
	if err != nil {
		return classify(err)
	}
	defer os.Remove(temp)
	f, err := os.OpenFile(temp, os.O_WRONLY, 0)
	if err != nil {
		return classify(err)
	}
	err = s.view(func(tx *bolt.Tx) error {
		_, err := tx.WriteTo(f)
		return err
	})
	if err == nil {
		err = f.Sync()
	}
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return classify(err)
	}
	if err := os.Link(temp, path); err != nil && !errors.Is(err, os.ErrExist) {
		return classify(err)
	}
	return syncDir(path)
}
