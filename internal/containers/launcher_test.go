package containers

import (
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// elf is the beginning of a program with headers of these types.
func elf(wide bool, order binary.AppendByteOrder, types ...uint32) []byte {
	b := []byte("\x7fELF\x01\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00")
	if order.String() == "BigEndian" {
		b[5] = 2
	}
	b = append(b, make([]byte, 8)...) // e_type, e_machine, e_version
	size := 32
	if wide {
		b[4], size = 2, 56
		b = order.AppendUint64(b, 0x401000)
		b = order.AppendUint64(b, 64)
		b = order.AppendUint64(b, 0)
	} else {
		b = order.AppendUint32(b, 0x401000)
		b = order.AppendUint32(b, 52)
		b = order.AppendUint32(b, 0)
	}
	b = order.AppendUint32(b, 0) // e_flags
	for _, v := range []int{len(b) + 12, size, len(types), 0, 0, 0} {
		b = order.AppendUint16(b, uint16(v))
	}
	for _, typ := range types {
		b = append(order.AppendUint32(b, typ), make([]byte, size-4)...)
	}
	return b
}

func TestCheckLauncher(t *testing.T) {
	dir := t.TempDir()
	for name, tc := range map[string]struct {
		text []byte
		mode os.FileMode
		want string // part of the error, "" for none
	}{
		"static":          {elf(true, binary.LittleEndian, 6, 1, 1, 4), 0o755, ""},
		"dynamic":         {elf(true, binary.LittleEndian, 6, 3, 1), 0o755, "is linked dynamically"},
		"dynamic, last":   {elf(true, binary.LittleEndian, 6, 1, 3), 0o755, "is linked dynamically"},
		"dynamic, big":    {elf(true, binary.BigEndian, 1, 3), 0o755, "is linked dynamically"},
		"dynamic, 32 bit": {elf(false, binary.LittleEndian, 1, 3), 0o755, "is linked dynamically"},
		"static, 32 bit":  {elf(false, binary.BigEndian, 1, 1), 0o755, ""},
		"cut off":         {elf(true, binary.LittleEndian, 1, 3)[:70], 0o755, ""},
		"header alone":    {elf(true, binary.LittleEndian)[:20], 0o755, ""},
		"far headers":     {append(elf(true, binary.LittleEndian, 3)[:32], append([]byte("\xff\xff\xff\xff\xff\xff\xff\xff"), elf(true, binary.LittleEndian, 3)[40:]...)...), 0o755, ""},
		"empty":           {nil, 0o755, ""},
		"script":          {[]byte("#!/bin/sh\n"), 0o755, ""},
		"for execution":   {[]byte("#!/bin/sh\n"), 0o711, ""},
		"for root alone":  {elf(true, binary.LittleEndian, 1), 0o700, "cannot be executed by everybody"},
	} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, tc.text, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, tc.mode); err != nil {
			t.Fatal(err)
		}
		switch err := CheckLauncher(path); {
		case tc.want == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case tc.want != "" && (!errors.Is(err, ErrLauncher) || !strings.Contains(err.Error(), tc.want)):
			t.Errorf("%s: %v; want %q", name, err, tc.want)
		}
	}
	if err := CheckLauncher(dir + "/none"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("none: %v", err)
	}
	if err := CheckLauncher(dir); err == nil {
		t.Error("a folder is taken")
	}
}

func BenchmarkCheckLauncher(b *testing.B) {
	path := filepath.Join(b.TempDir(), "launch")
	if err := os.WriteFile(path, append(elf(true, binary.LittleEndian, 6, 1, 1), make([]byte, 1<<20)...), 0o755); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if err := CheckLauncher(path); err != nil {
			b.Fatal(err)
		}
	}
}
