package ask

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"strconv"

	"golang.org/x/net/http2/hpack"
)

// Frames of HTTP/2 (RFC 9113, section 6).
const (
	frameData, frameHeaders, frameReset, frameSettings   = 0x0, 0x1, 0x3, 0x4
	framePush, framePing, frameGoAway, frameWindowUpdate = 0x5, 0x6, 0x7, 0x8
	frameContinuation                                    = 0x9

	flagAck, flagEndStream, flagEndHeaders, flagPadded, flagPriority = 0x1, 0x1, 0x4, 0x8, 0x20

	settingPush, settingWindow = 0x2, 0x4

	preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
	stream  = 1
)

// Limits. What may be sent and is not read for a while is bounded by the windows, which are the whole answer.
const (
	maxFrame   = 16384 // the smallest that the protocol allows to be set, and what is left as it is
	maxHeaders = 1 << 20
	maxAnswer  = 64 << 20 // that of policyctl
	firstOpen  = 65535    // windows of a connection and of a stream, until the other side says otherwise
)

// roundTrip sends one message and gives the one that comes back. Its errors are of type *Error where the server has
// said something, whatever it was.
func roundTrip(conn io.ReadWriter, path string, request []byte) ([]byte, error) {
	body := append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(request))), request...)
	c := &call{conn: conn, body: body, room: firstOpen, streamRoom: firstOpen, table: hpack.NewDecoder(4096, nil)}
	c.out = append(c.out, preface...)
	c.setting(settingPush, 0, settingWindow, maxAnswer)
	c.frame(frameWindowUpdate, 0, 0, binary.BigEndian.AppendUint32(nil, maxAnswer))
	c.frame(frameHeaders, flagEndHeaders, stream, headers(path))
	for !c.done {
		c.pour()
		if err := c.flush(); err != nil {
			// A server that refuses may do so before it has read all, and close.
			if !c.readable() || !c.done {
				return nil, err
			}
			break
		}
		if err := c.next(); err != nil {
			return nil, err
		}
	}
	return c.message()
}

// headers of a call (gRPC over HTTP/2, "Requests").
func headers(path string) []byte {
	var b bytes.Buffer
	e := hpack.NewEncoder(&b)
	e.SetMaxDynamicTableSize(0)
	for _, f := range [...][2]string{
		{":method", "POST"},
		{":scheme", "http"},
		{":path", path},
		{":authority", "policyd"},
		{"te", "trailers"},
		{"content-type", "application/grpc"},
		{"user-agent", "policyd-runc"},
	} {
		_ = e.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]}) // a buffer takes all
	}
	return b.Bytes()
}

// call is one stream and its connection.
type call struct {
	conn io.ReadWriter
	out  []byte // to be written
	in   []byte // read and not looked at
	body []byte // of the request, not yet in out

	room, streamRoom int64 // what the server takes
	initialRoom      int64 // change of it by settings

	table   *hpack.Decoder
	block   []byte // of headers that go on
	partial bool   // more of block comes
	ended   bool   // the stream ends with block

	answer []byte
	status map[string]string // the headers that matter
	done   bool
}

func (c *call) frame(kind, flags byte, id uint32, payload []byte) {
	n := len(payload)
	c.out = append(c.out, byte(n>>16), byte(n>>8), byte(n), kind, flags)
	c.out = binary.BigEndian.AppendUint32(c.out, id)
	c.out = append(c.out, payload...)
}

func (c *call) setting(pairs ...uint32) {
	var b []byte
	for i := 0; i < len(pairs); i += 2 {
		b = binary.BigEndian.AppendUint16(b, uint16(pairs[i]))
		b = binary.BigEndian.AppendUint32(b, pairs[i+1])
	}
	c.frame(frameSettings, 0, 0, b)
}

// pour makes frames of as much of the request as the server takes.
func (c *call) pour() {
	for len(c.body) > 0 {
		n := min(int64(len(c.body)), maxFrame, c.room, c.streamRoom)
		if n <= 0 {
			return
		}
		var flags byte
		if n == int64(len(c.body)) {
			flags = flagEndStream
		}
		c.frame(frameData, flags, stream, c.body[:n])
		c.body = c.body[n:]
		c.room -= n
		c.streamRoom -= n
	}
}

func (c *call) flush() error {
	if len(c.out) == 0 {
		return nil
	}
	_, err := c.conn.Write(c.out)
	c.out = c.out[:0]
	return err
}

// readable takes in what has come before the other side closed.
func (c *call) readable() bool {
	for !c.done {
		if c.next() != nil {
			return false
		}
	}
	return true
}

// next reads one frame and does what it asks for.
func (c *call) next() error {
	head, err := c.take(9)
	if err != nil {
		return err
	}
	size := int(head[0])<<16 | int(head[1])<<8 | int(head[2])
	kind, flags, id := head[3], head[4], binary.BigEndian.Uint32(head[5:])&(1<<31-1)
	if size > maxFrame {
		return broken("a frame of %d bytes", size)
	}
	payload, err := c.take(size)
	if err != nil {
		return err
	}
	if c.partial && kind != frameContinuation {
		return broken("a frame of type %d among headers", kind)
	}
	switch kind {
	case frameSettings:
		return c.settings(flags, payload)
	case framePing:
		if flags&flagAck == 0 {
			c.frame(framePing, flagAck, 0, payload)
		}
	case frameWindowUpdate:
		return c.opened(id, payload)
	case frameGoAway:
		if len(payload) < 8 {
			return broken("a short GOAWAY")
		}
		if binary.BigEndian.Uint32(payload)&(1<<31-1) < stream {
			return errStopping
		}
	case framePush:
		return broken("a push")
	case frameData, frameHeaders, frameReset, frameContinuation:
		if id != stream {
			return broken("a frame of type %d of stream %d", kind, id)
		}
		return c.ofStream(kind, flags, payload)
	}
	return nil // others are to be ignored (RFC 9113, section 5.5)
}

// take gives n bytes of what comes; they are good until the next take.
func (c *call) take(n int) ([]byte, error) {
	for len(c.in) < n {
		if cap(c.in)-len(c.in) < 4096 {
			c.in = append(make([]byte, 0, max(2*maxFrame, 2*len(c.in))), c.in...)
		}
		m, err := c.conn.Read(c.in[len(c.in):cap(c.in)])
		c.in = c.in[:len(c.in)+m]
		if m == 0 {
			if err == nil || errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return nil, err
		}
	}
	b := c.in[:n:n]
	c.in = c.in[n:]
	return b, nil
}

func (c *call) settings(flags byte, b []byte) error {
	if flags&flagAck != 0 {
		return nil
	}
	if len(b)%6 != 0 {
		return broken("settings of %d bytes", len(b))
	}
	for ; len(b) > 0; b = b[6:] {
		// Frames are kept within what every server takes, and headers need no table of the server's, so the windows are all that counts.
		if binary.BigEndian.Uint16(b) == settingWindow {
			initial := int64(binary.BigEndian.Uint32(b[2:])) - firstOpen
			c.streamRoom += initial - c.initialRoom
			c.initialRoom = initial
		}
	}
	c.frame(frameSettings, flagAck, 0, nil)
	return nil
}

func (c *call) opened(id uint32, b []byte) error {
	if len(b) != 4 {
		return broken("a window of %d bytes", len(b))
	}
	n := int64(binary.BigEndian.Uint32(b) & (1<<31 - 1))
	switch id {
	case 0:
		c.room += n
	case stream:
		c.streamRoom += n
	}
	return nil
}

func (c *call) ofStream(kind, flags byte, b []byte) error {
	switch kind {
	case frameReset:
		if len(b) == 4 && binary.BigEndian.Uint32(b) == 0 && c.status != nil {
			return broken("the answer is cut off")
		}
		return &Error{codeUnavailable, "policyd gave up the call"}
	case frameContinuation:
		if !c.partial {
			return broken("headers that go on from nothing")
		}
	default:
		var err error
		if b, err = unpadded(flags, b); err != nil {
			return err
		}
		c.ended = flags&flagEndStream != 0
	}
	if kind == frameData {
		if c.status == nil {
			return broken("an answer without headers")
		}
		if len(c.answer)+len(b) > maxAnswer {
			return &Error{codeInternal, "policyd's answer has more than " + strconv.Itoa(maxAnswer) + " bytes"}
		}
		c.answer = append(c.answer, b...)
		c.done = c.ended
		return nil
	}
	if kind == frameHeaders && flags&flagPriority != 0 {
		if len(b) < 5 {
			return broken("short headers")
		}
		b = b[5:]
	}
	if len(c.block)+len(b) > maxHeaders {
		return broken("headers of more than %d bytes", maxHeaders)
	}
	c.block = append(c.block, b...)
	if c.partial = flags&flagEndHeaders == 0; c.partial {
		return nil
	}
	return c.headers()
}

func unpadded(flags byte, b []byte) ([]byte, error) {
	if flags&flagPadded == 0 {
		return b, nil
	}
	if len(b) == 0 || int(b[0]) >= len(b) {
		return nil, broken("wrong padding")
	}
	return b[1 : len(b)-int(b[0])], nil
}

func (c *call) headers() error {
	all, err := c.table.DecodeFull(c.block)
	if err != nil {
		return broken("headers: %v", err)
	}
	c.block = c.block[:0]
	if c.status == nil {
		c.status = map[string]string{}
	}
	for _, h := range all {
		switch h.Name {
		case ":status", "grpc-status", "grpc-message", "grpc-encoding":
			c.status[h.Name] = h.Value
		}
	}
	c.done = c.ended
	return nil
}

// message is that of the answer, or the error that was given instead.
func (c *call) message() ([]byte, error) {
	if s := c.status[":status"]; s != "200" {
		return nil, broken("HTTP status %q", s)
	}
	code, err := strconv.ParseUint(c.status["grpc-status"], 10, 31)
	if err != nil {
		return nil, broken("status %q", c.status["grpc-status"])
	}
	if code != 0 {
		return nil, &Error{int(code), unescaped(c.status["grpc-message"])}
	}
	if len(c.answer) < 5 || c.answer[0] != 0 || uint64(binary.BigEndian.Uint32(c.answer[1:])) != uint64(len(c.answer)-5) {
		return nil, broken("not one plain message")
	}
	return c.answer[5:], nil
}

// unescaped undoes gRPC's percent-encoding of messages; what is none stays as it is.
func unescaped(s string) string {
	var b []byte
	for i := 0; i < len(s); i++ {
		if s[i] == '%' && i+2 < len(s) {
			if n, err := strconv.ParseUint(s[i+1:i+3], 16, 8); err == nil {
				b = append(b, byte(n))
				i += 2
				continue
			}
		}
		b = append(b, s[i])
	}
	return string(b)
}
