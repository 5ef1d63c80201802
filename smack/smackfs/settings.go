package smackfs

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"policyd.dev/policyd/internal/errs"
	"policyd.dev/policyd/smack"
)

// SettingsOptions are how settings are applied.
type SettingsOptions struct {
	// Adopt takes over entries of netlabel, ipv6host and cipso2 that somebody else has made otherwise.
	Adopt  bool
	DryRun bool
	// Interrupted are the settings of an earlier call that did not end: their entries are owned too. To know them, the
	// caller keeps them on disk before it calls.
	Interrupted *smack.Settings
	// LockOut allows an onlycap that leaves out the caller's own label: it can change nothing of Smack any more then.
	LockOut bool
}

// SettingChange is an entry that is changed. HadOld tells an entry that was not there from an empty value.
type SettingChange struct {
	Entry  // with the new value
	Old    string
	HadOld bool
}

// SettingsReport is what [ApplySettings] found and did.
type SettingsReport struct {
	Kept    int // wanted entries the kernel had already
	Changes []SettingChange
	// Foreign are entries of netlabel and ipv6host, and labels with a cipso entry of their own, that are neither wanted
	// nor owned.
	Foreign []Entry
	// Stays are owned entries that are no longer wanted and cannot be taken back: the kernel deletes none of netlabel and
	// cipso2, and a single value has no other to go back to.
	Stays   []Entry
	PutBack bool
	// Owned is what policyd has set from now on, also when it failed: what the next call is to be given as owned. Entries
	// that stay in netlabel and cipso2 are among it: a later policy may want them otherwise.
	Owned smack.Settings
}

// ApplySettings makes the kernel's settings the wanted ones, by difference. What want does not set stays as it is, but
// for entries of ipv6host that owned, the settings applied before, has and want has not: they are deleted.
//
// Everything is checked before anything is written, and read again after. Emptying onlycap takes
// smack.Settings.ClearOnlycap. When something fails, what can be put back is; else the error is [errs.ErrSmackPartly].
// Rules are to be loaded before: onlycap is the last that is written.
func ApplySettings(ctx context.Context, fs FS, want, owned *smack.Settings, o SettingsOptions) (*SettingsReport, error) {
	if want == nil {
		want = &smack.Settings{}
	}
	if err := want.Validate(); err != nil {
		return nil, fmt.Errorf("%w: %w", errs.ErrInvalid, err)
	}
	if len(want.Onlycap) > 0 && !o.LockOut {
		label, _ := callerOf(fs)
		if !slices.Contains(want.Onlycap, label) {
			return nil, fmt.Errorf("%w: onlycap %s leaves out the label %q of the caller itself, which could change nothing of Smack any more",
				errs.ErrInvalid, strings.Join(want.Onlycap, " "), label)
		}
	}
	if want.RelabelSelf != nil || want.ClearRelabelSelf {
		runtime.LockOSThread() // the list is the thread's
		defer runtime.UnlockOSThread()
	}
	s := &settingsRun{fs: fs, report: &SettingsReport{}}
	if owned != nil {
		s.report.Owned = *owned
	}
	var err error
	if s.now, err = readCurrent(fs); err != nil {
		return nil, err
	}
	wanted := entriesOf(want)
	if err := s.check(wanted, append(entriesOf(owned), entriesOf(o.Interrupted)...), o.Adopt); err != nil {
		return s.report, err
	}
	if o.DryRun {
		return s.report, ctx.Err()
	}
	after := WithEntries(*want, s.report.Stays)
	if len(s.todo) == 0 {
		s.report.Owned = after
		return s.report, ctx.Err()
	}
	if err := CanWrite(fs); err != nil {
		return s.report, err
	}
	if err := s.write(ctx); err != nil {
		return s.report, s.putBack(err)
	}
	s.report.Owned = after
	return s.report, nil
}

// WithEntries gives settings with entries of netlabel and cipso2 ([UndoSettings] gives those that it could not take back)
// among them, in place of what they have for the same network or label.
func WithEntries(s smack.Settings, entries []Entry) smack.Settings {
	s.Netlabel, s.Cipso = slices.Clone(s.Netlabel), slices.Clone(s.Cipso)
	for _, e := range entries {
		switch e.File {
		case fileNetlabel:
			if p, err := netip.ParsePrefix(e.Key); err == nil {
				s.Netlabel = append(slices.DeleteFunc(s.Netlabel, func(n smack.Netlabel) bool { return n.Prefix == p }), smack.Netlabel{Prefix: p, Label: e.Value})
			}
		case fileCipso2:
			if c, err := parseShownCipso(e.Key, e.Value); err == nil {
				s.Cipso = append(slices.DeleteFunc(s.Cipso, func(o smack.Cipso) bool { return o.Label == c.Label }), c)
			}
		}
	}
	return s
}

type settingsRun struct {
	fs     FS
	now    *current
	todo   []wantedEntry
	done   int // of todo
	report *SettingsReport
}

// check fills the report and todo.
func (s *settingsRun) check(wanted, owned []wantedEntry, adopt bool) error {
	is, was := map[[2]string]bool{}, map[[2]string]bool{}
	for _, e := range owned {
		was[[2]string{e.File, e.Key}] = true
	}
	levels := false // direct or mapped change, and with them cipso entries
	var conflicts []string
	for _, e := range wanted {
		is[[2]string{e.File, e.Key}] = true
		if s.now.missing[e.File] {
			return fmt.Errorf("%w: this kernel has no file %s for %s", errs.ErrSmackRefused, e.File, e.Entry)
		}
		old, had := s.now.get(e.Entry)
		deleted := e.File == fileIPv6 && e.Value == smack.IPv6Delete
		if (had && old == e.Value || !had && deleted) && (!levels || e.File != fileCipso2) {
			s.report.Kept++
			continue
		}
		levels = levels || e.File == fileDirect || e.File == fileMapped
		if had && !adopt && old != e.Value && !was[[2]string{e.File, e.Key}] && s.now.entries(e.File) != nil &&
			(e.File != fileCipso2 || !s.now.builtIn(e.Key)) {
			conflicts = append(conflicts, fmt.Sprintf("%s has %q", e.Entry, old))
		}
		s.todo = append(s.todo, e)
	}
	for _, e := range owned { // what has another value by now is somebody else's
		if is[[2]string{e.File, e.Key}] {
			continue
		}
		old, had := s.now.get(e.Entry)
		if had && old == e.Value {
			is[[2]string{e.File, e.Key}] = true // two owned settings may have it
		}
		switch {
		case e.File == fileIPv6 && e.Value != smack.IPv6Delete && had && old == e.Value:
			// Before onlycap, which may come last in todo.
			s.todo = slices.Insert(s.todo, 0, wantedEntry{Entry{fileIPv6, e.Key, smack.IPv6Delete}, ipv6Write(e.Key, smack.IPv6Delete)})
		case had && old == e.Value && e.Value != "":
			s.report.Stays = append(s.report.Stays, e.Entry)
		}
	}
	for _, e := range s.todo {
		old, had := s.now.get(e.Entry)
		s.report.Changes = append(s.report.Changes, SettingChange{e.Entry, old, had})
	}
	for _, file := range []string{fileNetlabel, fileIPv6, fileCipso2} {
		m := s.now.entries(file)
		var keys []string
		for k := range m {
			if !is[[2]string{file, k}] && (file != fileCipso2 || !s.now.builtIn(k)) {
				keys = append(keys, k)
			}
		}
		slices.Sort(keys)
		for _, k := range keys {
			s.report.Foreign = append(s.report.Foreign, Entry{file, k, m[k]})
		}
	}
	if len(conflicts) > 0 {
		return fmt.Errorf("%w: %s", errs.ErrSmackForeign, list(len(conflicts), func(i int) string { return conflicts[i] }))
	}
	return nil
}

// write makes the changes and holds that the kernel shows them.
func (s *settingsRun) write(ctx context.Context) error {
	for _, e := range s.todo {
		if err := ctx.Err(); err != nil {
			return err
		}
		s.done++
		if err := writeFile(s.fs, e.File, e.data); err != nil {
			if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) || errors.Is(err, unix.EROFS) {
				return explain(s.fs, err)
			}
			return fmt.Errorf("%w: %s: %w", errs.ErrSmackRefused, e.Entry, err)
		}
	}
	now, err := readCurrent(s.fs)
	if err != nil {
		return err
	}
	var wrong []string
	for _, e := range s.todo {
		if got, had := now.get(e.Entry); got != e.Value && (had || e.Value != smack.IPv6Delete) {
			wrong = append(wrong, fmt.Sprintf("%s is %q", e.Entry, got))
		}
	}
	if len(wrong) > 0 {
		return fmt.Errorf("%w: the kernel shows other settings than were written: %s", errs.ErrSmackRefused, list(len(wrong), func(i int) string { return wrong[i] }))
	}
	return nil
}

// putBack undoes the writes in reverse. An entry of netlabel that was not there before stays, since the kernel deletes
// none, and so does the cipso entry of a label whose number it was.
func (s *settingsRun) putBack(cause error) error {
	for _, e := range slices.Backward(s.todo[:s.done]) {
		old, had := s.now.get(e.Entry)
		if data, ok := s.now.undo(e.Entry, old, had); ok {
			_ = writeFile(s.fs, e.File, data) // what did not work shows in what is read next
		}
	}
	now, err := readCurrent(s.fs)
	if err == nil && s.mendCipso(now) {
		now, err = readCurrent(s.fs)
	}
	if err != nil {
		return fmt.Errorf("%w: %w; the earlier settings could not be put back: %w", errs.ErrSmackPartly, cause, err)
	}
	var left []string
	for _, e := range s.todo[:s.done] {
		old, had := s.now.get(e.Entry)
		got, has := now.get(e.Entry)
		if e.File == fileCipso2 && !had && now.builtIn(e.Key) {
			continue // the label alone is new
		}
		if got != old || has != had {
			left = append(left, fmt.Sprintf("%s is %q, was %q", strings.TrimSpace(e.File+" "+e.Key), got, old))
		}
	}
	if len(left) > 0 {
		return fmt.Errorf("%w: %w; the earlier settings could not be put back: %s", errs.ErrSmackPartly, cause, list(len(left), func(i int) string { return left[i] }))
	}
	s.report.PutBack = true
	return fmt.Errorf("%w; the earlier settings are in force", cause)
}

// mendCipso writes the entries of labels that moved with direct or mapped, there and back, because others had put them at
// the level in between.
func (s *settingsRun) mendCipso(now *current) (any bool) {
	for label, old := range s.now.cipso {
		if now.cipso[label] == old {
			continue
		}
		if data, ok := s.now.undo(Entry{fileCipso2, label, ""}, old, true); ok {
			any = true
			_ = writeFile(s.fs, fileCipso2, data)
		}
	}
	return any
}

// undo gives the write that makes an entry what it was.
func (c *current) undo(e Entry, old string, had bool) ([]byte, bool) {
	switch e.File {
	case fileCipso2:
		if !had { // the label was not known: back to what it has of itself
			if len(e.Key) >= oldLabelLen {
				return nil, false
			}
			old = c.value[fileDirect] + "/" + categoriesOf(e.Key)
		}
		entry, err := parseShownCipso(e.Key, old)
		return entry.Append(nil), err == nil
	case fileNetlabel:
		return []byte(e.Key + " " + old), had
	case fileIPv6:
		if !had {
			old = smack.IPv6Delete
		}
		return ipv6Write(e.Key, old), true
	case fileOnlycap, fileRelabel, fileUnconf:
		if old == "" {
			old = "-"
		}
	}
	return []byte(old), true
}
