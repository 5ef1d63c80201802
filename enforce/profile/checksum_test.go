package profile

import (
	"bytes"
	"hash/crc32"
	"testing"
)

// Both ways to the checksum give the same.
func TestChecksum(t *testing.T) {
	for _, n := range []int{0, 1, 7, 8, 255, 4096, smallText, smallText + 1} {
		b := bytes.Repeat([]byte{0xa5, byte(n), 0}, n)[:n]
		if got, want := checksum(b), crc32.Checksum(b, castagnoli()); got != want || crc32.Update(0, plainTable(), b) != want {
			t.Errorf("%d bytes: %08x, want %08x", n, got, want)
		}
	}
}
