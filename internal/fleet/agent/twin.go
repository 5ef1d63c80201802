package agent

import (
	"fmt"
	"time"

	"policyd.dev/policyd/internal/fleet"
)

// twin is another host that takes itself for this node: a copied disk, a name given twice. Each would write over what the
// other says, and a rollout would count the two as one.
type twin struct {
	told  string
	until time.Time
}

// meet notes that somebody else has written this node's status, or taken it away, since this agent did.
func (a *Agent) meet(status []byte) {
	t := twin{"somebody else has written or removed this node's status", a.cfg.Now().Add(3 * a.cfg.Timing.Report)}
	var s fleet.Status
	if fleet.Unmarshal(status, &s) == nil {
		t.told = fmt.Sprintf("another host reports as node %s too (boot %s, kernel %s): give each host a name of its own", a.cfg.Node, s.BootID, s.Kernel)
	}
	a.mu.Lock()
	known := a.recent() != ""
	a.twin = t
	a.mu.Unlock()
	if !known {
		a.log.Error("this node's status is not its own", "reason", t.told)
	}
	signal(a.tell)
}

// met says what was met of late, "" for nothing.
func (a *Agent) met() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.recent()
}

func (a *Agent) recent() string {
	if a.cfg.Now().After(a.twin.until) {
		return ""
	}
	return a.twin.told
}
