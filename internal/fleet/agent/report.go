package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/protobuf/types/known/timestamppb"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/internal/fleet"
)

const (
	maxMessage = 1000 // bytes of a status's message
	// settle is the least time between two statuses: changes in between go with the next.
	settle = 250 * time.Millisecond
)

// reporting keeps the node's status in etcd: under a lease, so that it is gone soon after the node is, and once more
// without one, so that what it said last stays.
func (a *Agent) reporting(ctx context.Context, client *clientv3.Client) {
	p := a.backoff()
	for ctx.Err() == nil {
		began := time.Now()
		err := a.reportUnderLease(ctx, client)
		if ctx.Err() != nil {
			return
		}
		if time.Since(began) > 2*a.cfg.Timing.BackoffMost {
			p = a.backoff()
		}
		a.log.Debug("the status goes on under a new lease", "reason", err)
		signal(a.resync) // a lease that is gone may be one that this etcd never had
		if !p.wait(ctx) {
			return
		}
	}
}

// reportUnderLease grants a lease and reports until it is lost.
func (a *Agent) reportUnderLease(ctx context.Context, client *clientv3.Client) error {
	asked, cancel := context.WithTimeout(ctx, a.cfg.Timing.Request)
	lease, err := client.Grant(asked, max(int64(a.cfg.Timing.Lease/time.Second), 1))
	cancel()
	if err != nil {
		return err
	}
	held, cancel := context.WithCancel(ctx)
	defer cancel()
	alive, err := client.KeepAlive(held, lease.ID)
	if err != nil {
		return err
	}
	var last fleet.Status
	told := false // under this lease
	defer func() { a.leave(client, lease.ID, last) }()
	report := time.NewTimer(0) // at once
	defer report.Stop()
	for {
		due := false
		select {
		case <-ctx.Done():
			return ctx.Err()
		case r, ok := <-alive:
			if !ok {
				return fmt.Errorf("lease %x is lost", int64(lease.ID))
			}
			_ = r
			continue
		case <-report.C:
			due = true
			report.Reset(around(a.cfg.Timing.Report))
		case <-a.tell:
		}
		s := a.fleetStatus()
		if !due && same(s, last) {
			continue
		}
		mine, before, err := a.write(ctx, client, lease.ID, s, told)
		if err != nil {
			return err
		}
		if !mine {
			a.meet(before)
		}
		last, told = s, true
		if !sleep(ctx, settle) {
			return ctx.Err()
		}
	}
}

// leave gives back the lease of an agent that ends, so that nobody waits for it, after what it has not told yet.
func (a *Agent) leave(client *clientv3.Client, id clientv3.LeaseID, told fleet.Status) {
	ctx, cancel := context.WithTimeout(context.Background(), min(2*time.Second, a.cfg.Timing.Request))
	defer cancel()
	if s := a.fleetStatus(); !same(s, told) {
		b, err := marshalStatus(s)
		if err == nil {
			_, err = client.Put(ctx, a.layout.Last(a.cfg.Node), string(b))
		}
		if err != nil {
			a.log.Debug("the last status was not told", "error", err)
		}
	}
	if _, err := client.Revoke(ctx, id); err != nil {
		a.log.Debug("the lease was not given back and ends by itself", "error", err)
	}
}

// write puts a status into etcd, where told says that there is one of this lease already. When somebody else has written or
// removed that one, mine is false and before what is there, nil for none. A node that is alone, as nearly all are, reads
// nothing of what it has written.
func (a *Agent) write(ctx context.Context, client *clientv3.Client, lease clientv3.LeaseID, s fleet.Status, told bool) (mine bool, before []byte, err error) {
	b, err := marshalStatus(s)
	if err != nil {
		return false, nil, err
	}
	clusterID, revision := a.at()
	ctx, cancel := context.WithTimeout(ctx, a.cfg.Timing.Request)
	defer cancel()
	key := a.layout.Status(a.cfg.Node)
	puts := []clientv3.Op{clientv3.OpPut(key, string(b), clientv3.WithLease(lease)), clientv3.OpPut(a.layout.Last(a.cfg.Node), string(b))}
	if told {
		r, err := client.Txn(ctx).If(clientv3.Compare(clientv3.LeaseValue(key), "=", lease)).Then(puts...).Else(clientv3.OpGet(key)).Commit()
		if err != nil {
			return false, nil, err
		}
		a.answered(clusterID, revision, r.Header)
		if r.Succeeded {
			return true, nil, nil
		}
		if kvs := r.Responses[0].GetResponseRange().GetKvs(); len(kvs) > 0 {
			before = kvs[0].Value
		}
	}
	r, err := client.Txn(ctx).Then(puts...).Commit()
	if err != nil {
		return false, nil, err
	}
	a.answered(clusterID, revision, r.Header)
	return !told, before, nil
}

// marshalStatus leaves out what does not fit, the longest lists first.
func marshalStatus(s fleet.Status) ([]byte, error) {
	s.Message = clip(s.Message, maxMessage)
	for {
		b, err := json.Marshal(s)
		if err != nil || len(b) <= fleet.MaxRecordBytes {
			return b, err
		}
		switch {
		case len(s.Overrides) > 1:
			s.Overrides = append(slices.Clone(s.Overrides[:len(s.Overrides)/2]), "...")
			if len(s.Overrides) < 4 {
				s.Overrides = []string{"..."}
			}
		case len(s.Running) > 0:
			n := 0
			for _, count := range s.Running {
				n += count
			}
			s.Running = nil
			s.Message = fmt.Sprintf("%d sandboxes run; %s", n, clip(s.Message, 500))
		default:
			s.Message = clip(s.Message, len(s.Message)/2)
		}
	}
}

func clip(s string, most int) string {
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "..."
}

// same tells whether two statuses say the same but for when, and but for counts that come and go with what runs.
func same(x, y fleet.Status) bool {
	x.Reported, y.Reported = time.Time{}, time.Time{}
	x.Running, y.Running = nil, nil
	a, errA := json.Marshal(x)
	b, errB := json.Marshal(y)
	return errA == nil && errB == nil && string(a) == string(b)
}

// fleetStatus is what the node tells the fleet.
func (a *Agent) fleetStatus() fleet.Status {
	a.mu.Lock()
	n, v := a.now, a.view
	a.mu.Unlock()
	r, err := a.cfg.Host.Report()
	n = withReport(n, r, err, a.met())
	return fleet.Status{
		Node: a.cfg.Node, BootID: a.cfg.Facts.BootID, Version: a.cfg.Facts.Version, Kernel: a.cfg.Facts.Kernel,
		Landlock: a.cfg.Facts.LandlockABI, Smack: r.Smack, Channel: v.channel,
		DesiredSeq: n.desiredSeq, DesiredDigest: n.desiredDigest, LoadedSeq: n.loadedSeq, LoadedDigest: n.loadedDigest,
		State: n.state, Since: n.since.UTC().Truncate(time.Second), Code: n.code, Message: n.reason,
		Policies: r.Policies, SmackRules: r.SmackRules, Running: r.Running, Overrides: r.Overrides, Reported: a.cfg.Now().UTC().Truncate(time.Second),
	}
}

// withReport makes a situation that is well a degraded one where the host says so.
func withReport(n situation, r Report, err error, twin string) situation {
	if n.state != fleet.Loaded && n.state != fleet.Skipped {
		return n
	}
	var why []string
	if err != nil {
		why = append(why, "the host cannot say what is in force: "+err.Error())
	}
	if twin != "" {
		why = append(why, twin)
	}
	if len(r.Degraded) > 0 {
		why = append(why, "not everything of these is enforced by this kernel, as they allow: "+strings.Join(r.Degraded, ", "))
	}
	if len(r.Overrides) > 0 {
		why = append(why, "these have a version of this host's own: "+strings.Join(r.Overrides, ", "))
	}
	if len(why) > 0 {
		if n.reason != "" {
			why = append(why, n.reason)
		}
		n.state, n.reason = fleet.Degraded, strings.Join(why, "; ")
	}
	return n
}

// Status is what this host tells of itself to its own admin.
func (a *Agent) Status() *apiv1.FleetStatus {
	a.mu.Lock()
	n, v := a.now, a.view
	a.mu.Unlock()
	r, err := a.cfg.Host.Report()
	n = withReport(n, r, err, a.met())
	s := &apiv1.FleetStatus{
		Fleet: a.cfg.Fleet, Node: a.cfg.Node, Channel: v.channel, State: string(n.state), Reason: n.reason,
		DesiredSeq: n.desiredSeq, DesiredDigest: n.desiredDigest, LoadedSeq: n.loadedSeq, LoadedDigest: n.loadedDigest,
		Documents: uint32(r.Documents), Overridden: r.Overrides, Connected: v.connected, Connection: v.problem, RunningOlder: uint32(r.RunningOlder),
	}
	for _, t := range []struct {
		at   time.Time
		into **timestamppb.Timestamp
	}{{n.since, &s.Since}, {v.syncedAt, &s.Synced}, {n.notAfter, &s.NotAfter}} {
		if !t.at.IsZero() {
			*t.into = timestamppb.New(t.at)
		}
	}
	return s
}
