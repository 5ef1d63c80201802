package decide

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
)

const (
	// maxInterpreters is how many #! interpreters a program may go through one
	// after another; that of ELF does not count (exec_binprm in fs/exec.c).
	maxInterpreters = 5

	headSize       = 256      // BINPRM_BUF_SIZE: what of a #! line counts
	maxElfHeaders  = 64 << 10 // ELF_MIN_ALIGN in load_elf_phdrs, at most
	maxElfProgName = 4096     // PATH_MAX, load_elf_binary
	elfHeader32    = 52       // sizeof(Elf32_Ehdr)
	elfHeader64    = 64       // sizeof(Elf64_Ehdr)
)

// interpreter gives the program the kernel needs besides to execute path, a
// regular file: that of a #! line (script) or of ELF's PT_INTERP, or "". Errors
// wrap ENOEXEC for what is neither.
func interpreter(path string) (name string, script bool, err error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // it may be a named pipe by now
	if err != nil {
		return "", false, err
	}
	defer f.Close()
	head := make([]byte, headSize)
	n, err := f.ReadAt(head, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return "", false, err
	}
	if head = head[:n]; bytes.HasPrefix(head, []byte("#!")) {
		name, _, err = InterpreterLine(head)
		return name, true, err
	}
	name, err = elfInterpreter(f, head)
	return name, false, err
}

// InterpreterLine reads the #! line at the head of a script, of which the first
// 256 bytes count, as load_script in fs/binfmt_script.c does: one word, and all
// the rest as one argument. Nothing but blanks and tabs end the word: a carriage
// return belongs to it. The error is of a line that is none, ENOEXEC.
func InterpreterLine(head []byte) (name, argument string, err error) {
	head = head[:min(len(head), headSize)]
	line, _, ended := bytes.Cut(head[2:], []byte("\n"))
	line, _, nul := bytes.Cut(line, []byte{0})
	text := strings.TrimLeft(string(line), " \t")
	end := strings.IndexAny(text, " \t")
	switch {
	case text == "":
		return "", "", fmt.Errorf("no interpreter behind #!: %w", syscall.ENOEXEC)
	case end < 0 && !ended && !nul && len(head) == headSize:
		return "", "", fmt.Errorf("the #! line is longer than %d bytes: %w", headSize, syscall.ENOEXEC)
	case end < 0:
		return text, "", nil
	}
	return text[:end], strings.Trim(text[end:], " \t"), nil
}

// elfInterpreter gives the name in the first PT_INTERP, by the program headers
// alone, as load_elf_binary in fs/binfmt_elf.c reads them: what sections say, if
// there are any, does not matter. head is the beginning of the file.
func elfInterpreter(f io.ReaderAt, head []byte) (string, error) {
	no := func(why string) error {
		return fmt.Errorf("%s: %w", why, syscall.ENOEXEC)
	}
	if !bytes.HasPrefix(head, []byte(elf.ELFMAG)) || len(head) < elfHeader32 {
		return "", no("neither an ELF file nor a script with #!")
	}
	order := binary.NativeEndian
	wide := elf.Class(head[elf.EI_CLASS]) == elf.ELFCLASS64
	entry, start := 32, uint64(order.Uint32(head[28:]))
	have, count := int(order.Uint16(head[42:])), int(order.Uint16(head[44:]))
	if wide {
		if len(head) < elfHeader64 {
			return "", no("the ELF header is cut off")
		}
		entry, start = 56, order.Uint64(head[32:])
		have, count = int(order.Uint16(head[54:])), int(order.Uint16(head[56:]))
	}
	if have != entry || count == 0 || count*entry > maxElfHeaders {
		return "", no("ELF program headers that make no sense")
	}
	read := func(at, size uint64) ([]byte, error) {
		if at > 1<<62 {
			return nil, no("ELF file that is cut off")
		}
		b := make([]byte, size)
		if n, err := f.ReadAt(b, int64(at)); n < len(b) {
			if errors.Is(err, io.EOF) {
				err = no("ELF file that is cut off")
			}
			return nil, err
		}
		return b, nil
	}
	headers, err := read(start, uint64(count*entry))
	if err != nil {
		return "", err
	}
	for ; len(headers) > 0; headers = headers[entry:] {
		if elf.ProgType(order.Uint32(headers)) != elf.PT_INTERP {
			continue
		}
		at, size := uint64(order.Uint32(headers[4:])), uint64(order.Uint32(headers[16:]))
		if wide {
			at, size = order.Uint64(headers[8:]), order.Uint64(headers[32:])
		}
		if size < 2 || size > maxElfProgName {
			return "", no("ELF interpreter's name of a length that cannot be")
		}
		name, err := read(at, size)
		if err != nil {
			return "", err
		}
		if name[size-1] != 0 {
			return "", no("ELF interpreter's name without an end")
		}
		name, _, _ = bytes.Cut(name, []byte{0})
		return string(name), nil
	}
	return "", nil
}
