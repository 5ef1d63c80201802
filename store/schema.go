package store

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"

	bolt "go.etcd.io/bbolt"

	"policyd.dev/policyd/internal/errs"
)

// schemaVersion is the version of the layout in the package comment that this code writes.
const schemaVersion = 4

// Names of the layout in the package comment.
var (
	bucketKeyMeta           = []byte("meta")             // schema, id, log_head
	bucketKeyHeads          = []byte("heads")            // newest version by kind and name
	bucketKeyInfos          = []byte("infos")            // what is known of each version
	bucketKeyContents       = []byte("contents")         // documents of each version
	bucketKeyTags           = []byte("tags")             // names of versions
	bucketKeyDigests        = []byte("digests")          // versions by the digest of their content
	bucketKeyPinned         = []byte("pinned")           // contents of included fragments
	bucketKeyPinRefs        = []byte("pin_refs")         // which versions hold a pinned content
	bucketKeyRequests       = []byte("requests")         // answers by request id
	bucketKeyRequestsByTime = []byte("requests_by_time") // when they may be forgotten
	bucketKeyProfiles       = []byte("profiles")         // cache of compiled profiles
	bucketKeyProfilesOrder  = []byte("profiles_order")   // which of them is the oldest
	bucketKeySandboxes      = []byte("sandboxes")        // sandboxes by id
	bucketKeySmack          = []byte("smack")            // the host's smackfs
	bucketKeyFleet          = []byte("fleet")            // the fleet's channel, its bundles
	bucketKeyFleetDocuments = []byte("fleet_documents")  // what the bundle in force holds
	bucketKeyLog            = []byte("log")              // the chained log

	keySchema  = []byte("schema")
	keyID      = []byte("id")
	keyLogHead = []byte("log_head")
)

// topBuckets are the buckets of the layout: whether they hold one bucket a kind, and the schema that brought them.
var topBuckets = []struct {
	key    []byte
	byKind bool
	since  uint32
}{
	{bucketKeyMeta, false, 1},
	{bucketKeyHeads, true, 1},
	{bucketKeyInfos, true, 1},
	{bucketKeyContents, true, 1},
	{bucketKeyTags, true, 1},
	{bucketKeyPinned, false, 1},
	{bucketKeyPinRefs, false, 1},
	{bucketKeyRequests, false, 1},
	{bucketKeyRequestsByTime, false, 1},
	{bucketKeyProfiles, false, 1},
	{bucketKeyProfilesOrder, false, 1},
	{bucketKeySandboxes, false, 1},
	{bucketKeyLog, false, 1},
	{bucketKeyDigests, true, 2},
	{bucketKeySmack, false, 3},
	{bucketKeyFleet, false, 4},
	{bucketKeyFleetDocuments, false, 4},
}

// initSchema makes the layout in an empty database.
func initSchema(t *wtx) error {
	for _, b := range topBuckets {
		if _, err := t.tx.CreateBucket(b.key); err != nil {
			return err
		}
	}
	id := make([]byte, 16)
	rand.Read(id)
	if err := t.putSchema(schemaVersion); err != nil {
		return err
	}
	return t.put(t.bucket(bucketKeyMeta), keyID, id)
}

func (t *wtx) putSchema(version uint32) error {
	return t.put(t.bucket(bucketKeyMeta), keySchema, binary.BigEndian.AppendUint32(nil, version))
}

// readSchema tells the schema version of a database. Errors wrap errs.ErrStoreCorrupt, or errs.ErrStoreNewer when this
// code does not know the schema.
func readSchema(tx *bolt.Tx) (uint32, error) {
	meta := tx.Bucket(bucketKeyMeta)
	if meta == nil {
		return 0, fmt.Errorf("%w: the file is a bbolt database of something else: it has no bucket %q", errs.ErrStoreCorrupt, bucketKeyMeta)
	}
	value := meta.Get(keySchema)
	if value == nil {
		return 0, fmt.Errorf("%w: the file has no schema version", errs.ErrStoreCorrupt)
	}
	payload, err := unseal(keySchema, value)
	if err != nil {
		return 0, err
	}
	if len(payload) != 4 {
		return 0, fmt.Errorf("%w: schema version has %d bytes", errs.ErrStoreCorrupt, len(payload))
	}
	version := binary.BigEndian.Uint32(payload)
	if version > schemaVersion {
		return 0, fmt.Errorf("%w: its schema is %d, this policyd knows up to %d", errs.ErrStoreNewer, version, schemaVersion)
	}
	if version == 0 {
		return 0, fmt.Errorf("%w: schema version is 0", errs.ErrStoreCorrupt)
	}
	return version, nil
}

// checkBuckets tells whether the buckets of a schema are there, so that the rest of the code need not ask.
func checkBuckets(tx *bolt.Tx, schema uint32) error {
	for _, b := range topBuckets {
		if b.since <= schema && tx.Bucket(b.key) == nil {
			return corrupt("bucket %q is missing", b.key)
		}
	}
	return nil
}
