package controller

import (
	"encoding/json"
	"fmt"
	"time"

	"policyd.dev/policyd/internal/errs"
)

// Record is the last decision on a channel, as the controller leaves it in etcd
// for people and for the next controller.
type Record struct {
	By       string    `json:"by"`
	At       time.Time `json:"at"`
	Progress Progress  `json:"progress"`
	Decision Decision  `json:"decision"`
}

// maxHolding bounds the nodes that a Record names.
const maxHolding = 20

func (r Record) marshal() ([]byte, error) {
	if len(r.Decision.Holding) > maxHolding {
		r.Decision.Holding = r.Decision.Holding[:maxHolding]
	}
	return json.Marshal(r)
}

// ParseRecord reads a Record; nil is the zero Record.
func ParseRecord(raw []byte) (Record, error) {
	var r Record
	if raw == nil {
		return r, nil
	}
	if err := json.Unmarshal(raw, &r); err != nil {
		return Record{}, fmt.Errorf("%w: record of the controller: %v", errs.ErrInvalid, err) //nolint:errorlint // the sentinel is the one callers test
	}
	return r, nil
}
