package sandbox

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/enforce/landlock"
	"policyd.dev/policyd/enforce/spawn"
	"policyd.dev/policyd/internal/errs"
)

// Start starts a detached sandbox: its input is /dev/null, its output goes to log
// files. It returns when the program was executed.
//
// Errors: those of enforce/landlock and enforce/spawn as they are (wrapped),
// errs.ErrInvalid, errs.ErrRequestReused, errs.ErrShutdown, what Request.Admit says, and
// the store's while records cannot be stored. With any error nothing runs.
func (m *Manager) Start(ctx context.Context, r *Request) (*apiv1.Sandbox, error) {
	if r.Spec.GetTerminal() != nil {
		return nil, fmt.Errorf("%w: terminal: a detached sandbox has none", errs.ErrInvalid)
	}
	b, err := m.launch(ctx, r, nil)
	if err != nil {
		return nil, err
	}
	return m.shown(b.rec.Load()), nil
}

// launch is the way of every start. sess is the client's side of an attached one.
func (m *Manager) launch(ctx context.Context, r *Request, sess *Attached) (*box, error) {
	cmd, err := r.command(r.Spec.GetTerminal() != nil)
	if err != nil {
		return nil, err
	}
	b, repeated, err := m.reserve(r, sess == nil)
	if err != nil {
		return nil, err
	}
	if repeated {
		return m.repeat(ctx, b, r, sess == nil)
	}
	cmd.SmackLabel = b.label
	err = m.begin(ctx, b, r, cmd, sess)
	if (errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE)) && !errors.Is(err, errs.ErrStart) {
		err = fmt.Errorf("%w: %w", errs.ErrStart, err)
	}
	b.spare = nil
	if err != nil {
		m.unreserve(b, r, err)
		return nil, err
	}
	close(b.decided)
	go func() {
		defer m.wg.Done() // of reserve
		m.watch(b)
	}()
	return b, nil
}

// repeat answers a request whose id was seen before.
func (m *Manager) repeat(ctx context.Context, b *box, r *Request, detached bool) (*box, error) {
	select {
	case <-b.decided:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	switch {
	case b.startErr != nil:
		return nil, b.startErr
	case !r.repeats(b.rec.Load(), detached):
		return nil, fmt.Errorf("%w: it started sandbox %s", errs.ErrRequestReused, b.id)
	case !detached:
		// Its streams went to the first client.
		return nil, fmt.Errorf("%w: sandbox %s was started by this request", errs.ErrExists, b.id)
	}
	return b, nil
}

// begin makes what a sandbox needs, in an order in which each thing is known to the
// journal before a process could use it, and undoes it all when one thing fails. Folder,
// group and streams have the sandbox's own name before that: sweepOrphans finds them.
func (m *Manager) begin(ctx context.Context, b *box, r *Request, cmd *spawn.Command, sess *Attached) (err error) {
	sp := b.spare
	started := false
	defer func() {
		if err == nil {
			return
		}
		if started {
			m.endNow(b)
		}
		if sp != nil {
			m.removeSpare(sp)
		}
	}()

	rs, release, err := m.rulesets.Get(r.Profile, r.ProfileDigest, m.cfg.Support)
	if err != nil {
		return err
	}
	defer release()
	if cmd.Path, err = spawn.LookPathAs(cmd.Credential, cmd.Argv[0], cmd.Env, cmd.Dir); err != nil {
		return err
	}
	if sp != nil && !m.intact(sp) {
		m.removeSpare(sp)
		sp = nil
	}
	if sp == nil {
		if sp, err = m.makeSpare(b.id, r.spareKind(sess == nil)); err != nil {
			return err
		}
	}
	if t := r.Spec.GetTerminal(); t != nil {
		if sp.io, err = openTerminal(t, r.Cred); err != nil {
			return err
		}
	}
	if m.supervised() {
		cmd.StatusFile = m.logs.statusFile(b.id)
	}
	b.group = sp.group
	cmd.Group = b.group
	cmd.Stdin, cmd.Stdout, cmd.Stderr = sp.io.child[0], sp.io.child[1], sp.io.child[2]
	rec := m.newRecord(b, r, rs, sess == nil)
	m.noteGroup(rec, b.group)

	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	b.rec.Store(rec)
	if err := m.ledger.intent(rec); err != nil {
		return err
	}
	b.child, err = m.spawner.Start(cmd, rs)
	if err != nil {
		m.ledger.abort(rec)
		return err
	}
	started = true
	sp.io.closeChild()

	rec = proto.CloneOf(rec)
	rec.Pid, rec.StartTicks = int32(b.child.PID), b.child.StartTicks()
	rec.State = apiv1.SandboxState_SANDBOX_STATE_RUNNING
	m.noteGroup(rec, b.group)
	if err := m.ledger.started(rec); err != nil {
		return err
	}
	b.rec.Store(rec)
	if sess == nil {
		m.logs.add(b.id, b.owner, rec.GetLogLimit())
	} else {
		sess.begin(m, b, sp.io)
	}
	return nil
}

// endNow ends a sandbox whose start could not be noted.
func (m *Manager) endNow(b *box) {
	if err := b.group.KillAll(); err != nil {
		m.cfg.Log.Error("sandbox whose start failed could not be ended", "sandbox", b.id, "error", err)
		_ = b.child.Signal(syscall.SIGKILL)
	}
	if _, err := b.child.Wait(context.Background()); err != nil {
		m.cfg.Log.Error("sandbox whose start failed was not seen to end", "sandbox", b.id, "error", err)
	}
	m.ledger.abort(b.rec.Load())
}

// discard removes a group in which nothing runs.
func (m *Manager) discard(id string, g spawn.Group) {
	if err := g.Remove(); err != nil {
		m.cfg.Log.Warn("group of a sandbox could not be removed", "sandbox", id, "error", err)
	}
}

func (m *Manager) newRecord(b *box, r *Request, rs *landlock.Rulesets, detached bool) *apiv1.Sandbox {
	rec := &apiv1.Sandbox{
		Id:            b.id,
		State:         apiv1.SandboxState_SANDBOX_STATE_STARTING,
		Policy:        r.Version.GetName(),
		Version:       r.Version.GetNumber(),
		VersionDigest: r.Version.GetDigest(),
		ProfileDigest: r.ProfileDigest,
		Parameters:    r.Spec.GetParameters(),
		Argv:          r.Spec.GetArgv(),
		Directory:     r.directory(),
		Uid:           uint32(os.Geteuid()),
		Gid:           uint32(os.Getegid()),
		Owner:         r.Owner,
		OwnerUid:      r.OwnerUID,
		Created:       timestamppb.Now(),
		Detached:      detached,
		Tty:           r.Spec.GetTerminal() != nil,
		Remove:        r.Spec.GetRemove(),
		BootId:        m.boot,
		RequestId:     r.RequestID,
		SmackLabel:    b.label,
	}
	if r.Cred != nil {
		rec.Uid, rec.Gid = r.Cred.UID, r.Cred.GID
	}
	if detached {
		rec.LogLimit = m.cfg.LogLimit
		if l := r.Spec.GetLogLimit(); l != 0 {
			rec.LogLimit = max(l, minLogLimit)
		}
	}
	noteRules(rec, rs)
	return rec
}

func (m *Manager) supervised() bool { return m.cfg.Containment.Name() == "supervisor" }

// noteGroup writes down where the descendants are found again.
func (m *Manager) noteGroup(rec *apiv1.Sandbox, g spawn.Group) {
	rec.Group = g.Path()
	if !m.supervised() {
		rec.Cgroup = rec.Group
	}
}
