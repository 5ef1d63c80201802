package sandbox

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
)

// Kinds of journal lines. A line is
//
//	KIND CRC32C(hex) BASE64(Sandbox) LF
//
// and stands for the sandbox's whole state from then on.
const (
	lineIntent  = 'I' // about to be executed; pid not known yet
	lineStarted = 'S' // executed
	lineEnded   = 'E' // ended
	lineAborted = 'A' // nothing was executed
	lineRemoved = 'R' // forgotten by request
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// entry is one line.
type entry struct {
	kind byte
	rec  *apiv1.Sandbox
}

func encodeLine(kind byte, rec *apiv1.Sandbox) ([]byte, error) {
	raw, err := proto.Marshal(rec)
	if err != nil {
		return nil, fmt.Errorf("journal line of sandbox %s: %w", rec.GetId(), err)
	}
	line := make([]byte, 0, 12+base64.RawStdEncoding.EncodedLen(len(raw)))
	line = fmt.Appendf(line, "%c %08x ", kind, crc32.Checksum(raw, castagnoli))
	line = base64.RawStdEncoding.AppendEncode(line, raw)
	return append(line, '\n'), nil
}

var errBadLine = errors.New("damaged journal line")

func decodeLine(line []byte) (entry, error) {
	kind, rest, ok := bytes.Cut(line, []byte(" "))
	sum, data, ok2 := bytes.Cut(rest, []byte(" "))
	if !ok || !ok2 || len(kind) != 1 || bytes.IndexByte([]byte("ISEAR"), kind[0]) < 0 {
		return entry{}, errBadLine
	}
	want, err := strconv.ParseUint(string(sum), 16, 32)
	if err != nil {
		return entry{}, errBadLine
	}
	raw, err := base64.RawStdEncoding.DecodeString(string(data))
	if err != nil || crc32.Checksum(raw, castagnoli) != uint32(want) {
		return entry{}, errBadLine
	}
	rec := &apiv1.Sandbox{}
	if err := proto.Unmarshal(raw, rec); err != nil || !validID(rec.GetId()) {
		return entry{}, errBadLine
	}
	return entry{kind[0], rec}, nil
}

// journal is the folder of journal files, held by one policyd at a time. Files are
// named by a rising number; only the newest is written.
type journal struct {
	dir  string
	lock *os.File
	file *os.File
	gen  uint64
	size int64
}

// openJournal takes hold of the folder and reads what an earlier policyd left, in
// order. damaged counts lines that were cut off or changed: a line is written by one
// write(2), so only a power loss or a full file system leaves such.
func openJournal(dir string) (j *journal, old []entry, damaged int, err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, nil, 0, fmt.Errorf("journal: %w", err)
	}
	lock, err := os.Open(dir)
	if err != nil {
		return nil, nil, 0, fmt.Errorf("journal: %w", err)
	}
	defer func() {
		if err != nil {
			lock.Close()
		}
	}()
	if err := hold(lock); err != nil {
		return nil, nil, 0, fmt.Errorf("journal %s is held by another policyd: %w", dir, err)
	}
	j = &journal{dir: dir, lock: lock}
	gens, err := j.generations()
	if err != nil {
		return nil, nil, 0, err
	}
	for _, gen := range gens {
		data, err := os.ReadFile(j.path(gen))
		if err != nil {
			return nil, nil, 0, fmt.Errorf("journal: %w", err)
		}
		for line := range bytes.Lines(data) {
			e, err := decodeLine(bytes.TrimSuffix(line, []byte("\n")))
			if err != nil || !bytes.HasSuffix(line, []byte("\n")) {
				damaged++
				continue
			}
			old = append(old, e)
		}
		j.gen = gen
	}
	return j, old, damaged, nil
}

// holdPatience is how long the lock of the journal is waited for: a child that the
// earlier policyd had forked when it was killed keeps it until it executes.
const holdPatience = 2 * time.Second

func hold(f *os.File) error {
	deadline := time.Now().Add(holdPatience)
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil || !errors.Is(err, unix.EWOULDBLOCK) || time.Now().After(deadline) {
			return err
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func (j *journal) path(gen uint64) string {
	return filepath.Join(j.dir, fmt.Sprintf("%016x.journal", gen))
}

func (j *journal) generations() ([]uint64, error) {
	names, err := os.ReadDir(j.dir)
	if err != nil {
		return nil, fmt.Errorf("journal: %w", err)
	}
	var gens []uint64
	for _, n := range names {
		hex, ok := strings.CutSuffix(n.Name(), ".journal")
		if gen, err := strconv.ParseUint(hex, 16, 64); ok && err == nil {
			gens = append(gens, gen)
		}
	}
	slices.Sort(gens)
	return gens, nil
}

// rotate begins the next file with the given lines.
func (j *journal) rotate(lines ...[]byte) error {
	f, err := os.OpenFile(j.path(j.gen+1), os.O_WRONLY|os.O_CREATE|os.O_EXCL|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	data := bytes.Join(lines, nil)
	if _, err := f.Write(data); err != nil {
		f.Close()
		os.Remove(f.Name())
		return fmt.Errorf("journal: %w", err)
	}
	if j.file != nil {
		j.file.Close()
	}
	j.file, j.size = f, int64(len(data))
	j.gen++
	return nil
}

// append writes one line whole or not at all.
func (j *journal) append(line []byte) error {
	n, err := j.file.Write(line)
	if err == nil {
		j.size += int64(n)
		return nil
	}
	if n > 0 {
		// A rest of a line would swallow the next one.
		if terr := j.file.Truncate(j.size); terr != nil {
			err = errors.Join(err, terr)
		}
	}
	return fmt.Errorf("journal: %w", err)
}

// drop removes the files up to a number: the store has all they say.
func (j *journal) drop(upTo uint64) error {
	gens, err := j.generations()
	for _, gen := range gens {
		if gen <= upTo {
			if rerr := os.Remove(j.path(gen)); rerr != nil && !errors.Is(rerr, fs.ErrNotExist) {
				err = errors.Join(err, rerr)
			}
		}
	}
	return err
}

func (j *journal) close() {
	if j.file != nil {
		j.file.Close()
	}
	j.lock.Close()
}
