package decide

import (
	"bufio"
	"debug/elf"
	"errors"
	"io"
	"os"
	"strings"
	"syscall"
)

// maxInterpreters is how many #! and ELF interpreters a program may go through
// (the kernel's limit of 5 in exec_binprm, counted from the program).
const maxInterpreters = 5

// interpreter gives the program the kernel needs besides to execute path, a
// regular file: that of a #! line or of ELF's PT_INTERP, or "".
func interpreter(path string) (string, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // it may be a named pipe by now
	if err != nil {
		return "", err
	}
	defer f.Close()
	head := make([]byte, 256) // BINPRM_BUF_SIZE
	n, err := io.ReadFull(f, head)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF) {
		return "", err
	}
	head = head[:n]
	if strings.HasPrefix(string(head), "#!") {
		line, _, _ := strings.Cut(string(head[2:]), "\n")
		if fields := strings.Fields(line); len(fields) > 0 {
			return fields[0], nil
		}
		return "", nil
	}
	if !strings.HasPrefix(string(head), elf.ELFMAG) {
		return "", nil
	}
	file, err := elf.NewFile(f)
	if err != nil {
		return "", err
	}
	for _, p := range file.Progs {
		if p.Type == elf.PT_INTERP {
			name, err := bufio.NewReader(io.LimitReader(p.Open(), syscall.PathMax)).ReadString(0)
			if err != nil && !errors.Is(err, io.EOF) {
				return "", err
			}
			return strings.TrimRight(name, "\x00"), nil
		}
	}
	return "", nil
}
