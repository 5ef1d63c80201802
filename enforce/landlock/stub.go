package landlock

import (
	"errors"

	"policyd.dev/policyd/enforce/profile"
)

type look struct{}

// State says whether Landlock can be used.
type State int

const (
	Available State = iota
	NotBuilt
	Disabled
	Blocked
)

// Support is what the kernel can do.
type Support struct {
	State  State
	ABI    int
	Errata []int
	Err    error // wraps the errs sentinel
}

// Probe asks the kernel.
func Probe() Support { return Support{} }

// Limit gives support as if the kernel had only that ABI.
func (s Support) Limit(abi int) Support { return s }

// Build builds the rulesets of a profile.
func Build(p *profile.Profile, sup Support) (*Rulesets, error) { return nil, errors.ErrUnsupported }

// Cache keeps rulesets.
type Cache struct{}

// NewCache makes a cache of at most max profiles.
func NewCache(max int) *Cache { return &Cache{} }

// Get gives rulesets with a reference; release gives it back.
func (c *Cache) Get(p *profile.Profile, digest string, sup Support) (rs *Rulesets, release func(), err error) {
	return nil, nil, errors.ErrUnsupported
}

// Close drops everything cached.
func (c *Cache) Close() {}
