package sandbox

// tailKept is how much of the output that was given to send is kept for the case that the client does not get it
// before the connection ends: more than gRPC takes of a stream before it holds back its sender (64 KiB and a message)
// and writes at a time (32 KiB), bytes.
const tailKept = 192 << 10

// tail is how far an output has come, with its last bytes. Offsets count bytes since the sandbox was started.
type tail struct {
	keep int // 0: none
	data []byte
	read uint64 // from the program
	sent uint64 // of that, given to send
}

func (t *tail) add(p []byte) {
	t.read += uint64(len(p))
	if t.keep == 0 {
		return
	}
	t.data = append(t.data, p...)
	// Now and then, so that copying costs less than what was read.
	if over := len(t.data) - t.keep; over > t.keep/2 {
		t.data = t.data[:copy(t.data, t.data[over:])]
	}
}

// from is what was read behind an offset; ok is false when that is not kept, or the offset is none.
func (t *tail) from(offset uint64) (p []byte, ok bool) {
	n := t.read - offset
	if offset > t.read || n > uint64(len(t.data)) {
		return nil, false
	}
	return t.data[uint64(len(t.data))-n:], true
}
