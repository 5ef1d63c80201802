package store

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"io"

	"policyd.dev/policyd/internal/errs"
)

// bbolt trusts its pages: a damaged one makes it panic in a goroutine of its own, which nobody can recover, or walk in
// circles. So the tree is verified here, by plain reads, before bbolt sees the file. The format is bbolt's
// internal/common (page.go, meta.go, bucket.go), in the byte order of the machine.
const (
	pageHeader  = 16 // id 8, flags 2, count 2, overflow 4
	metaSize    = 64 // magic 4, version 4, page size 4, flags 4, root 8, sequence 8, free list 8, pages 8, txid 8, sum 8
	metaEnd     = pageHeader + metaSize
	elementSize = 16 // leaf: flags 4, pos 4, ksize 4, vsize 4; branch: pos 4, ksize 4, page 8
	bucketSize  = 16 // root 8, sequence 8, then the page itself when root is 0

	flagBranch = 0x01
	flagLeaf   = 0x02
	flagMeta   = 0x04

	boltMagic   = 0xED0CDAED
	boltVersion = 2

	minPageSize = 1 << 10
	maxPageSize = 1 << 16
	maxDepth    = 64 // of pages on the way to a leaf: a sane tree of 2^48 pages has fewer
)

type metaPage struct {
	pageSize                int64
	root, freelist, hwm, id uint64 // id is the transaction's
}

func corrupt(format string, a ...any) error {
	return fmt.Errorf("%w: %s", errs.ErrStoreCorrupt, fmt.Sprintf(format, a...))
}

func parseMeta(buf []byte, page uint64) (metaPage, error) {
	ne := binary.NativeEndian
	m := buf[pageHeader:metaEnd]
	if ne.Uint32(m) != boltMagic || ne.Uint32(m[4:]) != boltVersion {
		return metaPage{}, corrupt("meta page %d is not one of a bbolt database", page)
	}
	sum := fnv.New64a()
	sum.Write(m[:metaSize-8])
	if sum.Sum64() != ne.Uint64(m[metaSize-8:]) {
		return metaPage{}, corrupt("meta page %d does not match its checksum", page)
	}
	if ne.Uint64(buf) != page || ne.Uint16(buf[8:]) != flagMeta {
		return metaPage{}, corrupt("page %d does not say that it is meta page %d", page, page)
	}
	p := metaPage{int64(ne.Uint32(m[8:])), ne.Uint64(m[16:]), ne.Uint64(m[32:]), ne.Uint64(m[40:]), ne.Uint64(m[48:])}
	if p.pageSize < minPageSize || p.pageSize > maxPageSize || p.pageSize&(p.pageSize-1) != 0 {
		return metaPage{}, corrupt("page size %d", p.pageSize)
	}
	return p, nil
}

// readMetas reads both meta pages, newest first. bbolt would quietly go back to the older one when the newest is
// damaged, and so lose a commit that was acknowledged; here that is an error.
func readMetas(r io.ReaderAt) (metas [2]metaPage, err error) {
	buf := make([]byte, metaEnd)
	if _, err := r.ReadAt(buf, 0); err != nil {
		return metas, corrupt("the file is too short for a bbolt database (%v)", err)
	}
	if metas[0], err = parseMeta(buf, 0); err != nil {
		return metas, err
	}
	if _, err := r.ReadAt(buf, metas[0].pageSize); err != nil {
		return metas, corrupt("the file ends before meta page 1 (%v)", err)
	}
	if metas[1], err = parseMeta(buf, 1); err != nil {
		return metas, err
	}
	if metas[1].pageSize != metas[0].pageSize {
		return metas, corrupt("the meta pages tell page sizes %d and %d", metas[0].pageSize, metas[1].pageSize)
	}
	if metas[1].id > metas[0].id {
		metas[0], metas[1] = metas[1], metas[0]
	}
	return metas, nil
}

// verifyFile verifies the newest tree of a file of size bytes that nobody writes.
func verifyFile(r io.ReaderAt, size int64) error {
	metas, err := readMetas(r)
	if err != nil {
		return err
	}
	return verifyTree(r, size, metas[0])
}

// verifyTree verifies every page reachable from a meta page: where it lies, that it is what it says, that its elements
// lie within it, that keys ascend and that no page is reached twice.
func verifyTree(r io.ReaderAt, size int64, m metaPage) error {
	pages := uint64(size / m.pageSize)
	if m.hwm > pages {
		return corrupt("the file was cut off: it has %d pages of %d", pages, m.hwm)
	}
	w := &treeWalk{r: r, meta: m, seen: make([]uint64, m.hwm/64+1)}
	return w.page(m.root, nil, nil, 0)
}

type treeWalk struct {
	r    io.ReaderAt
	meta metaPage
	seen []uint64 // one bit a page
}

// page verifies the page id and what lies beneath; its keys must be >= low and < high (nil: no bound).
func (w *treeWalk) page(id uint64, low, high []byte, depth int) error {
	if depth > maxDepth {
		return corrupt("page %d lies deeper than %d pages", id, maxDepth)
	}
	if id < 2 || id >= w.meta.hwm {
		return corrupt("page %d lies outside of the %d pages", id, w.meta.hwm)
	}
	buf := make([]byte, w.meta.pageSize)
	at := int64(id) * w.meta.pageSize
	if _, err := w.r.ReadAt(buf, at); err != nil {
		return corrupt("page %d: %v", id, err)
	}
	if got := binary.NativeEndian.Uint64(buf); got != id {
		return corrupt("page %d says that it is page %d", id, got)
	}
	overflow := uint64(binary.NativeEndian.Uint32(buf[12:]))
	if overflow >= w.meta.hwm-id {
		return corrupt("page %d reaches %d pages beyond the end", id, overflow)
	}
	for i := id; i <= id+overflow; i++ {
		if w.seen[i/64]&(1<<(i%64)) != 0 {
			return corrupt("page %d is reached twice", i)
		}
		w.seen[i/64] |= 1 << (i % 64)
	}
	if overflow > 0 {
		buf = make([]byte, int64(overflow+1)*w.meta.pageSize)
		if _, err := w.r.ReadAt(buf, at); err != nil {
			return corrupt("page %d: %v", id, err)
		}
	}
	return w.elements(buf, id, low, high, depth)
}

func (w *treeWalk) elements(buf []byte, id uint64, low, high []byte, depth int) error {
	ne := binary.NativeEndian
	flags, count := ne.Uint16(buf[8:]), int(ne.Uint16(buf[10:]))
	if flags != flagBranch && flags != flagLeaf {
		return corrupt("page %d has type %#x", id, flags)
	}
	if pageHeader+count*elementSize > len(buf) || flags == flagBranch && count == 0 {
		return corrupt("page %d cannot have %d elements", id, count)
	}
	part := func(i int, pos, size uint64) ([]byte, error) {
		from := uint64(pageHeader+i*elementSize) + pos
		if pos < elementSize || from > uint64(len(buf)) || size > uint64(len(buf))-from {
			return nil, corrupt("element %d of page %d lies outside of it", i, id)
		}
		return buf[from : from+size], nil
	}
	keys := make([][]byte, count)
	for i := range keys {
		e := buf[pageHeader+i*elementSize:]
		pos, size := ne.Uint32(e), ne.Uint32(e[4:])
		if flags == flagLeaf {
			pos, size = ne.Uint32(e[4:]), ne.Uint32(e[8:])
		}
		key, err := part(i, uint64(pos), uint64(size))
		if err != nil {
			return err
		}
		if i > 0 && bytes.Compare(keys[i-1], key) >= 0 || i == 0 && low != nil && bytes.Compare(key, low) < 0 ||
			high != nil && bytes.Compare(key, high) >= 0 {
			return corrupt("key %d of page %d is out of order", i, id)
		}
		keys[i] = key
	}
	for i, key := range keys {
		e := buf[pageHeader+i*elementSize:]
		if flags == flagBranch {
			next := high
			if i+1 < count {
				next = keys[i+1]
			}
			if err := w.page(ne.Uint64(e[8:]), key, next, depth+1); err != nil {
				return err
			}
			continue
		}
		value, err := part(i, uint64(ne.Uint32(e[4:]))+uint64(len(key)), uint64(ne.Uint32(e[12:])))
		if err != nil {
			return err
		}
		switch ne.Uint32(e) {
		case 0:
		case 1:
			if err := w.bucket(value, id, i, depth); err != nil {
				return err
			}
		default:
			return corrupt("element %d of page %d has flags %#x", i, id, ne.Uint32(e))
		}
	}
	return nil
}

// bucket verifies the bucket that element i of page id holds.
func (w *treeWalk) bucket(value []byte, id uint64, i, depth int) error {
	if len(value) < bucketSize {
		return corrupt("bucket in element %d of page %d is cut off", i, id)
	}
	if root := binary.NativeEndian.Uint64(value); root != 0 {
		return w.page(root, nil, nil, depth+1)
	}
	inline := value[bucketSize:]
	if len(inline) < pageHeader || binary.NativeEndian.Uint16(inline[8:]) != flagLeaf || depth > maxDepth {
		return corrupt("bucket in element %d of page %d has no page", i, id)
	}
	return w.elements(inline, id, nil, nil, depth+1)
}
