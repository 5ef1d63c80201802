package store

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"

	bolt "go.etcd.io/bbolt"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/internal/errs"
)

// maxProblems is how many problems Check lists.
const maxProblems = 100

// Check verifies everything in the store while it is in use: pages, the seal of every record, the chain of the log, and
// that heads, versions, contents, tags and pins agree. It returns the problems (none: all is well), the number of log
// entries and the hash of the newest, hex. Whoever keeps that hash elsewhere can tell that a log was rewritten whole.
func (s *Store) Check(ctx context.Context) (problems []string, entries uint64, head string, err error) {
	for {
		err = s.view(func(tx *bolt.Tx) error {
			if err := s.verifyPages(tx); err != nil {
				return err // bbolt must not walk a damaged tree
			}
			problems, entries, head, err = checkTx(ctx, tx)
			return err
		})
		if !errors.Is(err, errOvertaken) || ctx.Err() != nil {
			break
		}
	}
	if errors.Is(err, errs.ErrStoreCorrupt) {
		problems, err = append(problems, err.Error()), nil
	}
	return problems, entries, head, err
}

// errOvertaken: commits have written over the meta page a read transaction began with, before it was read here.
var errOvertaken = errors.New("overtaken by commits")

// verifyPages verifies the tree that a read transaction sees; its pages are not written over as long as it is open.
func (s *Store) verifyPages(tx *bolt.Tx) error {
	info, err := s.file.Stat()
	if err != nil {
		return classify(err)
	}
	metas, err := readMetas(s.file)
	for i := 0; err != nil && i < 10; i++ { // a meta page may be read while it is written
		metas, err = readMetas(s.file)
	}
	if err != nil {
		return err
	}
	for _, m := range metas {
		if m.id == uint64(tx.ID()) {
			return verifyTree(s.file, info.Size(), m)
		}
	}
	return errOvertaken
}

// checker collects problems of one transaction.
type checker struct {
	ctx      context.Context
	tx       *bolt.Tx
	schema   uint32
	problems []string
	more     int
}

func (c *checker) problem(format string, a ...any) {
	if len(c.problems) == maxProblems {
		c.more++
		return
	}
	c.problems = append(c.problems, fmt.Sprintf(format, a...))
}

func checkTx(ctx context.Context, tx *bolt.Tx) (problems []string, entries uint64, head string, err error) {
	c := &checker{ctx: ctx, tx: tx}
	if c.schema, err = readSchema(tx); err != nil {
		return nil, 0, "", err
	}
	if err := checkBuckets(tx, c.schema); err != nil {
		return nil, 0, "", err
	}
	if tx.Bucket(bucketKeyMeta).Get(keyID) == nil {
		c.problem("the store has no id")
	}
	if err := c.seals(); err != nil {
		return nil, 0, "", err
	}
	if entries, head, err = c.chain(); err != nil {
		return nil, 0, "", err
	}
	for _, step := range []func() error{c.documents, c.pins, c.requests, c.profiles, c.sandboxes, c.smack, c.bindings, c.fleet} {
		if err := step(); err != nil {
			return nil, 0, "", err
		}
	}
	if c.more > 0 {
		c.problems = append(c.problems, fmt.Sprintf("and %d more problems", c.more))
	}
	return c.problems, entries, head, nil
}

// seals verifies the seal of every record, and that there is nothing beside the layout.
func (c *checker) seals() error {
	return c.tx.ForEach(func(name []byte, b *bolt.Bucket) error {
		for _, top := range topBuckets {
			if bytes.Equal(top.key, name) && top.since <= c.schema {
				return c.sealsIn(string(name), b, top.byKind)
			}
		}
		c.problem("bucket %q is not part of the layout", name)
		return nil
	})
}

func (c *checker) sealsIn(path string, b *bolt.Bucket, byKind bool) error {
	return b.ForEach(func(k, v []byte) error {
		if err := c.ctx.Err(); err != nil {
			return err
		}
		switch {
		case byKind && v == nil:
			if !isKind(string(k)) {
				c.problem("%s: kind %q is not known", path, k)
			}
			return c.sealsIn(path+"/"+string(k), b.Bucket(k), false)
		case v == nil || byKind:
			c.problem("%s: %q is not part of the layout", path, k)
		default:
			if _, err := unseal(k, v); err != nil {
				c.problem("%s: %v", path, err)
			}
		}
		return nil
	})
}

// chain verifies the log: numbers without gaps from 1, every hash, and that it ends where its head says.
func (c *checker) chain() (entries uint64, head string, err error) {
	seq, hash, err := logHead(c.tx)
	if err != nil {
		return 0, "", err
	}
	previous := make([]byte, 32)
	err = c.tx.Bucket(bucketKeyLog).ForEach(func(k, v []byte) error {
		if err := c.ctx.Err(); err != nil {
			return err
		}
		entries++
		e := &apiv1.Event{}
		if err := unsealMessage(k, v, e); err != nil {
			c.problem("log entry %d: %v", entries, err)
			previous = nil
			return nil
		}
		if len(k) != 8 || binary.BigEndian.Uint64(k) != entries || e.GetSeq() != entries {
			c.problem("log: entry %d is missing or in another place (found number %d at %x)", entries, e.GetSeq(), k)
			if len(k) == 8 {
				entries = binary.BigEndian.Uint64(k)
			}
		} else if previous != nil && !bytes.Equal(e.GetPreviousHash(), previous) {
			c.problem("log entry %d does not follow the entry before it: its hash is another", entries)
		}
		if !bytes.Equal(e.GetHash(), hashEvent(e)) {
			c.problem("log entry %d was changed: it does not match its hash", entries)
		}
		previous = e.GetHash()
		return nil
	})
	if err != nil {
		return 0, "", err
	}
	if entries != seq || previous != nil && !bytes.Equal(previous, hash) {
		c.problem("log: its head is entry %d with hash %x, but the last entry is %d with hash %x", seq, hash, entries, previous)
	}
	return entries, hex.EncodeToString(hash), nil
}

// CheckFile is Check for a store that no policyd holds, with bbolt's own check of its pages. Nothing is written; a
// store of an older schema is checked as it is. err is for files that cannot be checked (errs.ErrStoreLocked,
// errs.ErrStoreNewer, errs.ErrNotFound); damage is told as problems.
func CheckFile(ctx context.Context, path string) (problems []string, entries uint64, head string, err error) {
	s, schema, err := open(path, Options{ReadOnly: true})
	if err == nil {
		err = s.view(func(tx *bolt.Tx) error { return checkBuckets(tx, schema) })
		defer s.Close()
	}
	if errors.Is(err, errs.ErrStoreCorrupt) {
		return []string{err.Error()}, 0, "", nil
	}
	if errors.Is(err, errs.ErrNotFound) {
		err = fmt.Errorf("%w: there is no store %s", errs.ErrNotFound, path)
	}
	if err != nil {
		return nil, 0, "", err
	}
	err = s.view(func(tx *bolt.Tx) error {
		for p := range tx.Check() {
			if len(problems) < maxProblems {
				problems = append(problems, "bbolt: "+p.Error())
			}
		}
		return nil
	})
	if err != nil || len(problems) > 0 {
		return problems, 0, "", err
	}
	return s.Check(ctx)
}
