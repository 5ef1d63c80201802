package containers

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
)

// headers is how much of a program is looked at for its program headers, bytes: linkers put them right behind the
// header, and the kernel itself reads no more than a page of them (elf(5), fs/binfmt_elf.c load_elf_phdrs).
const headers = 4096

// CheckLauncher refuses a launcher that no container could start: one that not everybody may execute, and one that is
// linked dynamically. It is mounted into containers alone, and of its loader the kernel would say there that the
// launcher itself is not there. Errors begin with "launcher: " and wrap ErrLauncher, or those of os.
func CheckLauncher(path string) error {
	st, err := os.Stat(path)
	if err != nil {
		return fmt.Errorf("launcher: %w", err)
	}
	if !st.Mode().IsRegular() || st.Mode()&0o111 != 0o111 {
		return fmt.Errorf("launcher: %s cannot be executed by everybody (mode %v): %w", path, st.Mode(), ErrLauncher)
	}
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrPermission) {
		return nil // it may be for executing alone
	}
	if err != nil {
		return fmt.Errorf("launcher: %w", err)
	}
	defer f.Close()
	b := make([]byte, headers)
	n, err := f.ReadAt(b, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("launcher: %w", err)
	}
	if interpreted(b[:n]) {
		return fmt.Errorf("launcher: %s is linked dynamically, and containers have not what it is linked with: build it with CGO_ENABLED=0 and not as PIE, as `make build` does: %w", path, ErrLauncher)
	}
	return nil
}

// interpreted tells that a program whose file begins so has a program header of the type PT_INTERP, 3: the loader that
// the kernel starts in its place (elf(5)). What is no ELF file has none.
func interpreted(b []byte) bool {
	if len(b) < 52 || string(b[:4]) != "\x7fELF" {
		return false
	}
	var order binary.ByteOrder = binary.LittleEndian
	if b[5] == 2 {
		order = binary.BigEndian
	}
	var off, size, count uint64
	if b[4] == 2 && len(b) >= 64 {
		off, size, count = order.Uint64(b[32:]), uint64(order.Uint16(b[54:])), uint64(order.Uint16(b[56:]))
	} else {
		off, size, count = uint64(order.Uint32(b[28:])), uint64(order.Uint16(b[42:])), uint64(order.Uint16(b[44:]))
	}
	end := uint64(len(b)) - 4
	for ; count > 0 && off <= end; count, off = count-1, off+size {
		if order.Uint32(b[off:]) == 3 {
			return true
		}
	}
	return false
}
