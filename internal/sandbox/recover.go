package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"google.golang.org/protobuf/proto"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/enforce/spawn"
	"policyd.dev/policyd/store"
)

// recover works out from the journal, the store and the processes what has become of
// the sandboxes of an earlier policyd. It starts no goroutine and commits nothing: what
// it fails half through can be done again.
func (m *Manager) recover(ctx context.Context, old []entry) error {
	stored, err := m.storedRecords()
	if err != nil {
		return err
	}
	last, err := m.replay(ctx, stored, old)
	if err != nil {
		return err
	}
	if err := m.ledger.journal.rotate(); err != nil {
		return err
	}
	known := maps.Clone(stored)
	maps.Copy(known, last)
	alive := 0
	for id, rec := range known {
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		before := stored[id]
		var events []*apiv1.Event
		if before == nil || before.GetState() == apiv1.SandboxState_SANDBOX_STATE_STARTING {
			events = append(events, startEvent(rec))
		}
		now := rec
		if !ended(rec) {
			now = m.takeOver(rec)
		}
		if ended(now) {
			if !ended(before) {
				events = append(events, exitEvent(now))
			}
			m.takeEnded(now)
			m.holdEnded(now)
		} else {
			alive++
		}
		if len(events) > 0 || !proto.Equal(before, now) {
			m.ledger.recovered(now, events...)
		}
	}
	m.sweepOrphans(known)
	if len(known) > 0 {
		m.cfg.Log.Info("sandboxes of an earlier policyd", "known", len(known), "alive", alive)
	}
	return nil
}

func (m *Manager) storedRecords() (map[string]*apiv1.Sandbox, error) {
	recs, _, err := m.cfg.Store.Sandboxes(store.SandboxFilter{Ended: true})
	if err != nil {
		return nil, err
	}
	stored := make(map[string]*apiv1.Sandbox, len(recs))
	for _, r := range recs {
		stored[r.GetId()] = r
	}
	return stored, nil
}

// replay folds the journal to the last state of each sandbox. Removals that were begun
// are finished: their events were in the store before.
func (m *Manager) replay(ctx context.Context, stored map[string]*apiv1.Sandbox, old []entry) (map[string]*apiv1.Sandbox, error) {
	last := map[string]*apiv1.Sandbox{}
	for _, e := range old {
		id := e.rec.GetId()
		switch e.kind {
		case lineAborted:
			delete(last, id)
		case lineRemoved:
			delete(last, id)
			if stored[id] != nil {
				if err := m.cfg.Store.DeleteSandbox(ctx, id); err != nil {
					return nil, err
				}
				delete(stored, id)
			}
		case lineIntent:
			// A carried line comes again in a later file, and may be older than what
			// is known of the end.
			if last[id] == nil && stored[id] == nil {
				last[id] = e.rec
			}
		default:
			last[id] = e.rec
		}
	}
	return last, nil
}

// takeOver finds the processes of a sandbox that had not ended, and returns its record
// as it is now.
func (m *Manager) takeOver(rec *apiv1.Sandbox) *apiv1.Sandbox {
	log := m.cfg.Log.With("sandbox", rec.GetId())
	if rec.GetBootId() != m.boot {
		return m.closed(rec, spawn.Status{Unknown: true})
	}
	group, err := m.openGroup(rec)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		log.Error("descendants of a sandbox cannot be held any more", "error", err)
	}
	rec = proto.CloneOf(rec)
	if rec.GetPid() == 0 && group != nil {
		// policyd ended between exec and the line that tells the pid.
		pid, ticks := first(group)
		rec.Pid, rec.StartTicks = int32(pid), ticks
		m.noteGroup(rec, group)
	}
	var child *spawn.Child
	if rec.GetPid() != 0 {
		if child, err = m.adopt(rec); err != nil {
			log.Info("sandbox ended while no policyd saw it", "detail", err)
		}
	}
	if child == nil {
		if group != nil {
			m.endOrphans(rec.GetId(), group)
		}
		return m.closed(rec, spawn.Status{Unknown: true})
	}
	if group == nil {
		group = lostGroup{child}
	}
	rec.State = apiv1.SandboxState_SANDBOX_STATE_RUNNING
	b := &box{
		id: rec.GetId(), owner: rec.GetOwnerUid(), label: rec.GetSmackLabel(), child: child, group: group,
		decided: make(chan struct{}), done: make(chan struct{}),
	}
	close(b.decided)
	b.rec.Store(rec)
	m.boxes[b.id] = b
	m.alive[b.owner]++
	if rec.GetRequestId() != "" {
		m.requests[requestKey{b.owner, rec.GetRequestId()}] = b
	}
	m.takeStreams(b)
	if keepsOutput(rec) {
		m.logs.add(b.id, b.owner, max(rec.GetLogLimit(), minLogLimit))
	}
	return rec
}

// resume watches a sandbox that was taken over. An attached one has lost its client, which
// may come back when its streams were handed over.
func (m *Manager) resume(b *box) {
	if closed(b.done) {
		m.wg.Go(func() { m.retire(b) })
	} else {
		m.wg.Go(func() { m.watch(b) })
	}
	switch {
	case b.rec.Load().GetDetached():
	case b.sess == nil:
		m.hangup(b)
	case b.sess.left:
		b.sess.leave("it did not come back before")
	default:
		b.sess.await()
	}
}

// openGroup finds the group of a sandbox again. A supervised group has a path only from
// its start on, so one whose start was not noted is found by its supervisor's name.
func (m *Manager) openGroup(rec *apiv1.Sandbox) (spawn.Group, error) {
	path := rec.GetGroup()
	if path == "" && m.supervised() {
		if pid, ticks := findProcess(spawn.SupervisorName(rec.GetId())); pid != 0 {
			path = fmt.Sprintf("supervisor:%d:%d", pid, ticks)
		}
	}
	if path == "" {
		return nil, fs.ErrNotExist
	}
	return m.cfg.Containment.OpenGroup(path)
}

// first is the process of a group that was started first: all others descend from it.
func first(g spawn.Group) (pid int, ticks uint64) {
	pids, err := g.Processes()
	if err != nil {
		return 0, 0
	}
	for _, p := range pids {
		if t, err := startTicks(p); err == nil && (pid == 0 || t < ticks || t == ticks && p < pid) {
			pid, ticks = p, t
		}
	}
	return pid, ticks
}

// takeEnded keeps of an ended sandbox what it takes to answer for it.
func (m *Manager) takeEnded(rec *apiv1.Sandbox) {
	if keepsOutput(rec) && !rec.GetRemove() {
		m.logs.addEnded(rec.GetId(), rec.GetOwnerUid())
	} else {
		m.logs.removeFolder(rec.GetId())
	}
	m.answer(rec)
}

// endedBox is all that a repeated request needs of a sandbox that has ended.
func endedBox(rec *apiv1.Sandbox) *box {
	b := &box{id: rec.GetId(), owner: rec.GetOwnerUid(), decided: make(chan struct{}), done: make(chan struct{})}
	b.rec.Store(rec)
	close(b.decided)
	close(b.done)
	return b
}

// sweepOrphans ends and removes what belongs to no known sandbox: it was never
// acknowledged to anybody, and most of it was only made in advance.
func (m *Manager) sweepOrphans(known map[string]*apiv1.Sandbox) {
	for _, root := range m.cgroupRoots(known) {
		for _, id := range orphans(root, known) {
			if g, err := m.cfg.Containment.OpenGroup(filepath.Join(root, id)); err == nil {
				if pids, _ := g.Processes(); len(pids) > 0 {
					m.cfg.Log.Warn("group of no known sandbox is ended", "sandbox", id)
				}
				m.endOrphans(id, g)
			}
		}
	}
	for _, id := range orphans(m.logs.root, known) {
		m.cfg.Log.Debug("logs of no known sandbox are removed", "sandbox", id)
		m.logs.removeFolder(id)
	}
}

// cgroupRoots are the folders of our groups: this policyd's, and those in other cgroups
// that an earlier one of this state folder was in.
func (m *Manager) cgroupRoots(known map[string]*apiv1.Sandbox) []string {
	if m.cfg.CgroupRoot == "" {
		return nil
	}
	roots := []string{m.cfg.CgroupRoot}
	for _, rec := range known {
		root := filepath.Dir(rec.GetGroup())
		if filepath.Base(root) == filepath.Base(m.cfg.CgroupRoot) && !slices.Contains(roots, root) {
			roots = append(roots, root)
		}
	}
	return roots
}

// orphans are the folders in dir that are named like a sandbox nobody knows.
func orphans(dir string, known map[string]*apiv1.Sandbox) []string {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	var out []string
	for _, e := range entries {
		if id := e.Name(); e.IsDir() && validID(id) && known[id] == nil {
			out = append(out, id)
		}
	}
	return out
}

func (m *Manager) endOrphans(id string, g spawn.Group) {
	if err := g.KillAll(); err != nil {
		m.cfg.Log.Error("descendants of a sandbox could not be ended", "sandbox", id, "error", err)
		return
	}
	if err := g.Remove(); err != nil {
		m.cfg.Log.Warn("group of a sandbox could not be removed", "sandbox", id, "error", err)
	}
}

// lostGroup stands for a group that cannot be opened any more (policyd was started
// with another containment): of its processes only the first one is known.
type lostGroup struct{ child *spawn.Child }

func (g lostGroup) Path() string                    { return "" }
func (g lostGroup) Processes() ([]int, error)       { return []int{g.child.PID}, nil }
func (g lostGroup) Usage() (spawn.Usage, error)     { return spawn.Usage{Processes: 1}, nil }
func (g lostGroup) Signal(sig syscall.Signal) error { return g.child.Signal(sig) }
func (g lostGroup) Remove() error                   { return nil }
func (g lostGroup) KillAll() error {
	if err := g.child.Signal(syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("first process: %w", err)
	}
	return nil
}
