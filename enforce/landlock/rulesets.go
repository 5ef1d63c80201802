package landlock

import (
	"errors"
	"fmt"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"policyd.dev/policyd/enforce/profile"
)

// Link is a rule whose path is or leads through a symbolic link: what the rule
// grants is its target.
type Link struct {
	Rule   string // as the profile has it
	Target string // the real path, as it was when the ruleset was built
}

// Masked is a rule that lost rights which only a directory can have, because
// its path names something else. Nothing more is granted by it, or less: the
// kernel has no such rights there.
type Masked struct {
	Path   string
	Type   string // "regular file", "named pipe", ...
	Access profile.Access
}

// Rulesets is a profile as this host's kernel holds it: one ruleset descriptor
// per layer, oldest first. A descriptor stays writable for whoever holds it, so
// none exists here before its last rule is in.
type Rulesets struct {
	Missing   []profile.Need // what the kernel lacks of a profile with enforcement: degrade
	Skipped   []string       // paths that are not there and said missing: skip
	Links     []Link
	Masked    []Masked
	Flattened bool
	LogLost   []string // what a flattened profile does not keep of quiet and log flags
	Layers    []string // the kernel's layers by name; empty when nothing can be enforced

	profile *profile.Profile
	abi     int
	layers  []kernelLayer
	looks   []look
	refs    atomic.Int32
}

type kernelLayer struct {
	fd    int
	flags uint32 // of landlock_restrict_self
}

// Layer is a ruleset descriptor with the flags of landlock_restrict_self to use
// it with. The descriptor belongs to the Rulesets.
type Layer struct {
	Name  string
	FD    int
	Flags uint32
}

// Profile gives the profile the rulesets were built from, for explanations.
func (r *Rulesets) Profile() *profile.Profile { return r.profile }

// FDs gives the descriptors in order, for handing to another process.
func (r *Rulesets) FDs() []Layer {
	out := make([]Layer, len(r.layers))
	for i, l := range r.layers {
		out[i] = Layer{r.Layers[i], l.fd, l.flags}
	}
	return out
}

// FromFDs makes Rulesets of descriptors another process built, as [Rulesets.FDs]
// gave them. The profile may be nil. They are closed by Release.
func FromFDs(layers []Layer, p *profile.Profile) *Rulesets {
	r := &Rulesets{profile: p}
	for _, l := range layers {
		r.Layers = append(r.Layers, l.Name)
		r.layers = append(r.layers, kernelLayer{l.FD, l.Flags})
	}
	r.refs.Store(1)
	return r
}

// RestrictThread sets no_new_privs on the calling thread and stacks every
// layer on it, for good. The caller has locked the goroutine to the thread and
// ends it locked, also after an error: the thread may then be half restricted.
//
// An error that wraps errs.ErrLandlockBlocked is of a seccomp filter, also of one
// that answers that the kernel has restricted the thread where it was not asked.
func (r *Rulesets) RestrictThread() error {
	return r.RestrictThreadStep(nil)
}

// RestrictThreadStep is RestrictThread with a call before every step it takes
// ("no_new_privs", "restrict_self"); an error of step ends it there.
func (r *Rulesets) RestrictThreadStep(step func(name string) error) error {
	if err := runStep(step, "no_new_privs"); err != nil {
		return err
	}
	if err := setNoNewPrivs(); err != nil {
		return err
	}
	for i, l := range r.layers {
		if err := runStep(step, "restrict_self"); err != nil {
			return err
		}
		if err := restrictSelf(l.fd, l.flags); err != nil {
			return fmt.Errorf("layer %q: %w", r.Layers[i], restrictError(err, i, len(r.layers)))
		}
	}
	return nil
}

func runStep(step func(string) error, name string) error {
	if step == nil {
		return nil
	}
	return step(name)
}

// restrictError says in words what landlock_restrict_self(2) meant.
func restrictError(err error, layer, layers int) error {
	if errors.Is(err, unix.E2BIG) {
		return fmt.Errorf("landlock_restrict_self: layer %d of %d is beyond the kernel's limit of %d layers; the layers policyd itself runs under count too: %w",
			layer+1, layers, profile.MaxKernelLayers, err)
	}
	return fmt.Errorf("landlock_restrict_self: %w", err)
}

// Release gives back one reference; the last one closes the descriptors.
// Build gives the first reference, [Cache.Get] one for each caller.
func (r *Rulesets) Release() {
	if r.refs.Add(-1) == 0 {
		r.close()
	}
}

// retain takes a reference unless the last one is gone already.
func (r *Rulesets) retain() bool {
	for {
		n := r.refs.Load()
		if n <= 0 {
			return false
		}
		if r.refs.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

func (r *Rulesets) close() {
	for i := range r.layers {
		unix.Close(r.layers[i].fd)
		r.layers[i].fd = -1
	}
}
