package preflight

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
)

// The cache of glibc, as its ldconfig writes it (sysdeps/generic/dl-cache.h):
//
//	magic "glibc-ld.so.cache" "1.1", u32 entries, u32 bytes of strings, u8 flags (byte order), u8[3],
//	u32 offset of extensions, u32[3]; per entry i32 flags, u32 name, u32 path, u32, u64 hwcap; strings
//
// Offsets of strings count from the magic. An older format may stand before it.
const (
	cacheMagic     = "glibc-ld.so.cache1.1"
	oldCacheMagic  = "ld.so-1.7.0"
	cacheHead      = 48
	cacheEntrySize = 24
	maxCache       = 64 << 20
	maxCacheNames  = 1 << 20

	hwcapExtension     = 1 << 62    // in hwcap: its low half is an index into the names of glibc-hwcaps
	extensionMagic     = 0xEAA42174 // of the extensions
	extensionHWCaps    = 1          // tag of the section with these names
	maxCacheExtensions = 64
)

var errCache = errors.New("damaged ld.so.cache")

// cacheEntry is a library in the cache.
type cacheEntry struct {
	path  string
	flags int32
	hwcap string // subfolder of glibc-hwcaps, "" for none
}

// ldCache is a parsed ld.so.cache: entries by name, in the order of the file.
type ldCache map[string][]cacheEntry

// parseCache reads ld.so.cache. An error wraps errCache; the loader then goes
// without a cache as well, or worse.
func parseCache(b []byte) (ldCache, error) {
	if bytes.HasPrefix(b, []byte(oldCacheMagic)) {
		// The new one follows at the next multiple of 8 (ALIGN_CACHE).
		if len(b) < 16 {
			return nil, fmt.Errorf("%w: %d bytes", errCache, len(b))
		}
		const oldEntry = 12
		at := (16 + uint64(binary.NativeEndian.Uint32(b[12:]))*oldEntry + 7) &^ 7
		if at > uint64(len(b)) {
			return nil, fmt.Errorf("%w: no entries of the new format", errCache)
		}
		b = b[at:]
	}
	if len(b) < cacheHead || !bytes.HasPrefix(b, []byte(cacheMagic)) {
		return nil, fmt.Errorf("%w: it does not begin with %q", errCache, cacheMagic)
	}
	order := binary.NativeEndian
	n := uint64(order.Uint32(b[20:]))
	if n > maxCacheNames || cacheHead+n*cacheEntrySize > uint64(len(b)) {
		return nil, fmt.Errorf("%w: %d entries in %d bytes", errCache, n, len(b))
	}
	levels, err := cacheLevels(b, order.Uint32(b[32:]))
	if err != nil {
		return nil, err
	}
	c := ldCache{}
	for i := range n {
		e := b[cacheHead+i*cacheEntrySize:]
		name, err := cacheString(b, order.Uint32(e[4:]))
		if err != nil {
			return nil, err
		}
		path, err := cacheString(b, order.Uint32(e[8:]))
		if err != nil {
			return nil, err
		}
		entry := cacheEntry{path: path, flags: int32(order.Uint32(e))}
		switch hwcap := order.Uint64(e[16:]); {
		case hwcap>>32 == hwcapExtension>>32 && uint64(uint32(hwcap)) < uint64(len(levels)):
			entry.hwcap = levels[uint32(hwcap)]
		case hwcap != 0:
			continue // of legacy hardware subfolders, which glibc 2.37 forgot
		}
		c[name] = append(c[name], entry)
	}
	return c, nil
}

// cacheString reads a string, at most PATH_MAX long, that ends within the file.
func cacheString(b []byte, at uint32) (string, error) {
	if uint64(at) >= uint64(len(b)) {
		return "", fmt.Errorf("%w: string at %d of %d bytes", errCache, at, len(b))
	}
	rest := b[at:]
	end := bytes.IndexByte(rest[:min(len(rest), maxNameLength)], 0)
	if end < 0 {
		return "", fmt.Errorf("%w: string without an end", errCache)
	}
	return string(rest[:end]), nil
}

// cacheLevels reads the names of glibc-hwcaps subfolders from the extensions.
func cacheLevels(b []byte, at uint32) ([]string, error) {
	if at == 0 {
		return nil, nil
	}
	if uint64(at)+8 > uint64(len(b)) {
		return nil, fmt.Errorf("%w: extensions at %d of %d bytes", errCache, at, len(b))
	}
	order := binary.NativeEndian
	ext := b[at:]
	n := order.Uint32(ext[4:])
	if order.Uint32(ext) != extensionMagic || n > maxCacheExtensions || 8+uint64(n)*16 > uint64(len(ext)) {
		return nil, fmt.Errorf("%w: extensions", errCache)
	}
	var levels []string
	for i := range n {
		s := ext[8+i*16:]
		if order.Uint32(s) != extensionHWCaps {
			continue
		}
		from, size := uint64(order.Uint32(s[8:])), uint64(order.Uint32(s[12:]))
		if from+size > uint64(len(b)) || size/4 > maxCacheExtensions {
			return nil, fmt.Errorf("%w: names of glibc-hwcaps", errCache)
		}
		for section := b[from : from+size]; len(section) >= 4; section = section[4:] {
			name, err := cacheString(b, order.Uint32(section))
			if err != nil {
				return nil, err
			}
			levels = append(levels, name)
		}
	}
	return levels, nil
}

// find gives the path for a name: of the best level the processor has (levels,
// best first), else the plain one (search_cache in glibc's dl-cache.c).
func (c ldCache) find(name string, flags int32, levels []string) string {
	entries := c[name]
	for _, level := range append(append([]string{}, levels...), "") {
		for _, e := range entries {
			if e.hwcap == level && (e.flags == flags || e.flags == cacheELF) {
				return e.path
			}
		}
	}
	return ""
}

// cacheELF are the flags of a library of any kind, _DL_CACHE_DEFAULT's first
// alternative.
const cacheELF = 1

// cacheFlags gives the flags of a program's libraries in the cache
// (sysdeps/*/dl-cache.h, FLAG_ELF_LIBC6 with that of the architecture).
func cacheFlags(o *object, interp string) int32 {
	const libc6 = 3
	switch {
	case o.machine == elf.EM_X86_64 && o.class == elf.ELFCLASS32:
		return libc6 | 0x0800
	case o.machine == elf.EM_X86_64:
		return libc6 | 0x0300
	case o.machine == elf.EM_AARCH64:
		return libc6 | 0x0a00
	case o.machine == elf.EM_ARM && strings.Contains(interp, "armhf"):
		return libc6 | 0x0900
	case o.machine == elf.EM_ARM:
		return libc6 | 0x0b00
	case o.machine == elf.EM_RISCV && o.class == elf.ELFCLASS64 && strings.Contains(interp, "lp64d"):
		return libc6 | 0x1000
	case o.machine == elf.EM_RISCV && o.class == elf.ELFCLASS64:
		return libc6 | 0x0f00
	case o.machine == elf.EM_PPC64:
		return libc6 | 0x0500
	case o.machine == elf.EM_S390 && o.class == elf.ELFCLASS64:
		return libc6 | 0x0400
	case o.machine == elf.EM_LOONGARCH:
		return libc6 | 0x1200
	}
	return libc6
}
