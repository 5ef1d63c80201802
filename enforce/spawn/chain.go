package spawn

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// link is one file that exec opens: the program, or what interprets it.
type link struct {
	role string // "program", "interpreter" (#!) or "ELF interpreter"
	path string
	real string // without symbolic links
	err  error  // it could not be looked at
}

// maxChain is how often the kernel follows interpreters (exec_binprm in fs/exec.c).
const maxChain = 5

// execChain gives the files the kernel opens for exec of path, as far as the
// program's user can read them.
func execChain(c *Credential, path string) (chain []link) {
	if asUser(c, func() { chain = followChain(path) }) != nil {
		return nil
	}
	return chain
}

func followChain(path string) []link {
	var chain []link
	role := "program"
	for range maxChain + 1 {
		l := link{role: role, path: path}
		l.real, l.err = filepath.EvalSymlinks(path)
		var next string
		if l.err == nil {
			next, role, l.err = interpreterOf(l.real)
		}
		chain = append(chain, l)
		if next == "" || !filepath.IsAbs(next) {
			break
		}
		path = next
	}
	return chain
}

// interpreterOf gives what a file's head names as its interpreter, or "".
func interpreterOf(path string) (next, role string, err error) {
	// Not blocking, and only a regular file is read: the path may be anything.
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOCTTY, 0)
	if err != nil {
		return "", "", err
	}
	defer f.Close()
	if st, err := f.Stat(); err != nil || !st.Mode().IsRegular() {
		return "", "", fmt.Errorf("%s is not a regular file", path)
	}
	head := make([]byte, 256) // BINPRM_BUF_SIZE
	n, err := io.ReadFull(f, head)
	if err != nil && err != io.ErrUnexpectedEOF && err != io.EOF {
		return "", "", err
	}
	head = head[:n]
	if bytes.HasPrefix(head, []byte("#!")) {
		line, _, _ := bytes.Cut(head[2:], []byte("\n"))
		fields := strings.Fields(string(line))
		if len(fields) == 0 {
			return "", "", nil
		}
		return fields[0], "interpreter", nil
	}
	if bytes.HasPrefix(head, []byte(elfMagic)) {
		return elfInterpreter(f, head), "ELF interpreter", nil
	}
	return "", "", nil
}

// Of elf(5): e_ident, and the type of a program header.
const (
	elfMagic     = "\x7fELF"
	elfClass     = 4 // EI_CLASS
	elfClass64   = 2 // ELFCLASS64
	elfData      = 5 // EI_DATA
	elfBigEndian = 2 // ELFDATA2MSB
	elfInterp    = 3 // PT_INTERP
)

// elfInterpreter reads PT_INTERP of a 64-bit file of this byte order's machines
// ("" otherwise). debug/elf is not made for hostile files, and takes its time to
// be ready in every start of policyd-launch; this reads two bounded pieces.
func elfInterpreter(r io.ReaderAt, head []byte) string {
	const headSize, progSize, maxProgs, maxPath = 64, 56, 128, 4096
	if len(head) < headSize || head[elfClass] != elfClass64 {
		return ""
	}
	var order binary.ByteOrder = binary.LittleEndian
	if head[elfData] == elfBigEndian {
		order = binary.BigEndian
	}
	off, size, n := order.Uint64(head[32:]), order.Uint16(head[54:]), order.Uint16(head[56:])
	if size != progSize || n > maxProgs || off > 1<<40 {
		return ""
	}
	progs := make([]byte, int(n)*progSize)
	if _, err := r.ReadAt(progs, int64(off)); err != nil {
		return ""
	}
	for ; len(progs) >= progSize; progs = progs[progSize:] {
		if order.Uint32(progs) != elfInterp {
			continue
		}
		at, length := order.Uint64(progs[8:]), order.Uint64(progs[32:])
		if length < 2 || length > maxPath || at > 1<<40 {
			return ""
		}
		name := make([]byte, length)
		if _, err := r.ReadAt(name, int64(at)); err != nil {
			return ""
		}
		name, _, _ = bytes.Cut(name, []byte{0})
		return string(name)
	}
	return ""
}
