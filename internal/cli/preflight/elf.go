package preflight

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
)

// Bounds for what is read of one ELF file. The kernel allows 64 KiB of program
// headers (load_elf_phdrs) and an interpreter's name of PATH_MAX.
const (
	maxHeaders     = 64 << 10
	maxInterp      = 4096
	maxDynamic     = 1 << 20
	maxNeeded      = 1024
	maxNameLength  = 4096
	maxSearchPath  = 64 << 10
	maxOffset      = 1 << 46
	dfOneNoDefault = 0x800 // DF_1_NODEFLIB
)

var (
	errNotRegular = errors.New("no regular file")
	errNotELF     = errors.New("no ELF file")
	errDamaged    = errors.New("damaged ELF file")
)

// object is what the loader looks at in an ELF file.
type object struct {
	class   elf.Class
	machine elf.Machine
	data    elf.Data
	kind    elf.Type
	interp  string // PT_INTERP
	dynamic bool   // has PT_DYNAMIC

	needed              []string // DT_NEEDED, in order
	soname              string
	rpath, runpath      string // as written; "" for none
	noDefaults, filters bool   // DF_1_NODEFLIB; DT_FILTER, DT_AUXILIARY or DT_AUDIT
}

// segment is the part of PT_LOAD that is in the file.
type segment struct{ vaddr, offset, size uint64 }

// elfFile reads fields of either class and byte order.
type elfFile struct {
	r     io.ReaderAt
	order binary.ByteOrder
	wide  bool
}

func (e *elfFile) word(b []byte) uint64 {
	if e.wide {
		return e.order.Uint64(b)
	}
	return uint64(e.order.Uint32(b))
}

func (e *elfFile) read(at, length uint64, what string) ([]byte, error) {
	if at > maxOffset {
		return nil, fmt.Errorf("%w: %s at %#x", errDamaged, what, at)
	}
	b := make([]byte, length)
	if _, err := e.r.ReadAt(b, int64(at)); err != nil {
		if errors.Is(err, io.EOF) {
			return nil, fmt.Errorf("%w: it ends before its %s", errDamaged, what)
		}
		return nil, err
	}
	return b, nil
}

// readELF reads a file by its program headers alone, as kernel and loader do:
// elf(5). The sections that debug/elf begins with may be missing or lie.
func readELF(r io.ReaderAt) (*object, error) {
	ident := make([]byte, 64)
	n, err := r.ReadAt(ident, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if ident = ident[:n]; !bytes.HasPrefix(ident, []byte(elf.ELFMAG)) {
		return nil, errNotELF
	}
	e := &elfFile{r: r, order: binary.LittleEndian}
	o := &object{}
	if len(ident) > elf.EI_DATA {
		o.class, o.data = elf.Class(ident[elf.EI_CLASS]), elf.Data(ident[elf.EI_DATA])
	}
	size := 52
	switch o.class {
	case elf.ELFCLASS32:
	case elf.ELFCLASS64:
		e.wide, size = true, 64
	default:
		return nil, fmt.Errorf("%w: class %d", errDamaged, o.class)
	}
	if len(ident) < size {
		return nil, fmt.Errorf("%w: it ends before its header does", errDamaged)
	}
	switch o.data {
	case elf.ELFDATA2LSB:
	case elf.ELFDATA2MSB:
		e.order = binary.BigEndian
	default:
		return nil, fmt.Errorf("%w: byte order %d", errDamaged, o.data)
	}
	o.kind, o.machine = elf.Type(e.order.Uint16(ident[16:])), elf.Machine(e.order.Uint16(ident[18:]))
	headers, entry, count := e.word(ident[28:]), 32, e.order.Uint16(ident[44:])
	have := e.order.Uint16(ident[42:])
	if e.wide {
		headers, entry = e.word(ident[32:]), 56
		have, count = e.order.Uint16(ident[54:]), e.order.Uint16(ident[56:])
	}
	if int(have) != entry || count == 0 || int(count)*entry > maxHeaders {
		return nil, fmt.Errorf("%w: %d program headers of %d bytes", errDamaged, count, have)
	}
	b, err := e.read(headers, uint64(count)*uint64(entry), "program headers")
	if err != nil {
		return nil, err
	}
	return o, e.segments(o, b, entry)
}

// segments reads what program headers name.
func (e *elfFile) segments(o *object, headers []byte, entry int) error {
	var loads []segment
	var dynamic *segment
	for h := range slices.Chunk(headers, entry) {
		s := segment{offset: e.word(h[4:]), vaddr: e.word(h[8:]), size: e.word(h[16:])}
		if e.wide {
			s = segment{offset: e.word(h[8:]), vaddr: e.word(h[16:]), size: e.word(h[32:])}
		}
		switch elf.ProgType(e.order.Uint32(h)) {
		case elf.PT_LOAD:
			loads = append(loads, s)
		case elf.PT_DYNAMIC:
			dynamic = &s
		case elf.PT_INTERP:
			if o.interp != "" {
				continue // the kernel takes the first
			}
			if s.size < 2 || s.size > maxInterp {
				return fmt.Errorf("%w: interpreter's name of %d bytes", errDamaged, s.size)
			}
			name, err := e.read(s.offset, s.size, "interpreter's name")
			if err != nil {
				return err
			}
			if name[len(name)-1] != 0 || name[0] == 0 {
				return fmt.Errorf("%w: interpreter's name without an end", errDamaged)
			}
			name, _, _ = bytes.Cut(name, []byte{0})
			o.interp = string(name)
		}
	}
	if dynamic == nil {
		return nil
	}
	o.dynamic = true
	return e.dynamic(o, *dynamic, loads)
}

// dynamic reads the dynamic section: which libraries, and where to look.
func (e *elfFile) dynamic(o *object, d segment, loads []segment) error {
	if d.size > maxDynamic {
		return fmt.Errorf("%w: dynamic section of %d bytes", errDamaged, d.size)
	}
	b, err := e.read(d.offset, d.size, "dynamic section")
	if err != nil {
		return err
	}
	width := 4
	if e.wide {
		width = 8
	}
	var needed []uint64
	var strtab, strsz, soname, rpath, runpath uint64
	var hasSoname, hasRpath, hasRunpath bool
scan:
	for ; len(b) >= 2*width; b = b[2*width:] {
		value := e.word(b[width:])
		switch tag := elf.DynTag(int32(e.word(b))); tag { // tags fit 32 bits
		case elf.DT_NULL:
			break scan
		case elf.DT_NEEDED:
			if len(needed) == maxNeeded {
				return fmt.Errorf("%w: more than %d libraries", errDamaged, maxNeeded)
			}
			needed = append(needed, value)
		case elf.DT_STRTAB:
			strtab = value
		case elf.DT_STRSZ:
			strsz = value
		case elf.DT_SONAME:
			soname, hasSoname = value, true
		case elf.DT_RPATH:
			rpath, hasRpath = value, true
		case elf.DT_RUNPATH:
			runpath, hasRunpath = value, true
		case elf.DT_FLAGS_1:
			o.noDefaults = value&dfOneNoDefault != 0
		case elf.DT_FILTER, elf.DT_AUXILIARY, elf.DT_AUDIT, elf.DT_DEPAUDIT:
			o.filters = true
		}
	}
	if len(needed) == 0 && !hasSoname {
		return nil
	}
	at, ok := fileOffset(loads, strtab)
	if !ok {
		return fmt.Errorf("%w: strings at %#x are in no segment", errDamaged, strtab)
	}
	text := func(offset, max uint64) (s string) {
		if err == nil {
			s, err = e.text(at, offset, strsz, max)
		}
		return s
	}
	for _, n := range needed {
		o.needed = append(o.needed, text(n, maxNameLength))
	}
	if hasSoname {
		o.soname = text(soname, maxNameLength)
	}
	if hasRunpath { // then DT_RPATH does not count: ld.so(8)
		o.runpath = text(runpath, maxSearchPath)
	} else if hasRpath {
		o.rpath = text(rpath, maxSearchPath)
	}
	return err
}

// fileOffset finds where in the file an address of memory comes from.
func fileOffset(loads []segment, vaddr uint64) (uint64, bool) {
	for _, l := range loads {
		if vaddr >= l.vaddr && vaddr-l.vaddr < l.size {
			return l.offset + (vaddr - l.vaddr), true
		}
	}
	return 0, false
}

// text reads a string of the string table, which must end within it.
func (e *elfFile) text(table, offset, size, max uint64) (string, error) {
	if offset >= size || table > maxOffset || offset > maxOffset {
		return "", fmt.Errorf("%w: string %#x is not in its table of %#x bytes", errDamaged, offset, size)
	}
	var got []byte
	max = min(max, size-offset)
	for uint64(len(got)) < max {
		piece := make([]byte, min(256, max-uint64(len(got))))
		n, err := e.r.ReadAt(piece, int64(table+offset)+int64(len(got)))
		if end := bytes.IndexByte(piece[:n], 0); end >= 0 {
			return string(append(got, piece[:end]...)), nil
		}
		got = append(got, piece[:n]...)
		if err != nil {
			break
		}
	}
	return "", fmt.Errorf("%w: string without an end", errDamaged)
}

// fits tells that a library is of the program's kind: loaders pass over others
// (open_verify in glibc's dl-load.c).
func (o *object) fits(program *object) bool {
	return o.class == program.class && o.data == program.data && o.machine == program.machine
}

// native tells that this kernel executes such a file itself, not by binfmt_misc.
func (o *object) native() bool {
	own := map[string][]elf.Machine{
		"amd64": {elf.EM_X86_64, elf.EM_386}, "386": {elf.EM_386},
		"arm64": {elf.EM_AARCH64, elf.EM_ARM}, "arm": {elf.EM_ARM},
		"riscv64": {elf.EM_RISCV}, "ppc64": {elf.EM_PPC64, elf.EM_PPC}, "ppc64le": {elf.EM_PPC64},
		"s390x": {elf.EM_S390}, "loong64": {elf.EM_LOONGARCH},
		"mips64": {elf.EM_MIPS}, "mips64le": {elf.EM_MIPS}, "mips": {elf.EM_MIPS}, "mipsle": {elf.EM_MIPS},
	}[runtime.GOARCH]
	return own == nil || slices.Contains(own, o.machine)
}
