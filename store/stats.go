package store

import (
	"encoding/hex"

	bolt "go.etcd.io/bbolt"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
)

// Stats tells what the store holds and its size. Deleted documents are not counted, their versions are.
func (s *Store) Stats() (*apiv1.StoreStatus, error) {
	u, err := s.Usage()
	if err != nil {
		return nil, err
	}
	return u.Status, nil
}

// Usage is what [Store.Usage] tells.
type Usage struct {
	Status *apiv1.StoreStatus
	// Documents that are not deleted, by kind; every kind is there.
	Documents map[string]uint64
	// Commits is the number of the last transaction that wrote. It grows with each, from start to start.
	Commits uint64
}

// Commits is [Usage.Commits], without counting anything else.
func (s *Store) Commits() (n uint64, err error) {
	err = s.view(func(tx *bolt.Tx) error {
		n = uint64(tx.ID())
		return nil
	})
	return n, err
}

// Usage is Stats with what is counted by kind. It looks at the head of every document and at the key of every version.
func (s *Store) Usage() (*Usage, error) {
	st := &apiv1.StoreStatus{Path: s.path}
	u := &Usage{Status: st, Documents: map[string]uint64{}}
	err := s.view(func(tx *bolt.Tx) error {
		u.Commits = uint64(tx.ID()) // of a reader: that of the last writer, in the page it reads from
		schema, err := readSchema(tx)
		if err != nil {
			return err
		}
		st.Schema = schema
		st.SizeBytes = uint64(tx.Size())
		pages := s.db.Stats()
		st.FreeBytes = uint64((pages.FreePageN + pages.PendingPageN) * s.db.Info().PageSize)
		seq, hash, err := logHead(tx)
		if err != nil {
			return err
		}
		st.LogEntries, st.LogHead = seq, hex.EncodeToString(hash)
		for _, kind := range Kinds() {
			u.Documents[kind] = 0
			if heads := kindBucket(tx, bucketKeyHeads, kind); heads != nil {
				err := heads.ForEach(func(k, v []byte) error {
					head := &apiv1.VersionInfo{}
					if err := unsealMessage(k, v, head); err != nil {
						return err
					}
					if alive(head) {
						u.Documents[kind]++
					}
					return nil
				})
				if err != nil {
					return err
				}
			}
			if infos := kindBucket(tx, bucketKeyInfos, kind); infos != nil {
				c := infos.Cursor()
				for k, _ := c.First(); k != nil; k, _ = c.Next() {
					st.Versions++
				}
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	st.Policies, st.Fragments = u.Documents[KindLandlockPolicy], u.Documents[KindFragment]
	return u, nil
}
