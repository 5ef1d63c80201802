package smackfs

import (
	"fmt"
	"maps"
	"slices"

	"policyd.dev/policyd/internal/errs"
	"policyd.dev/policyd/smack"
)

// UndoSettings brings entries back to what they were before changes ([SettingsReport.Changes]) of which any part may have
// been made, in reverse order. An entry that somebody else has changed since stays as it is. What the kernel cannot
// take back, an entry of netlabel that is new, is returned; the error is [errs.ErrSmackPartly] when something else is
// not as it was.
func UndoSettings(fs FS, changes []SettingChange) (stays []Entry, err error) {
	now, err := readCurrent(fs)
	if err != nil {
		return nil, err
	}
	was := *now
	was.value = maps.Clone(now.value)
	for _, c := range changes {
		if was.entries(c.File) == nil && c.HadOld {
			was.value[c.File] = c.Old
		}
	}
	made := func(c SettingChange) bool {
		got, has := now.get(c.Entry)
		if c.File == fileIPv6 && c.Value == smack.IPv6Delete {
			return !has && c.HadOld
		}
		return has && got == c.Value && (got != c.Old || !c.HadOld)
	}
	var undone []SettingChange
	for _, c := range slices.Backward(changes) {
		if !made(c) {
			continue
		}
		data, ok := was.undo(c.Entry, c.Old, c.HadOld)
		if !ok {
			stays = append(stays, c.Entry)
			continue
		}
		undone = append(undone, c)
		if err := writeFile(fs, c.File, data); err != nil {
			return stays, fmt.Errorf("%w: %s: %w", errs.ErrSmackPartly, c.Entry, explain(fs, err))
		}
	}
	if len(undone) == 0 {
		return stays, nil
	}
	if now, err = readCurrent(fs); err != nil {
		return stays, err
	}
	for _, c := range undone {
		got, has := now.get(c.Entry)
		if c.File == fileCipso2 && !c.HadOld {
			continue // the label stays, with the entry it has of itself
		}
		if got != c.Old || has != c.HadOld {
			return stays, fmt.Errorf("%w: %s %s is %q, was %q", errs.ErrSmackPartly, c.File, c.Key, got, c.Old)
		}
	}
	return stays, nil
}
