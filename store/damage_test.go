package store

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/internal/errs"
)

func bytesReader(b []byte) io.Reader { return bytes.NewReader(b) }

// childHold keeps a store open until it is killed; "-" only shows that the child could start.
func childHold(args []string) error {
	if args[0] == "-" {
		return nil
	}
	s, err := Open(args[0], Options{})
	if err != nil {
		return err
	}
	defer s.Close()
	fmt.Println("held")
	_, _ = io.Copy(io.Discard, os.Stdin)
	select {}
}

func TestHeldByAnother(t *testing.T) {
	path := filepath.Join(t.TempDir(), "policyd.db")
	cmd, lines := startChild(t, "hold", path)
	if !lines.Scan() || lines.Text() != "held" {
		t.Fatal("the child does not hold the store")
	}
	short := Options{Timeout: 100 * time.Millisecond}
	_, openErr := Open(path, short)
	_, readErr := Open(path, Options{Timeout: short.Timeout, ReadOnly: true})
	_, restoreErr := Restore(bytesReader(nil), path, true)
	_, _, compactErr := Compact(path)
	_, _, _, checkErr := CheckFile(t.Context(), path)
	for what, err := range map[string]error{"open": openErr, "open for reading": readErr, "restore": restoreErr, "compact": compactErr, "check": checkErr} {
		if !errors.Is(err, errs.ErrStoreLocked) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v, want that %s is held", what, err, path)
		}
	}
	cmd.Process.Kill()
	cmd.Wait()
	openAt(t, path, Options{})
}

func TestNotAStore(t *testing.T) {
	dir := t.TempDir()
	fifo, folder := filepath.Join(dir, "fifo"), filepath.Join(dir, "folder")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	paths := map[string]string{"fifo": fifo, "folder": folder}
	for name, content := range map[string][]byte{
		"empty": nil, "short": []byte("x"), "text": bytes.Repeat([]byte("no store\n"), 4000), "zeros": make([]byte, 64<<10),
	} {
		paths[name] = filepath.Join(dir, name)
		if err := os.WriteFile(paths[name], content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, path := range paths {
		before, _ := os.Stat(path)
		for _, readOnly := range []bool{false, true} {
			if _, err := Open(path, Options{ReadOnly: readOnly}); err == nil || name != "folder" && !errors.Is(err, errs.ErrStoreCorrupt) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if after, err := os.Stat(path); err != nil || after.Size() != before.Size() || after.ModTime() != before.ModTime() {
			t.Errorf("%s was changed", name)
		}
	}
	if _, err := Open(filepath.Join(dir, "none", "policyd.db"), Options{}); !errors.Is(err, errs.ErrNotFound) {
		t.Errorf("no folder: %v", err)
	}
	if _, err := Open(filepath.Join(dir, "none.db"), Options{ReadOnly: true}); !errors.Is(err, errs.ErrNotFound) {
		t.Errorf("no file, for reading: %v", err)
	}
}

// TestNoPermission is run as a user who may not write; as root the thread becomes one for files (setfsuid(2)).
func TestNoPermission(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "policyd.db")
	s, err := Open(path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	s.Close()
	if os.Geteuid() == 0 {
		runtime.LockOSThread()
		if _, err := unix.SetfsuidRetUid(65534); err != nil {
			t.Fatal(err)
		}
		defer unix.SetfsuidRetUid(0)
	} else if err := errors.Join(os.Chmod(path, 0o400), os.Chmod(dir, 0o500)); err != nil {
		t.Fatal(err)
	}
	defer os.Chmod(dir, 0o700)
	if _, err := Open(path, Options{}); !errors.Is(err, errs.ErrStoreReadOnly) {
		t.Errorf("file: %v", err)
	}
	if _, err := Open(filepath.Join(dir, "new.db"), Options{}); !errors.Is(err, errs.ErrStoreReadOnly) {
		t.Errorf("folder: %v", err)
	}
}

// sample makes a store file with several levels of pages and returns its bytes.
func sample(t testing.TB) []byte {
	t.Helper()
	path := filepath.Join(t.TempDir(), "policyd.db")
	s, err := Open(path, Options{NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	base := fragmentOf("local/base", "one")
	for i := range 150 {
		var puts []Put
		for j := range 4 {
			puts = append(puts, policy(fmt.Sprint("policy", j), fmt.Sprint(i), base))
		}
		mustApply(t, s, puts...)
	}
	big := policy("big", "one")
	big.Source = strings.Repeat("long ", 4000)
	mustApply(t, s, big)
	if err := s.PutSandboxes(t.Context(), []*apiv1.Sandbox{sandbox("s", "big", 1, 0)}, nil); err != nil {
		t.Fatal(err)
	}
	s.Close()
	if _, _, err := Compact(path); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// useDamaged does with a damaged file what a policyd would; every step may refuse, none may panic or hang. It tells
// whether anyone noticed.
func useDamaged(t *testing.T, path string) (noticed bool) {
	t.Helper()
	problems, _, _, err := CheckFile(t.Context(), path)
	noticed = err != nil || len(problems) > 0
	s, err := Open(path, Options{NoSync: true})
	if err != nil {
		if !errors.Is(err, errs.ErrStoreCorrupt) && !errors.Is(err, errs.ErrStoreNewer) {
			t.Errorf("open: %v", err)
		}
		return true
	}
	defer s.Close()
	s.List(KindLandlockPolicy, Filter{})
	s.History(KindLandlockPolicy, "policy1", 0, 0)
	s.Get(KindLandlockPolicy, "policy1")
	s.Events(0, 0)
	s.Sandboxes(SandboxFilter{Ended: true})
	s.Stats()
	s.Apply(t.Context(), alice, []Put{policy("policy1", "after"), policy("new", "after")})
	s.GC(t.Context(), alice)
	s.Check(t.Context())
	return noticed
}

// TestFlippedBytes damages one place at a time: whatever is reachable must be noticed.
func TestFlippedBytes(t *testing.T) {
	data := sample(t)
	path := filepath.Join(t.TempDir(), "policyd.db")
	metas, err := readMetas(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	pageSize := int(metas[0].pageSize)
	var places []int
	for page := 0; page*pageSize < len(data); page++ { // headers, elements, and somewhere
		at := page * pageSize
		places = append(places, at, at+8, at+10, at+12, at+15, at+17, at+21, at+25, at+29, at+rand.IntN(pageSize), at+pageSize-1)
	}
	rand.Shuffle(len(places), func(i, j int) { places[i], places[j] = places[j], places[i] })
	count := 400
	if testing.Short() {
		count = 60
	}
	noticed := 0
	for _, at := range places[:min(count, len(places))] {
		damaged := bytes.Clone(data)
		damaged[at] ^= byte(1 + rand.IntN(255))
		if err := os.WriteFile(path, damaged, 0o600); err != nil {
			t.Fatal(err)
		}
		if useDamaged(t, path) {
			noticed++
		} else if wasUsed(data, at, metas[0]) {
			t.Errorf("nobody noticed byte %d (page %d, offset %d)", at, at/pageSize, at%pageSize)
		}
	}
	t.Logf("%d of %d noticed; the others lie in no page or in the free part of one", noticed, min(count, len(places)))
	if noticed < count/2 {
		t.Error("too few were noticed")
	}
}

// wasUsed tells whether the header or an element of a reachable page holds the byte. Of the header, the first page of
// a run counts; key and value bytes are known by their place.
func wasUsed(data []byte, at int, m metaPage) bool {
	w := &treeWalk{r: bytes.NewReader(data), meta: m, seen: make([]uint64, m.hwm/64+1)}
	if w.page(m.root, nil, nil, 0) != nil {
		return false
	}
	page := uint64(at) / uint64(m.pageSize)
	within := at % int(m.pageSize)
	isFirst := page < m.hwm && w.seen[page/64]&(1<<(page%64)) != 0 &&
		bytes.Equal(data[at-within:at-within+8], number64(page))
	return isFirst && within < pageHeader
}

func number64(n uint64) []byte {
	b := number(n)
	for i, j := 0, len(b)-1; i < j; i, j = i+1, j-1 { // little-endian, as the machines these tests run on
		b[i], b[j] = b[j], b[i]
	}
	return b
}

func TestTruncated(t *testing.T) {
	data := sample(t)
	path := filepath.Join(t.TempDir(), "policyd.db")
	for _, size := range []int{1, 100, 4095, 4096, 5000, 8192, 12288, 16384, len(data) / 2, len(data) - 8192, len(data) - 4097} {
		if err := os.WriteFile(path, data[:size], 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(path, Options{}); !errors.Is(err, errs.ErrStoreCorrupt) {
			t.Errorf("cut to %d bytes: %v", size, err)
		}
		if problems, _, _, err := CheckFile(t.Context(), path); err != nil || len(problems) == 0 {
			t.Errorf("cut to %d bytes: check %v %v", size, problems, err)
		}
		if info, _ := os.Stat(path); info.Size() != int64(size) {
			t.Errorf("cut to %d bytes: the file was changed", size)
		}
	}
}

// TestTruncatedWhileOpen cuts the file under an open store: reads fault (SIGBUS), and say so instead of ending policyd.
func TestTruncatedWhileOpen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "policyd.db")
	if err := os.WriteFile(path, sample(t), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := Open(path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := os.Truncate(path, 8192); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Get(KindLandlockPolicy, "policy1"); !errors.Is(err, errs.ErrStoreCorrupt) {
		t.Errorf("get: %v", err)
	}
	if _, err := s.Apply(t.Context(), alice, []Put{policy("policy1", "x")}); !errors.Is(err, errs.ErrStoreCorrupt) {
		t.Errorf("apply: %v", err)
	}
}

func FuzzPages(f *testing.F) {
	data := sample(f)
	f.Add(uint32(16), []byte{1})
	f.Add(uint32(4096*3), []byte{1, 2, 3, 4})
	f.Fuzz(func(t *testing.T, at uint32, change []byte) {
		damaged := bytes.Clone(data)
		copy(damaged[int(at)%len(damaged):], change)
		if err := verifyFile(bytes.NewReader(damaged), int64(len(damaged))); err != nil && !errors.Is(err, errs.ErrStoreCorrupt) {
			t.Errorf("error %v", err)
		}
	})
}
