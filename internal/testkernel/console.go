package testkernel

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"strconv"
	"strings"
)

// Marks that init and the test in the guest put on the console, each after the guest's nonce, to the end of the line.
const (
	markStart = "start " // from here on the console is the program's
	markRan   = "ran "   // VERDICT NAME of a subtest
	markExit  = "exit "  // the program's exit status
	markFail  = "fail "  // init could not run the program: why
)

// console takes a guest's console apart into the program's output and the harness's marks. Its fields may be read once
// readFrom has returned.
type console struct {
	mark []byte // starts every mark
	kern string
	out  io.Writer
	all  bool          // what comes after the exit status is output too
	told chan struct{} // closed when the guest has nothing more to tell

	result
	started bool
	done    bool   // an exit status was seen
	failure string // why init did not run the program
	tail    []byte
}

func newConsole(in inside, out io.Writer) *console {
	if out == nil {
		out = io.Discard
	}
	return &console{
		mark: []byte(in.marker("")), kern: in.Kernel, out: out,
		told: make(chan struct{}), result: result{ran: map[string]string{}},
	}
}

// readFrom reads the console to its end. It goes on reading when the output's writer fails, so that the guest never
// blocks, and returns that error.
func (c *console) readFrom(r io.Reader) error {
	br := bufio.NewReaderSize(r, 64<<10)
	var outErr error
	for {
		line, err := readLine(br)
		c.keep(line)
		if err := c.line(line); err != nil && outErr == nil {
			outErr = err
		}
		switch {
		case errors.Is(err, io.EOF):
			return outErr
		case err != nil:
			return err
		}
	}
}

// errLongLine ends a guest whose console never ends a line.
var errLongLine = errors.New("line of more than 16 MiB")

// readLine reads to the next newline, which stays in the line.
func readLine(br *bufio.Reader) ([]byte, error) {
	var line []byte
	for {
		part, err := br.ReadSlice('\n')
		line = append(line, part...)
		if !errors.Is(err, bufio.ErrBufferFull) {
			return line, err
		}
		if len(line) > 16<<20 {
			return line, errLongLine
		}
	}
}

func (c *console) line(line []byte) error {
	text, mark, marked := bytes.Cut(line, c.mark)
	if c.started && (c.all || !c.done) && len(text) > 0 {
		if _, err := c.out.Write(text); err != nil {
			return err
		}
	}
	if !marked {
		return nil
	}
	m := strings.TrimRight(string(mark), "\r\n")
	switch {
	case m == strings.TrimSpace(markStart):
		c.started = true
	case strings.HasPrefix(m, markRan):
		verdict, name, _ := strings.Cut(m[len(markRan):], " ")
		c.ran[name] = verdict
	case strings.HasPrefix(m, markExit):
		if n, err := strconv.Atoi(m[len(markExit):]); err == nil && !c.done {
			c.exit, c.done = n, true
			close(c.told)
		}
	case strings.HasPrefix(m, markFail):
		c.failure = m[len(markFail):]
	}
	return nil
}

// keep remembers the last of what the console showed, for error messages.
func (c *console) keep(line []byte) {
	const size = 8 << 10
	c.tail = append(c.tail, line...)
	if len(c.tail) > 2*size {
		c.tail = append(c.tail[:0], c.tail[len(c.tail)-size:]...)
	}
}

func (c *console) error(reason string, err error) error {
	tail := strings.ReplaceAll(string(c.tail), "\r", "")
	tail = strings.ReplaceAll(tail, string(c.mark), "[harness] ")
	return &GuestError{Kernel: c.kern, Reason: reason, Console: strings.TrimSpace(tail), Err: err}
}
