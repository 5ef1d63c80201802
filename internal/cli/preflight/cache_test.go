package preflight

import (
	"encoding/binary"
	"errors"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"policyd.dev/policyd/internal/testkernel"
)

type cached struct {
	name, path string
	flags      int32
	hwcap      uint64
}

// makeCache writes a cache of the new format.
func makeCache(levels []string, entries ...cached) []byte {
	order := binary.NativeEndian
	extra := 0
	if len(levels) > 0 {
		extra = 8 + 16 + 4*len(levels)
	}
	text := cacheHead + cacheEntrySize*len(entries)
	var strs []byte
	put := func(s string) uint32 {
		at := text + len(strs)
		strs = append(strs, s+"\x00"...)
		return uint32(at)
	}
	var body []byte
	for _, e := range entries {
		body = order.AppendUint32(body, uint32(e.flags))
		body = order.AppendUint32(body, put(e.name))
		body = order.AppendUint32(body, put(e.path))
		body = order.AppendUint32(body, 0)
		body = order.AppendUint64(body, e.hwcap)
	}
	var names []uint32
	for _, l := range levels {
		names = append(names, put(l))
	}
	b := []byte(cacheMagic)
	b = order.AppendUint32(b, uint32(len(entries)))
	b = order.AppendUint32(b, uint32(len(strs)))
	b = append(b, 2, 0, 0, 0)
	at := uint32(0)
	if extra > 0 {
		at = uint32(text + len(strs))
	}
	b = order.AppendUint32(b, at)
	b = append(b, make([]byte, 12)...)
	b = append(append(b, body...), strs...)
	if extra > 0 {
		b = order.AppendUint32(b, extensionMagic)
		b = order.AppendUint32(b, 1)
		for _, v := range []uint32{extensionHWCaps, 0, at + 24, uint32(4 * len(levels))} {
			b = order.AppendUint32(b, v)
		}
		for _, n := range names {
			b = order.AppendUint32(b, n)
		}
	}
	return b
}

const flags64 = 0x0303

func TestCache(t *testing.T) {
	b := makeCache([]string{"x86-64-v3", "x86-64-v2"},
		cached{"liba.so", "/v3/liba.so", flags64, hwcapExtension},
		cached{"liba.so", "/v2/liba.so", flags64, hwcapExtension | 1},
		cached{"liba.so", "/legacy/liba.so", flags64, 4},
		cached{"liba.so", "/plain/liba.so", flags64, 0},
		cached{"liba.so", "/32/liba.so", 3, 0},
		cached{"libb.so", "/any/libb.so", cacheELF, 0},
		cached{"libc.so", "/aarch64/libc.so", 0x0a03, 0},
	)
	old := append([]byte(oldCacheMagic+"\x00"), binary.NativeEndian.AppendUint32(nil, 1)...)
	old = append(old, make([]byte, 12+4)...) // an entry, and to the next multiple of 8
	for name, b := range map[string][]byte{"new": b, "behind the old format": append(old, b...)} {
		c, err := parseCache(b)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for _, q := range []struct {
			name, want string
			flags      int32
			levels     []string
		}{
			{"liba.so", "/v3/liba.so", flags64, []string{"x86-64-v4", "x86-64-v3", "x86-64-v2"}},
			{"liba.so", "/v2/liba.so", flags64, []string{"x86-64-v2"}},
			{"liba.so", "/plain/liba.so", flags64, nil},
			{"liba.so", "/32/liba.so", 3, nil},
			{"libb.so", "/any/libb.so", flags64, nil},
			{"libc.so", "", flags64, nil},
			{"libd.so", "", flags64, nil},
		} {
			if got := c.find(q.name, q.flags, q.levels); got != q.want {
				t.Errorf("%s: %s with %v: %q, want %q", name, q.name, q.levels, got, q.want)
			}
		}
	}
}

func TestDamagedCache(t *testing.T) {
	whole := makeCache([]string{"v3"}, cached{"liba.so", "/liba.so", flags64, 0}, cached{"libb.so", "/libb.so", flags64, hwcapExtension})
	for n := range whole {
		if _, err := parseCache(whole[:n]); !errors.Is(err, errCache) {
			t.Fatalf("%d of %d bytes: %v", n, len(whole), err)
		}
	}
	edit := func(at int, v uint32) []byte {
		b := slices.Clone(whole)
		binary.NativeEndian.PutUint32(b[at:], v)
		return b
	}
	for name, b := range map[string][]byte{
		"entries":        edit(20, 1<<31),
		"extensions":     edit(32, 1<<31),
		"no extensions":  edit(32, 20),
		"name":           edit(cacheHead+4, 0xffffffff),
		"path":           edit(cacheHead+8, 0xffffffff),
		"old, no new":    append([]byte(oldCacheMagic+"\x00\xff\xff\xff\xff"), whole...),
		"endless string": append(edit(cacheHead+4, uint32(len(whole))), strings.Repeat("x", 2*maxNameLength)...),
	} {
		if _, err := parseCache(b); !errors.Is(err, errCache) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The cache of the host holds what ldconfig prints.
func TestCacheOfHost(t *testing.T) {
	b, err := os.ReadFile("/etc/ld.so.cache")
	if err != nil {
		testkernel.Skip(t, "/etc/ld.so.cache", "a host with glibc")
	}
	c, err := parseCache(b)
	if err != nil {
		t.Fatal(err)
	}
	ldconfig, err := exec.LookPath("/sbin/ldconfig")
	if err != nil {
		testkernel.Skip(t, "ldconfig", "apt-get install libc-bin")
	}
	out, err := exec.CommandContext(t.Context(), ldconfig, "-p").Output()
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for line := range strings.Lines(string(out)) {
		left, path, ok := strings.Cut(strings.TrimSpace(line), " => ")
		name, _, _ := strings.Cut(left, " ")
		if !ok {
			continue
		}
		if n++; !slices.ContainsFunc(c[name], func(e cacheEntry) bool { return e.path == path }) {
			t.Errorf("%s => %s is not found", name, path)
		}
	}
	if n < 10 {
		t.Errorf("ldconfig printed %d libraries", n)
	}
}

func FuzzCache(f *testing.F) {
	f.Add(makeCache([]string{"v3", "v2"}, cached{"liba.so", "/liba.so", flags64, 0}, cached{"liba.so", "/v3/liba.so", flags64, hwcapExtension}))
	f.Add(append([]byte(oldCacheMagic+"\x00\x01\x00\x00\x00"), make([]byte, 64)...))
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := parseCache(b)
		if err != nil {
			if !errors.Is(err, errCache) {
				t.Errorf("%v", err)
			}
			return
		}
		for name, entries := range c {
			for _, e := range entries {
				if len(name) > maxNameLength || len(e.path) > maxNameLength || strings.ContainsRune(e.path, 0) {
					t.Errorf("%q => %q", name, e.path)
				}
			}
			c.find(name, flags64, []string{"v3"})
		}
	})
}
