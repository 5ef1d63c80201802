package sandbox

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"time"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/enforce/landlock"
	"policyd.dev/policyd/enforce/spawn"
	"policyd.dev/policyd/store"
)

// Store is what sandboxes need of the store; [store.Store] has it.
type Store interface {
	// PutSandboxes writes records and appends events in one transaction.
	PutSandboxes(ctx context.Context, sandboxes []*apiv1.Sandbox, events []*apiv1.Event) error
	// Sandbox finds a record by id or a unique beginning of it.
	Sandbox(id string) (*apiv1.Sandbox, error)
	Sandboxes(f store.SandboxFilter) (records []*apiv1.Sandbox, next string, err error)
	DeleteSandbox(ctx context.Context, ids ...string) error
}

// Config of [New]. StateDir, RuntimeDir, Store and Containment must be given.
type Config struct {
	// StateDir holds the folder "sandboxes" with one folder of logs a sandbox.
	StateDir string
	// RuntimeDir holds the folder "journal".
	RuntimeDir string
	Store      Store
	Support    landlock.Support
	// Containment holds descendants. Its groups must be this policyd's alone.
	Containment spawn.Containment
	// CgroupRoot is the folder in which Containment makes groups, when it does so with
	// cgroups: groups of no known sandbox in it are ended by New. Empty: none is looked for.
	CgroupRoot string
	// Log gets what nobody is waiting to be told. nil: slog.Default().
	Log *slog.Logger
	// LogLimit is how much output of a sandbox is kept unless its start says otherwise,
	// bytes. 0: 16 MiB. Below 64 KiB it is 64 KiB.
	LogLimit uint64
	// HangupGrace is how long an attached sandbox may go on after its client went away
	// and it got SIGHUP. 0: 5 s.
	HangupGrace time.Duration
	// HandOver gives the descriptors of an attached sandbox to whoever keeps them for the
	// next policyd; it does not close them. nil: nobody does, and Suspend is not called.
	HandOver func(id string, h Handed) error
	// Handed is what an earlier policyd handed over, by id. New closes what it does not use.
	Handed map[string]Handed
	// AttachWait is how long the client of a sandbox that was handed over may take to come
	// back before its output goes into logs. 0: 30 s.
	AttachWait time.Duration
	// Threads is how many threads are kept ready to start programs. 0: 4.
	Threads int
	// Rulesets are kept between starts. nil: a cache of 256 profiles.
	Rulesets *landlock.Cache
	// Outdated tells whether a policy has a newer version; fills Sandbox.outdated.
	Outdated func(policy string, version uint64) bool

	// noPunch is for tests: as if the file system could not make holes.
	noPunch bool
}

const (
	defaultLogLimit    = 16 << 20
	minLogLimit        = 64 << 10
	defaultHangupGrace = 5 * time.Second
	defaultAttachWait  = 30 * time.Second
	defaultThreads     = 4
	cachedRulesets     = 256
)

func (c *Config) fill() error {
	switch {
	case !filepath.IsAbs(c.StateDir):
		return errors.New("sandboxes: the state folder is not an absolute path")
	case !filepath.IsAbs(c.RuntimeDir):
		return errors.New("sandboxes: the runtime folder is not an absolute path")
	case c.Store == nil:
		return errors.New("sandboxes: no store")
	case c.Containment == nil:
		return errors.New("sandboxes: no containment")
	}
	if c.Log == nil {
		c.Log = slog.Default()
	}
	if c.LogLimit == 0 {
		c.LogLimit = defaultLogLimit
	}
	c.LogLimit = max(c.LogLimit, minLogLimit)
	if c.HangupGrace == 0 {
		c.HangupGrace = defaultHangupGrace
	}
	if c.AttachWait == 0 {
		c.AttachWait = defaultAttachWait
	}
	if c.Threads == 0 {
		c.Threads = defaultThreads
	}
	if c.Outdated == nil {
		c.Outdated = func(string, uint64) bool { return false }
	}
	return nil
}
