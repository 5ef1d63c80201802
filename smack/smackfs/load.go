package smackfs

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"policyd.dev/policyd/internal/errs"
	"policyd.dev/policyd/smack"
)

// Options are how rules are loaded.
type Options struct {
	Order Order
	// Adopt takes over rules for wanted pairs that somebody else loaded. Rules for other pairs stay what they are.
	Adopt bool
	// DryRun writes nothing; the report says what would be done.
	DryRun bool
	// Memory is of the loads before this one into the same kernel; nil: none.
	Memory *Memory
	// Labels makes the report count the kernel's labels and name the new ones, which means to read cipso2.
	Labels bool
	// Intent, when set, is called with the bytes of an [Intent] before the first write, and only if there is one. They
	// must be on disk when it returns nil; an error of it ends the load before anything is written.
	Intent func([]byte) error
}

// Report is what a load found and did. All lists are by subject and object.
type Report struct {
	Rules   int     // rules the kernel had
	Kept    int     // wanted rules it had already
	Changes Changes // pairs that changed, or would
	Foreign []smack.Rule
	// Conflicts are changes of pairs for which somebody else has loaded a rule. They are among Changes when adopted.
	Conflicts []Change
	// Drift are owned rules that somebody has changed since: From is as policyd loaded it, To as it was found.
	Drift []Change

	Labels    int      // labels the kernel had, 0 without Options.Labels; none is ever freed
	NewLabels []string // labels it has now because of this load, with Options.Labels

	// Owned is what policyd has loaded from now on, also when the load failed: what the next load is to be given as owned.
	Owned *smack.Set

	Writes  int // system calls that write
	Written int // rules written
	Bytes   int
	// PutBack says that the load failed and the earlier rules are in force again.
	PutBack bool
}

// Load makes the wanted rules those of the kernel, by difference: rules that are owned and no longer wanted go, rules
// of others stay. Rules that change no decision are not written (smack.Set.Live). owned is what the loads before this one have loaded (Report.Owned), nil for nothing; after a reboot
// it is nil again, and after an interrupted load it is what [Recover] gives.
//
// Nothing is written when nothing changes. Afterwards the kernel's rules are read again and compared; with a [Memory] that
// still holds, a few changes are asked for by access2 instead. When the kernel
// refuses something, or ctx ends, the earlier rules are put back and the error says why; it wraps
// [errs.ErrSmackPartly] when even that failed. A rule of somebody else for a wanted pair with another access is
// [errs.ErrSmackForeign] unless adopted, and nothing is written. One load at a time: each must know what the one before
// it owns. The report is never nil when the kernel could be read.
func Load(ctx context.Context, fs FS, want, owned *smack.Set, o Options) (*Report, error) {
	if owned == nil {
		owned = &smack.Set{}
	}
	if want == nil {
		want = &smack.Set{}
	}
	if want.Dead() > 0 {
		want = want.Live()
	}
	c, known, err := o.compare(fs, want, owned)
	if err != nil {
		return nil, err
	}
	r := &Report{
		Rules: c.rules, Kept: c.kept, Changes: c.changes, Foreign: c.foreign, Conflicts: c.conflicts, Drift: c.drift, Owned: owned,
	}
	if o.Labels {
		if err := r.countLabels(fs); err != nil {
			return r, err
		}
	}
	if len(c.conflicts) > 0 && !o.Adopt {
		return r, fmt.Errorf("%w: %s", errs.ErrSmackForeign, list(len(c.conflicts), func(i int) string {
			ch := c.conflicts[i]
			return fmt.Sprintf("%q is loaded, %s is wanted", text(smack.Rule{Subject: ch.Subject, Object: ch.Object, Access: ch.From}), ch.To)
		}))
	}
	after, err := ownedAfter(want, c, o.Adopt)
	if err != nil {
		return r, err
	}
	if o.DryRun {
		return r, nil
	}
	if c.changes.Len() == 0 {
		r.Owned = after
		o.Memory.learn(c)
		return r, ctx.Err()
	}
	w := &writer{fs: fs}
	defer w.close()
	if err := w.try(); err != nil {
		return r, err
	}
	if o.Intent != nil {
		if err := o.Intent(encodeIntent(BootID(), o.Order, c.changes.All())); err != nil {
			return r, fmt.Errorf("keep the intent of a load: %w", err)
		}
	}
	err = w.write(ctx, steps(c.changes.All(), c.changes.Len(), o.Order))
	if err == nil && (!known || !c.confirmed(fs)) {
		err = c.verify(fs)
	}
	if err != nil {
		o.Memory.Forget()
		err = r.putBack(ctx, fs, w, o.Order, err)
	} else {
		w.close() // an event of this process, which learn takes along
		o.Memory.learn(c)
		r.Owned = after
	}
	r.Writes, r.Written, r.Bytes = w.writes, w.written, w.bytes
	return r, err
}

// compare holds the kernel's rules against what is wanted and owned; known says that the kernel was not read for it. Who
// only looks is always told what the kernel shows now.
func (o *Options) compare(fs FS, want, owned *smack.Set) (c *comparison, known bool, err error) {
	if m := o.Memory; m != nil && !o.DryRun && m.holds() {
		if c = m.compare(want, owned); c == nil {
			c, err = compare(m.rules(), want, owned)
		}
		return c, true, err
	}
	c, err = compareKernel(fs, want, owned)
	return c, false, err
}

// ownedAfter is what policyd owns once want is loaded: all of it, without the rules that somebody else had loaded
// before just so.
func ownedAfter(want *smack.Set, c *comparison, adopt bool) (*smack.Set, error) {
	if adopt || len(c.same) == 0 {
		return want, nil
	}
	others := map[[2]string]bool{}
	for _, r := range c.same {
		others[[2]string{r.Subject, r.Object}] = true
	}
	b := smack.NewSetBuilder()
	for r := range want.All() {
		if !others[[2]string{r.Subject, r.Object}] {
			b.Set(r.Subject, r.Object, r.Access)
		}
	}
	return b.Build()
}

// putBack brings every pair of the changes back to what it was, whatever it is now, and says in words how that went.
func (r *Report) putBack(ctx context.Context, fs FS, w *writer, order Order, cause error) error {
	ctx = context.WithoutCancel(ctx)
	left, err := differing(fs, r.Changes)
	if err == nil && len(left) > 0 {
		err = w.write(ctx, steps(slices.Values(left), len(left), order))
		if err == nil {
			left, err = differing(fs, r.Changes)
		}
	}
	if err != nil || len(left) > 0 {
		r.claim()
	}
	switch {
	case err != nil:
		return fmt.Errorf("%w: %w; the earlier rules could not be put back: %w", errs.ErrSmackPartly, cause, err)
	case len(left) > 0:
		return fmt.Errorf("%w: %w; the earlier rules could not be put back: %s", errs.ErrSmackPartly, cause, list(len(left), func(i int) string {
			c := left[i]
			return fmt.Sprintf("%q is loaded, was %s", text(smack.Rule{Subject: c.Subject, Object: c.Object, Access: c.From}), c.To)
		}))
	}
	r.PutBack = true
	return fmt.Errorf("%w; the earlier rules are in force", cause)
}

// claim makes everything that the load may have left in the kernel policyd's, beside what was.
func (r *Report) claim() {
	b := smack.NewSetBuilder()
	for rule := range r.Owned.All() {
		b.Set(rule.Subject, rule.Object, rule.Access)
	}
	for c := range r.Changes.All() {
		if c.To != 0 {
			b.Set(c.Subject, c.Object, c.To)
		}
	}
	if all, err := b.Build(); err == nil { // more labels than a set holds: what was owned is all that can be told
		r.Owned = all
	}
}

// differing gives the changes that lead from what the kernel has now back to their From.
func differing(fs FS, changes Changes) ([]Change, error) {
	now, err := ReadRules(fs)
	if err != nil {
		return nil, err
	}
	var left []Change
	for c := range changes.All() {
		if a, _ := now.Lookup(c.Subject, c.Object); a != c.From {
			left = append(left, Change{c.Subject, c.Object, a, c.From})
		}
	}
	return left, nil
}

// countLabels reads which labels the kernel has.
func (r *Report) countLabels(fs FS) error {
	known, err := KernelLabels(fs)
	if err != nil {
		return err
	}
	r.Labels = len(known)
	have := make(map[string]bool, len(known))
	for _, l := range known {
		have[l] = true
	}
	for c := range r.Changes.All() {
		for _, l := range []string{c.Subject, c.Object} {
			if !have[l] {
				have[l] = true
				r.NewLabels = append(r.NewLabels, l)
			}
		}
	}
	return nil
}

// KernelLabels gives every label the kernel has, newest first. None is ever freed, and each makes loading slower.
func KernelLabels(fs FS) ([]string, error) {
	b, err := readFile(fs, fileCipso2)
	if err != nil {
		return nil, explain(fs, err)
	}
	var out []string
	for line := range strings.Lines(string(b)) {
		label, _, _ := strings.Cut(line, " ")
		out = append(out, label)
	}
	return out, nil
}

// list joins up to a handful of texts and says how many more there are.
func list(n int, item func(i int) string) string {
	const most = 8
	var s []string
	for i := range min(n, most) {
		s = append(s, item(i))
	}
	if n > most {
		s = append(s, fmt.Sprintf("and %d more", n-most))
	}
	return strings.Join(s, "; ")
}
