package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	bolt "go.etcd.io/bbolt"

	"policyd.dev/policyd/internal/errs"
)

type sizedBuffer struct {
	bytes.Buffer
	size int64
}

func (b *sizedBuffer) SetSize(n int64) { b.size = n }

func TestBackupAndRestore(t *testing.T) {
	path := filepath.Join(t.TempDir(), "policyd.db")
	s := openAt(t, path, Options{NoSync: true})
	mustApply(t, s, policy("web", "one"), fragment("local/base", "one"))
	stop := make(chan struct{})
	var writers sync.WaitGroup
	writers.Go(func() { // the store is in use
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			if _, err := s.Apply(context.Background(), alice, []Put{policy("busy", fmt.Sprint(i))}); err != nil {
				t.Error(err)
				return
			}
		}
	})
	var backups []*sizedBuffer
	for range 10 {
		b := &sizedBuffer{}
		n, err := s.Backup(b)
		if err != nil || n != int64(b.Len()) || n != b.size {
			t.Fatalf("backup: %d bytes of %d, said %d, %v", n, b.Len(), b.size, err)
		}
		backups = append(backups, b)
		if problems, _, _, err := s.Check(t.Context()); err != nil || len(problems) > 0 {
			t.Errorf("check while in use: %v %v", problems, err)
		}
	}
	close(stop)
	writers.Wait()
	mustApply(t, s, policy("web", "after the backup"))
	if _, err := Restore(bytesReader(backups[0].Bytes()), path, true); !errors.Is(err, errs.ErrStoreLocked) {
		t.Errorf("restore while held: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := Restore(bytesReader(backups[0].Bytes()), path, false); !errors.Is(err, errs.ErrExists) {
		t.Errorf("restore over a store: %v", err)
	}
	for i, b := range backups {
		fresh := filepath.Join(t.TempDir(), "policyd.db")
		if kept, err := Restore(b, fresh, false); err != nil || kept != "" {
			t.Fatalf("backup %d: %q %v", i, kept, err)
		}
		wholeFile(t, fresh)
		if i == 0 {
			data, _ := os.ReadFile(fresh)
			b.Write(data)
		}
	}
	before, _ := os.ReadFile(path)
	if err := os.Chmod(path, 0o640); err != nil {
		t.Fatal(err)
	}
	kept, err := Restore(backups[0], path, true)
	if err != nil {
		t.Fatal(err)
	}
	if old, err := os.ReadFile(kept); err != nil || !bytes.Equal(old, before) || filepath.Dir(kept) != filepath.Dir(path) {
		t.Errorf("the old file was not kept beside: %q %v", kept, err)
	}
	if info, _ := os.Stat(path); info.Mode().Perm() != 0o640 {
		t.Errorf("mode %v", info.Mode())
	}
	s = openAt(t, path, Options{})
	if info, err := s.Info(KindLandlockPolicy, "web"); err != nil || info.GetNumber() != 1 {
		t.Errorf("restored: %v %v", info, err)
	}
	events, _ := s.Events(0, 0)
	if last := events[len(events)-1]; last.GetType() != EventRestore {
		t.Errorf("last entry: %v", last)
	}
	leftNothing(t, path, kept)
}

// leftNothing fails the test for files beside path that are not expected.
func leftNothing(t *testing.T, path string, more ...string) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		name := filepath.Join(filepath.Dir(path), e.Name())
		if name != path && !strings.Contains(strings.Join(more, "\n"), name) {
			t.Errorf("left behind: %s", name)
		}
	}
}

type failingReader struct{ r io.Reader }

var errFailingReader = errors.New("connection lost")

func (f failingReader) Read(p []byte) (int, error) {
	n, err := f.r.Read(p)
	if err == io.EOF {
		err = errFailingReader
	}
	return n, err
}

func TestRestoreRefusesABadBackup(t *testing.T) {
	good := sample(t)
	metas, err := readMetas(bytesReaderAt(good))
	if err != nil {
		t.Fatal(err)
	}
	rootFlipped := bytes.Clone(good)
	rootFlipped[int64(metas[0].root)*metas[0].pageSize+8] ^= 0xff
	tampered := filepath.Join(t.TempDir(), "tampered.db")
	if err := os.WriteFile(tampered, good, 0o600); err != nil {
		t.Fatal(err)
	}
	db, err := bolt.Open(tampered, 0o600, boltOptions(Options{}))
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Update(func(tx *bolt.Tx) error { return tx.Bucket(bucketKeyLog).Delete(number(5)) }); err != nil {
		t.Fatal(err)
	}
	db.Close()
	cut, _ := os.ReadFile(tampered)
	for what, c := range map[string]struct {
		backup io.Reader
		want   error
	}{
		"empty":           {bytesReader(nil), errs.ErrStoreCorrupt},
		"text":            {strings.NewReader(strings.Repeat("no", 9000)), errs.ErrStoreCorrupt},
		"cut":             {bytesReader(good[:len(good)/2]), errs.ErrStoreCorrupt},
		"page damaged":    {bytesReader(rootFlipped), errs.ErrStoreCorrupt},
		"log cut":         {bytesReader(cut), errs.ErrStoreCorrupt},
		"connection lost": {failingReader{bytesReader(good[:20000])}, errFailingReader},
	} {
		t.Run(what, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "policyd.db")
			s := openAt(t, path, Options{})
			s.Close()
			before, _ := os.ReadFile(path)
			_, err := Restore(c.backup, path, true)
			if !errors.Is(err, c.want) {
				t.Fatalf("error %v, want %v", err, c.want)
			}
			if text := err.Error(); strings.Contains(text, ".new-") || strings.Count(text, errs.ErrStoreCorrupt.Error()) > 1 {
				t.Errorf("%q speaks of the copy or repeats itself", text)
			}
			if after, _ := os.ReadFile(path); !bytes.Equal(before, after) {
				t.Error("the store was changed")
			}
			leftNothing(t, path)
		})
	}
}

func TestCheckFileOfNoStore(t *testing.T) {
	path := filepath.Join(t.TempDir(), "policyd.db")
	_, _, _, err := CheckFile(t.Context(), path)
	if !errors.Is(err, errs.ErrNotFound) || err.Error() != "not found: there is no store "+path {
		t.Errorf("error %v", err)
	}
	leftNothing(t, path)
}

func bytesReaderAt(b []byte) io.ReaderAt { return bytes.NewReader(b) }

func TestRestoreOfAnOldBackupMigrates(t *testing.T) {
	old, err := os.ReadFile("testdata/schema-1.db")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "policyd.db")
	if _, err := Restore(bytesReader(old), path, false); err != nil {
		t.Fatal(err)
	}
	leftNothing(t, path)
	s := openAt(t, path, Options{})
	if st, err := s.Stats(); err != nil || st.GetSchema() != schemaVersion {
		t.Errorf("%v %v", st, err)
	}
}

func TestCompact(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "policyd.db")
	s := openAt(t, path, Options{NoSync: true, KeepVersions: 1})
	for i := range 200 {
		p := policy("web", fmt.Sprint(i))
		p.Source = strings.Repeat("x", 20000)
		mustApply(t, s, p)
	}
	if removed, err := s.GC(t.Context(), alice); err != nil || removed != 199 {
		t.Fatal(removed, err)
	}
	head, _ := s.Stats()
	if _, _, err := Compact(path); !errors.Is(err, errs.ErrStoreLocked) {
		t.Errorf("while held: %v", err)
	}
	s.Close()
	link := filepath.Join(dir, "link.db")
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	before, after, err := Compact(link)
	if err != nil || after >= before/4 {
		t.Errorf("compacted %d bytes to %d: %v", before, after, err)
	}
	if info, err := os.Lstat(path); err != nil || info.Size() != after || !info.Mode().IsRegular() || info.Mode().Perm() != 0o600 {
		t.Errorf("file: %v %v", info, err)
	}
	s = openAt(t, path, Options{NoSync: true})
	if st, _ := s.Stats(); st.GetLogHead() != head.GetLogHead() {
		t.Error("the log is another")
	}
	mustApply(t, s, policy("web", "after"))
	leftNothing(t, path, link)
	if _, _, err := Compact(filepath.Join(dir, "none.db")); !errors.Is(err, errs.ErrNotFound) {
		t.Errorf("no store: %v", err)
	}
	damaged := filepath.Join(t.TempDir(), "damaged.db")
	data := sample(t)
	if err := os.WriteFile(damaged, data[:len(data)-8192], 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := Compact(damaged); !errors.Is(err, errs.ErrStoreCorrupt) {
		t.Errorf("damaged: %v", err)
	}
	leftNothing(t, damaged)
}
