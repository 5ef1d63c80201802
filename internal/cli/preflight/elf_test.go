package preflight

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"policyd.dev/policyd/internal/testkernel"
)

// image is an ELF file with program headers alone.
type image struct {
	class   elf.Class
	order   binary.AppendByteOrder
	machine elf.Machine
	interp  string
	needed  []string
	soname  string
	rpath   string
	runpath string
	filter  string
	flags1  uint64
	extra   []byte // behind all, such as a loader's strings
}

func (m image) bytes() []byte {
	wide := m.class == elf.ELFCLASS64
	word := func(b []byte, v uint64) []byte {
		if wide {
			return m.order.AppendUint64(b, v)
		}
		return m.order.AppendUint32(b, uint32(v))
	}
	head, entry := 52, 32
	if wide {
		head, entry = 64, 56
	}
	at := uint64(head + 3*entry)
	body := []byte(m.interp + "\x00")
	table := []byte{0}
	var dyn []byte
	tag := func(t elf.DynTag, v uint64) { dyn = word(word(dyn, uint64(t)), v) }
	text := func(t elf.DynTag, s string) {
		tag(t, uint64(len(table)))
		table = append(table, s+"\x00"...)
	}
	for _, n := range m.needed {
		text(elf.DT_NEEDED, n)
	}
	for t, s := range map[elf.DynTag]string{elf.DT_SONAME: m.soname, elf.DT_RPATH: m.rpath, elf.DT_RUNPATH: m.runpath, elf.DT_AUXILIARY: m.filter} {
		if s != "" {
			text(t, s)
		}
	}
	tag(elf.DT_FLAGS_1, m.flags1)
	strtab := at + uint64(len(body))
	body = append(body, table...)
	const base = 0x400000
	tag(elf.DT_STRTAB, base+strtab)
	tag(elf.DT_STRSZ, uint64(len(table)))
	tag(elf.DT_NULL, 0)
	dynamic := at + uint64(len(body))
	body = append(append(body, dyn...), m.extra...)

	data := elf.ELFDATA2LSB
	if m.order == binary.AppendByteOrder(binary.BigEndian) {
		data = elf.ELFDATA2MSB
	}
	b := append([]byte(elf.ELFMAG), byte(m.class), byte(data), 1)
	b = append(b, make([]byte, 9)...)
	b = m.order.AppendUint16(b, uint16(elf.ET_DYN))
	b = m.order.AppendUint16(b, uint16(m.machine))
	b = m.order.AppendUint32(b, 1)
	b = word(word(word(b, 0), uint64(head)), 0)
	b = m.order.AppendUint32(b, 0)
	for _, v := range []int{head, entry, 3, 0, 0, 0} {
		b = m.order.AppendUint16(b, uint16(v))
	}
	prog := func(t elf.ProgType, offset, size uint64) {
		b = m.order.AppendUint32(b, uint32(t))
		if wide {
			b = m.order.AppendUint32(b, 5)
		}
		b = word(word(word(b, offset), base+offset), base+offset)
		b = word(word(b, size), size)
		if !wide {
			b = m.order.AppendUint32(b, 5)
		}
		b = word(b, 1)
	}
	interp := elf.PT_INTERP
	if m.interp == "" {
		interp = elf.PT_NULL
	}
	prog(interp, at, uint64(len(m.interp)+1))
	prog(elf.PT_LOAD, 0, at+uint64(len(body)))
	prog(elf.PT_DYNAMIC, dynamic, uint64(len(dyn)))
	return append(b, body...)
}

func native() image {
	return image{class: elf.ELFCLASS64, order: binary.LittleEndian, machine: elf.EM_X86_64}
}

// Fields are found in files of either class and byte order.
func TestReadELF(t *testing.T) {
	for _, class := range []elf.Class{elf.ELFCLASS32, elf.ELFCLASS64} {
		for _, order := range []binary.AppendByteOrder{binary.LittleEndian, binary.BigEndian} {
			m := image{class: class, order: order, machine: elf.EM_ARM, interp: "/lib/ld.so.1", needed: []string{"liba.so", strings.Repeat("b", 300)}, soname: "me", rpath: "/r", flags1: dfOneNoDefault}
			o, err := readELF(bytes.NewReader(m.bytes()))
			if err != nil {
				t.Fatalf("%v %v: %v", class, order, err)
			}
			if o.class != class || o.machine != elf.EM_ARM || o.interp != m.interp || !slices.Equal(o.needed, m.needed) || o.soname != "me" || o.rpath != "/r" || o.runpath != "" || !o.noDefaults {
				t.Errorf("%v %v: %+v", class, order, o)
			}
			m.runpath = "/run"
			if o, err = readELF(bytes.NewReader(m.bytes())); err != nil || o.rpath != "" || o.runpath != "/run" {
				t.Errorf("RUNPATH does not replace RPATH: %+v, %v", o, err)
			}
		}
	}
}

// A file cut anywhere is damaged, or says less; it never says something else.
func TestTruncatedELF(t *testing.T) {
	m := native()
	m.interp, m.needed, m.runpath = "/lib64/ld-linux-x86-64.so.2", []string{"libc.so.6"}, "$ORIGIN"
	whole := m.bytes()
	for n := range whole {
		o, err := readELF(bytes.NewReader(whole[:n]))
		if !errors.Is(err, errDamaged) && !(n < 4 && errors.Is(err, errNotELF)) {
			t.Fatalf("%d of %d bytes: %+v, %v", n, len(whole), o, err)
		}
	}
}

func TestDamagedELF(t *testing.T) {
	base := native()
	base.interp, base.needed = "/lib/ld.so.1", []string{"liba.so"}
	edit := func(at int, with ...byte) []byte {
		b := base.bytes()
		copy(b[at:], with)
		return b
	}
	many := base
	many.needed = slices.Repeat([]string{"x"}, maxNeeded+1)
	long := base
	long.needed = []string{strings.Repeat("x", maxNameLength)}
	interp := base
	interp.interp = "/" + strings.Repeat("x", maxInterp)
	wide := base
	wide.runpath = strings.Repeat("/x:", maxSearchPath/3+1)
	ff := bytes.Repeat([]byte{0xff}, 8)
	for name, b := range map[string][]byte{
		"class":                    edit(elf.EI_CLASS, 3),
		"byte order":               edit(elf.EI_DATA, 7),
		"no program headers":       edit(56, 0, 0),
		"too many program headers": edit(56, 0xff, 0xff),
		"size of program headers":  edit(54, 55, 0),
		"headers at the end":       edit(32, ff...),
		"headers behind the end":   edit(32, 0, 0, 0, 0, 1),
		"interpreter at the end":   edit(64+8, ff...),
		"empty interpreter":        edit(64+32, 1, 0),
		"interpreter's size":       edit(64+32, ff...),
		"strings in no segment":    edit(64+56+32, 1, 0, 0, 0),
		"dynamic section's size":   edit(64+2*56+32, ff...),
		"dynamic section's place":  edit(64+2*56+8, ff...),
		"too many libraries":       many.bytes(),
		"too long a name":          long.bytes(),
		"too long an interpreter":  interp.bytes(),
		"too long a search path":   wide.bytes(),
	} {
		if o, err := readELF(bytes.NewReader(b)); !errors.Is(err, errDamaged) {
			t.Errorf("%s: %+v, %v", name, o, err)
		}
	}
}

// What is read is what debug/elf reads, for programs and libraries of the host.
func TestELFOfHost(t *testing.T) {
	var paths []string
	for _, pattern := range []string{"/usr/bin/*", "/usr/lib/*-linux-*/lib*.so.*"} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		paths = append(paths, found...)
	}
	compared := 0
	for i := 0; i < len(paths); i += max(1, len(paths)/200) {
		f, _, err := openRegular(paths[i])
		if err != nil {
			continue
		}
		o, err := readELF(f)
		want, werr := elf.NewFile(f)
		if err == nil && werr == nil {
			needed, _ := want.ImportedLibraries()
			soname, _ := want.DynString(elf.DT_SONAME)
			if !slices.Equal(o.needed, needed) || o.soname != strings.Join(soname, "") || o.machine != want.Machine {
				t.Errorf("%s: %+v, debug/elf says %q %q %v", paths[i], o, needed, soname, want.Machine)
			}
			compared++
		} else if errors.Is(err, errNotELF) != (werr != nil) {
			t.Errorf("%s: %v, debug/elf says %v", paths[i], err, werr)
		}
		f.Close()
	}
	if compared < 20 {
		testkernel.Skip(t, "20 ELF files", "a host with programs")
	}
}

func FuzzELF(f *testing.F) {
	m := native()
	m.interp, m.needed, m.soname, m.runpath = "/lib/ld.so.1", []string{"liba.so", "libb.so"}, "me", "$ORIGIN/lib"
	f.Add(m.bytes())
	m.class, m.order = elf.ELFCLASS32, binary.BigEndian
	f.Add(m.bytes())
	if b, err := os.ReadFile("/usr/bin/true"); err == nil && len(b) < 64<<10 {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		o, err := readELF(bytes.NewReader(b))
		if err != nil {
			return
		}
		if len(o.needed) > maxNeeded || len(o.interp) >= maxInterp || len(o.rpath)+len(o.runpath) > maxSearchPath {
			t.Errorf("more than the bounds: %+v", o)
		}
		for _, s := range append(o.needed, o.interp, o.soname, o.rpath, o.runpath) {
			if strings.ContainsRune(s, 0) || s != "" && !bytes.Contains(b, []byte(s)) {
				t.Errorf("%q is not in the file", s)
			}
		}
	})
}
