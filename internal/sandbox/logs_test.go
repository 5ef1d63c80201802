package sandbox

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"policyd.dev/policyd/internal/testkernel"
)

func newTestKeeper(t *testing.T, root string) *logKeeper {
	t.Helper()
	k, err := newLogKeeper(root, Config{Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// newTestLogs makes the logs of one sandbox with a limit and gives its stdout.
func newTestLogs(t *testing.T, k *logKeeper, limit uint64) *os.File {
	t.Helper()
	const id = "0123456789ab"
	if err := k.makeFolder(id); err != nil {
		t.Fatal(err)
	}
	s, err := k.open(id)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.closeChild)
	k.add(id, 1000, limit)
	return s.child[1]
}

// collect reads what a reader gives now.
func collect(t *testing.T, r *logReader) (data []byte, dropped int64) {
	t.Helper()
	buf := make([]byte, 8<<10)
	for {
		n, d, err := r.next(buf)
		if err != nil {
			t.Fatal(err)
		}
		dropped += d
		if n == 0 {
			return data, dropped
		}
		data = append(data, buf[:n]...)
	}
}

// checkLines wants whole, numbered lines without a gap and gives the first and last.
func checkLines(t *testing.T, data []byte) (first, last int) {
	t.Helper()
	first = -1
	sc := bufio.NewScanner(bytes.NewReader(data))
	for sc.Scan() {
		n, err := strconv.Atoi(strings.TrimLeft(strings.TrimSpace(sc.Text()), "0"))
		if err != nil && strings.Trim(sc.Text(), "0") != "" {
			t.Fatalf("line %q after %d is not whole", sc.Text(), last)
		}
		if first >= 0 && n != last+1 {
			t.Fatalf("line %d follows %d", n, last)
		}
		if first < 0 {
			first = n
		}
		last = n
	}
	return first, last
}

const lineWidth = 80

func numbered(n int) string { return fmt.Sprintf("%0*d\n", lineWidth-1, n) }

func TestLogRotationLosesNothing(t *testing.T) {
	k := newTestKeeper(t, t.TempDir())
	if !k.holes {
		testkernel.Skip(t, "a file system with holes", "run on ext4, xfs, btrfs or tmpfs")
	}
	const limit, lines = 1 << 20, 400_000
	w := newTestLogs(t, k, limit)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { k.run(ctx) })

	// A reader that follows sees every line once, or is told how much it missed.
	follower, err := k.boxes["0123456789ab"].files[0].open(0, true)
	if err != nil {
		t.Fatal(err)
	}
	defer follower.close()
	written := make(chan struct{})
	var seen, missed int64
	wg.Go(func() {
		buf := make([]byte, 8<<10)
		for finished := false; ; {
			n, d, err := follower.next(buf)
			if err != nil {
				t.Error(err)
				return
			}
			seen, missed = seen+int64(n), missed+d
			if n == 0 {
				if finished {
					return
				}
				finished = closed(written)
			}
		}
	})
	for i := range lines {
		if _, err := w.WriteString(numbered(i)); err != nil {
			t.Fatal(err)
		}
	}
	close(written)
	// What was written last is bounded at the latest by the look at the end.
	k.endedBox("0123456789ab")
	cancel()
	wg.Wait()
	if seen+missed != lines*lineWidth {
		t.Errorf("follower saw %d bytes and was told of %d, together not the %d written", seen, missed, lines*lineWidth)
	}

	fresh := newTestKeeper(t, k.root) // as after a restart
	r, err := fresh.files("0123456789ab")[0].open(0, false)
	if err != nil {
		t.Fatal(err)
	}
	defer r.close()
	data, dropped := collect(t, r)
	first, last := checkLines(t, data)
	if last != lines-1 {
		t.Errorf("last line kept is %d, want %d", last, lines-1)
	}
	if dropped != int64(first)*lineWidth {
		t.Errorf("told of %d dropped bytes, the first line kept is %d (offset %d)", dropped, first, first*lineWidth)
	}
	if len(data) > limit || len(data) < limit/2 {
		t.Errorf("%d bytes are kept with a limit of %d", len(data), limit)
	}
	var st unix.Stat_t
	if err := unix.Stat(filepath.Join(k.root, "0123456789ab", stdoutLog), &st); err != nil {
		t.Fatal(err)
	}
	if st.Blocks*512 > limit+limit/4 {
		t.Errorf("file takes %d bytes on disk with a limit of %d", st.Blocks*512, limit)
	}
	if got := k.useBy(1000); got < int64(len(data)) || got > limit {
		t.Errorf("%d bytes are accounted, %d kept", got, len(data))
	}
	k.removeFolder("0123456789ab")
	if got := k.useBy(1000); got != 0 {
		t.Errorf("%d bytes accounted after removal", got)
	}
}

func TestLogTail(t *testing.T) {
	long := strings.Repeat("x", chunk+10)
	for _, tc := range []struct {
		name, data string
		tail       uint32
		want       string
	}{
		{"empty", "", 3, ""},
		{"fewer", "a\nb\n", 3, "a\nb\n"},
		{"equal", "a\nb\n", 2, "a\nb\n"},
		{"last", "a\nb\nc\n", 1, "c\n"},
		{"unfinished", "a\nb\nc", 2, "b\nc"},
		{"empty lines", "a\n\n\n", 2, "\n\n"},
		{"over blocks", "a\n" + long + "\n" + long + "\n", 2, long + "\n" + long + "\n"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "log")
			if err := os.WriteFile(path, []byte(tc.data), 0o600); err != nil {
				t.Fatal(err)
			}
			f := &logFile{path: path}
			f.recall()
			r, err := f.open(tc.tail, false)
			if err != nil {
				t.Fatal(err)
			}
			defer r.close()
			if got, dropped := collect(t, r); string(got) != tc.want || dropped != 0 {
				t.Errorf("got %.40q and %d dropped, want %.40q", got, dropped, tc.want)
			}
		})
	}
}

// A quiet stream is not pushed out by a loud one.
func TestLogLimitIsShared(t *testing.T) {
	k := newTestKeeper(t, t.TempDir())
	if !k.holes {
		testkernel.Skip(t, "a file system with holes", "run on ext4, xfs, btrfs or tmpfs")
	}
	const limit = 256 << 10
	w := newTestLogs(t, k, limit)
	b := k.boxes["0123456789ab"]
	quiet := bytes.Repeat([]byte("e"), 100<<10)
	if err := os.WriteFile(b.files[1].path, quiet, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(make([]byte, 1<<20)); err != nil {
		t.Fatal(err)
	}
	k.look("0123456789ab", b, time.Now())
	if b.files[1].kept() != int64(len(quiet)) {
		t.Errorf("quiet stream keeps %d of %d bytes", b.files[1].kept(), len(quiet))
	}
	if b.bytes > limit || k.useBy(1000) != b.bytes {
		t.Errorf("kept %d, accounted %d, limit %d", b.bytes, k.useBy(1000), limit)
	}
}

// A program may truncate its own log.
func TestLogTruncatedByProgram(t *testing.T) {
	k := newTestKeeper(t, t.TempDir())
	w := newTestLogs(t, k, minLogLimit)
	if _, err := w.Write(make([]byte, 4*minLogLimit)); err != nil {
		t.Fatal(err)
	}
	b := k.boxes["0123456789ab"]
	k.look("0123456789ab", b, time.Now())
	r, err := b.files[0].open(0, true)
	if err != nil {
		t.Fatal(err)
	}
	defer r.close()
	collect(t, r)
	if err := w.Truncate(0); err != nil {
		t.Fatal(err)
	}
	k.look("0123456789ab", b, time.Now())
	collect(t, r)
	if _, err := w.WriteString("after\n"); err != nil {
		t.Fatal(err)
	}
	if data, _ := collect(t, r); string(data) != "after\n" {
		t.Errorf("read %q after the truncation", data)
	}
	if b.files[0].kept() < 0 || b.bytes < 0 {
		t.Errorf("kept %d, accounted %d", b.files[0].kept(), b.bytes)
	}
}

// ramfs has no holes.
func TestLogsWithoutHoles(t *testing.T) {
	testkernel.RequireRoot(t)
	root := t.TempDir()
	if err := unix.Mount("ramfs", root, "ramfs", 0, ""); err != nil {
		if errors.Is(err, unix.EPERM) || errors.Is(err, unix.ENODEV) {
			testkernel.Skip(t, "mounting a ramfs", "run as root with CAP_SYS_ADMIN")
		}
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(root, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	k := newTestKeeper(t, root)
	if k.holes {
		t.Fatal("ramfs is said to have holes")
	}
	const limit = minLogLimit
	w := newTestLogs(t, k, limit)
	b := k.boxes["0123456789ab"]
	r, err := b.files[0].open(0, true)
	if err != nil {
		t.Fatal(err)
	}
	defer r.close()
	var seen, missed int64
	total := 0
	for i := range 5000 {
		n, err := w.WriteString(numbered(i))
		if err != nil {
			t.Fatal(err)
		}
		total += n
		if i%100 == 0 {
			k.look("0123456789ab", b, time.Now())
			if b.bytes > limit {
				t.Fatalf("%d bytes kept, limit %d", b.bytes, limit)
			}
		}
		if i%777 == 0 {
			data, d := collect(t, r)
			seen, missed = seen+int64(len(data)), missed+d
		}
	}
	data, d := collect(t, r)
	seen, missed = seen+int64(len(data)), missed+d
	if _, last := checkLines(t, data[max(0, len(data)-10*lineWidth):]); last != 4999 {
		t.Errorf("last line is %d", last)
	}
	if seen+missed != int64(total) {
		t.Errorf("saw %d and was told of %d of %d bytes", seen, missed, total)
	}
}
