package sandbox

import (
	"os"
	"testing"
)

// What was made in advance and tidied away by somebody is made again, and what is left at
// the end goes.
func TestSparesTidiedAway(t *testing.T) {
	eachContainment(t, func(t *testing.T, containment string) {
		cfg := testConfig(t, containment)
		m := newTestManager(t, cfg)
		for _, ready := range m.spares.ready {
			eventually(t, "spares", func() bool { return len(ready) == cap(ready) })
			var taken []*spare
			for range cap(ready) {
				taken = append(taken, <-ready)
			}
			for _, sp := range taken {
				if path := sp.group.Path(); path != "" {
					if err := os.Remove(path); err != nil {
						t.Fatal(err)
					}
				}
				if err := os.RemoveAll(m.logs.folder(sp.id)); err != nil {
					t.Fatal(err)
				}
				select {
				case ready <- sp:
				default: // a new one has come meanwhile
					m.removeSpare(sp)
				}
			}
		}
		sb, err := m.Start(t.Context(), testRequest(t, t.TempDir(), "/bin/true"))
		if err != nil {
			t.Fatal(err)
		}
		if exit, err := m.Wait(t.Context(), sb.GetId()); err != nil || exit.GetCode() != 0 {
			t.Errorf("%v, %v", exit, err)
		}
		a, err := m.Run(t.Context(), testRequest(t, t.TempDir(), "/bin/echo", "x"))
		if err != nil {
			t.Fatal(err)
		}
		defer a.Close()
		if err := a.Stream(t.Context(), newOutput().send); err != nil {
			t.Error(err)
		}
	})
}
