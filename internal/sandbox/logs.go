package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Names in a sandbox's folder.
const (
	stdoutLog  = "stdout.log"
	stderrLog  = "stderr.log"
	statusName = "status"
)

const (
	// sweepHot is the interval at which logs that grow fast are looked at, sweepIdle
	// the one for all others. A program can exceed its limit by what it writes in one.
	sweepHot  = 50 * time.Millisecond
	sweepIdle = time.Second
	// sweepShare bounds the cost: after a sweep that took d the next waits at least
	// sweepShare times d.
	sweepShare = 20
	// hotShare: a log that grew by more than 1/hotShare of its limit since it was last
	// looked at grows fast.
	hotShare = 16
	// logBlock is what offsets of holes are multiples of; a multiple of the block
	// size of every common file system.
	logBlock = 4096
)

// logKeeper owns the log files of detached sandboxes. The children write them, by
// O_APPEND and without any pipe; the keeper bounds them by making holes over their
// oldest part, so that offsets stay and nothing written meanwhile is lost. Where the
// file system has no holes a log that exceeds its limit is emptied whole: what was
// kept is dropped, and readers are told how much.
type logKeeper struct {
	root  string
	holes bool
	log   *slog.Logger

	mu     sync.Mutex
	boxes  map[string]*boxLogs // of sandboxes alive
	ended  map[string]logUse
	bytes  map[uint32]int64 // kept, by owner
	wakeup chan struct{}
}

type logUse struct {
	owner uint32
	bytes int64
}

type boxLogs struct {
	owner uint32
	limit int64
	files [2]*logFile
	bytes int64 // in logKeeper.bytes
	hot   bool
	last  int64 // sum of sizes when last looked at
	// checked is when that was.
	checked time.Time
}

// logFile is one log. Bytes before start are gone; dropped counts those that were
// dropped by emptying the file, which offsets do not show.
type logFile struct {
	path string

	mu      sync.RWMutex // held for writing while start changes
	start   int64
	size    int64
	dropped int64
}

func newLogKeeper(root string, cfg Config) (*logKeeper, error) {
	if err := os.MkdirAll(root, 0o700); err != nil {
		return nil, fmt.Errorf("logs: %w", err)
	}
	if err := os.Chmod(root, 0o700); err != nil {
		return nil, fmt.Errorf("logs: %w", err)
	}
	k := &logKeeper{
		root: root, log: cfg.Log, boxes: map[string]*boxLogs{}, ended: map[string]logUse{},
		bytes: map[uint32]int64{}, wakeup: make(chan struct{}, 1),
	}
	if !cfg.noPunch {
		holes, err := canPunch(root)
		if err != nil {
			return nil, fmt.Errorf("logs: %w", err)
		}
		k.holes = holes
	}
	if !k.holes {
		cfg.Log.Warn("file system of the logs cannot make holes: a log over its limit is emptied", "folder", root)
	}
	return k, nil
}

// canPunch tries fallocate(2) with FALLOC_FL_PUNCH_HOLE.
func canPunch(dir string) (bool, error) {
	f, err := os.CreateTemp(dir, ".hole-")
	if err != nil {
		return false, err
	}
	defer f.Close()
	if err := os.Remove(f.Name()); err != nil {
		return false, err
	}
	if err := f.Truncate(2 * logBlock); err != nil {
		return false, err
	}
	err = punch(f, 0, logBlock)
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOSYS) {
		return false, nil
	}
	return err == nil, err
}

func punch(f *os.File, from, to int64) error {
	return control(f, func(fd int) error {
		err := unix.Fallocate(fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, from, to-from)
		return os.NewSyscallError("fallocate", err)
	})
}

// add begins to bound the logs of a sandbox.
func (k *logKeeper) add(id string, owner uint32, limit uint64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	b := &boxLogs{owner: owner, limit: int64(limit), files: k.files(id)}
	k.boxes[id] = b
	k.look(id, b, time.Now())
	b.hot = true // nobody knows yet how fast it grows
	k.wake()
}

func (k *logKeeper) wake() {
	select {
	case k.wakeup <- struct{}{}:
	default:
	}
}

// files looks at what is on disk.
func (k *logKeeper) files(id string) [2]*logFile {
	var out [2]*logFile
	for i, name := range []string{stdoutLog, stderrLog} {
		out[i] = &logFile{path: filepath.Join(k.folder(id), name)}
		out[i].recall()
	}
	return out
}

// endedBox stops to bound the logs of a sandbox that writes no more, after a last look.
func (k *logKeeper) endedBox(id string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	b := k.boxes[id]
	if b == nil {
		return
	}
	k.look(id, b, time.Now())
	delete(k.boxes, id)
	k.ended[id] = logUse{b.owner, b.bytes}
	if err := os.Remove(k.statusFile(id)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		k.log.Warn("status file could not be removed", "sandbox", id, "error", err)
	}
}

// addEnded accounts for the logs of a sandbox that ended before this policyd began.
func (k *logKeeper) addEnded(id string, owner uint32) {
	var sum int64
	for _, f := range k.files(id) {
		sum += f.kept()
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.ended[id] = logUse{owner, sum}
	k.account(owner, sum)
}

// removeFolder removes the logs of a sandbox that has ended or did not start.
func (k *logKeeper) removeFolder(id string) {
	if err := os.RemoveAll(k.folder(id)); err != nil {
		k.log.Warn("logs could not be removed", "sandbox", id, "error", err)
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if u, ok := k.ended[id]; ok {
		k.account(u.owner, -u.bytes)
		delete(k.ended, id)
	}
}

// account wants k.mu.
func (k *logKeeper) account(owner uint32, n int64) {
	if k.bytes[owner] += n; k.bytes[owner] <= 0 {
		delete(k.bytes, owner)
	}
}

// use is how much output of a sandbox is kept, bytes.
func (k *logKeeper) use(id string) int64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	if b := k.boxes[id]; b != nil {
		return b.bytes
	}
	return k.ended[id].bytes
}

func (k *logKeeper) useBy(owner uint32) int64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.bytes[owner]
}

// run looks at the logs until ctx ends. One goroutine serves all sandboxes.
func (k *logKeeper) run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-k.wakeup:
		case <-timer.C:
		}
		began := time.Now()
		next := k.sweep(began)
		if next > 0 {
			timer.Reset(max(next, sweepShare*time.Since(began)))
		}
	}
}

// sweep looks at the logs that are due and tells when to come back, 0: when called.
func (k *logKeeper) sweep(now time.Time) time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.boxes) == 0 {
		return 0
	}
	next := sweepIdle
	for id, b := range k.boxes {
		interval := sweepIdle
		if b.hot {
			interval = sweepHot
		}
		// A sweep that was begun a little early takes what is nearly due along.
		if now.Sub(b.checked) >= interval-sweepHot/2 {
			k.look(id, b, now)
		}
		if b.hot {
			next = sweepHot
		}
	}
	return next
}

// look wants k.mu.
func (k *logKeeper) look(id string, b *boxLogs, now time.Time) {
	var sum int64
	for _, f := range b.files {
		f.stat()
		sum += f.size
	}
	b.hot = sum-b.last > b.limit/hotShare
	b.last, b.checked = sum, now
	kept := [2]int64{b.files[0].kept(), b.files[1].kept()}
	if kept[0]+kept[1] > b.limit {
		for i, f := range b.files {
			// A stream may have what the other does not use, and half in any case.
			share := max(b.limit/2, b.limit-kept[1-i])
			if kept[i] <= share {
				continue
			}
			// A quarter more is dropped, so that this is not done at every look.
			if err := k.bound(f, share-b.limit/4); err != nil {
				k.log.Warn("log could not be bounded", "sandbox", id, "error", err)
			}
		}
	}
	use := b.files[0].kept() + b.files[1].kept()
	k.account(b.owner, use-b.bytes)
	b.bytes = use
}

// bound drops the oldest part of a log so that about keep bytes stay.
func (k *logKeeper) bound(f *logFile, keep int64) error {
	w, err := os.OpenFile(f.path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer w.Close()
	f.mu.Lock()
	defer f.mu.Unlock()
	if !k.holes {
		st, err := w.Stat()
		if err != nil {
			return err
		}
		if err := w.Truncate(0); err != nil {
			return err
		}
		f.dropped += st.Size()
		f.size = 0
		return nil
	}
	to := (f.size - keep) / logBlock * logBlock
	if to <= f.start {
		return nil
	}
	if err := punch(w, f.start/logBlock*logBlock, to); err != nil {
		return err
	}
	f.start = to
	return nil
}
