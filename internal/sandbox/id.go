package sandbox

import (
	"crypto/rand"
	"encoding/hex"
)

// idLength is the length of a sandbox id, hexadecimal digits.
const idLength = 12

func newID() string {
	var b [idLength / 2]byte
	rand.Read(b[:]) // never fails, see its doc
	return hex.EncodeToString(b[:])
}

func validID(s string) bool { return len(s) == idLength && isHex(s) }

// validRef tells whether s can be an id or the beginning of one.
func validRef(s string) bool { return s != "" && len(s) <= idLength && isHex(s) }

func isHex(s string) bool {
	for _, c := range []byte(s) {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}
