package fleet

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"

	"policyd.dev/policyd/internal/errs"
)

// Selected tells whether a node is among the first share of all nodes, in basis
// points. Every node has one fixed place for a salt, so a larger share never
// drops a node, and two salts choose independently.
func Selected(salt, node string, basisPoints int) bool {
	return place(salt, node) < uint64(max(basisPoints, 0))
}

// place is a node's place among 10,000.
func place(salt, node string) uint64 {
	sum := sha256.Sum256([]byte(salt + "\x00" + node))
	return binary.BigEndian.Uint64(sum[:8]) % Full
}

// PercentText is basis points as percent: 100 is 1%, 250 is 2.5%.
func PercentText(basisPoints int) string {
	return strconv.FormatFloat(float64(basisPoints)/100, 'f', -1, 64) + "%"
}

// ParsePercent reads 5, 2.5 or 100%, with at most two digits after the point, as
// basis points.
func ParsePercent(s string) (int, error) {
	bad := fmt.Errorf("%w: %q: want percent from 0 to 100 with at most two digits after the point", errs.ErrInvalid, clip(s))
	whole, part, hasPoint := strings.Cut(strings.TrimSuffix(s, "%"), ".")
	if len(whole) == 0 || len(whole) > 3 || len(part) > 2 || hasPoint && part == "" {
		return 0, bad
	}
	for _, c := range whole + part {
		if c < '0' || c > '9' {
			return 0, bad
		}
	}
	n, err := strconv.Atoi(whole + (part + "00")[:2])
	if err != nil || n > Full {
		return 0, bad
	}
	return n, nil
}
