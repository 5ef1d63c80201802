package storetest_test

import (
	"testing"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/store"
	"policyd.dev/policyd/store/storetest"
)

func TestOpen(t *testing.T) {
	s := storetest.Open(t)
	if err := s.Append(t.Context(), &apiv1.Event{Type: store.EventExit}); err != nil {
		t.Fatal(err)
	}
	if seq, err := s.LastSeq(); err != nil || seq != 2 {
		t.Errorf("newest entry %d %v, want the one after the store's making", seq, err)
	}
}
