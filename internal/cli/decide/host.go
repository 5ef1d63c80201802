package decide

import (
	"bufio"
	"debug/elf"
	"errors"
	"io"
	"io/fs"
	"os"
	"strings"
	"syscall"
)

// maxInterpreters is how many #! and ELF interpreters a program may go through
// (the kernel's limit of 5 in exec_binprm, counted from the program).
const maxInterpreters = 5

// inode names an object on this host.
type inode struct {
	dev, ino uint64
}

// look follows symbolic links, as the kernel does for a rule and for open.
func look(path string) (id inode, dir bool, err error) {
	st, err := os.Stat(path)
	if err != nil {
		return inode{}, false, err
	}
	s, ok := st.Sys().(*syscall.Stat_t)
	if !ok {
		return inode{}, false, errors.New(path + ": no inode number")
	}
	return inode{s.Dev, s.Ino}, st.IsDir(), nil
}

func isMissing(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR)
}

// interpreter gives the program the kernel needs besides to execute path: that
// of a #! line or of ELF's PT_INTERP, or "".
func interpreter(path string) (string, error) {
	// Looked at first: opening a named pipe would wait for a writer.
	if st, err := os.Stat(path); err != nil || !st.Mode().IsRegular() {
		return "", errors.Join(err, errors.New("no regular file"))
	}
	f, err := os.Open(path)
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
