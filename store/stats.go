package store

import (
	"encoding/hex"

	bolt "go.etcd.io/bbolt"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
)

// Stats tells what the store holds and its size. Deleted documents are not counted, their versions are.
func (s *Store) Stats() (*apiv1.StoreStatus, error) {
	st := &apiv1.StoreStatus{Path: s.path}
	err := s.view(func(tx *bolt.Tx) error {
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
			n := map[string]*uint64{KindLandlockPolicy: &st.Policies, KindFragment: &st.Fragments}[kind]
			if heads := kindBucket(tx, bucketKeyHeads, kind); heads != nil {
				err := heads.ForEach(func(k, v []byte) error {
					head := &apiv1.VersionInfo{}
					if err := unsealMessage(k, v, head); err != nil {
						return err
					}
					if n != nil && alive(head) {
						*n++
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
	return st, nil
}
