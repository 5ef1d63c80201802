package units

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	record "policyd.dev/policyd/enforce/unit"
)

// Change is a profile that a unit had from some time on. The changes since the boot
// tell what a process was started under: the profile that was there when systemd
// started it. Programs write over their environment and have no other mark.
type Change struct {
	Since         uint64 `json:"since"` // CLOCK_MONOTONIC in microseconds, systemd's; 0: since the boot
	Policy        string `json:"policy"`
	ProfileDigest string `json:"profileDigest"`
}

// never is the time of a change that is being made: nothing was started after it.
const never = math.MaxUint64

// maxChanges bounds the history; what was started before it is not known.
const maxChanges = 256

// Lock keeps others from writing profiles: many instances of a template may start at
// once. It holds until release is called or the process ends.
func (p *Place) Lock() (release func(), err error) {
	if err := os.MkdirAll(p.Run, 0o755); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(filepath.Join(p.Run, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	for {
		if err = unix.Flock(int(f.Fd()), unix.LOCK_EX); err != unix.EINTR {
			break
		}
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("%s: %w", f.Name(), err)
	}
	return func() { f.Close() }, nil
}

// changing has a profile written, with its place in the history: never one that says
// more than is so, whenever this ends.
func (p *Place) changing(r *record.Record, path string, write func() error) error {
	all, err := p.history(r.Unit)
	if err != nil {
		return err
	}
	if len(all) == 0 {
		if was, err := record.Read(path); err == nil {
			all = append(all, Change{0, was.Policy, was.ProfileDigest})
		}
	}
	all = append(all, Change{never, r.Policy, r.ProfileDigest})
	if err := p.keep(r.Unit, all); err != nil {
		return err
	}
	if err := write(); err != nil {
		return errors.Join(err, p.keep(r.Unit, all[:len(all)-1]))
	}
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return err
	}
	all[len(all)-1].Since = uint64(time.Duration(now.Nano()) / time.Microsecond)
	return p.keep(r.Unit, all)
}

func (p *Place) history(unit string) ([]Change, error) {
	var all []Change
	b, err := os.ReadFile(p.History(unit))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err == nil {
		err = json.Unmarshal(b, &all)
	}
	return all, err
}

func (p *Place) keep(unit string, all []Change) error {
	b, err := json.Marshal(all[max(0, len(all)-maxChanges):])
	if err != nil {
		return err
	}
	path := p.History(unit)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return write(path, b)
}

// Running tells which profile the running processes of a unit were started under;
// false when they were started before it was attached, or that is not known. unit is
// the one that is attached, u may be an instance of it.
func (p *Place) Running(unit string, runtime bool, u *Unit) (Change, bool) {
	started := uint64(0)
	for _, key := range []string{"ExecMainStartTimestampMonotonic", "ActiveEnterTimestampMonotonic"} {
		if n, err := strconv.ParseUint(u.Get(key), 10, 64); err == nil && n > 0 {
			started = n
			break
		}
	}
	all, err := p.history(unit)
	if err != nil || started == 0 {
		return Change{}, false
	}
	if len(all) == 0 { // it was written before the boot
		r, err := record.Read(p.Profile(unit, runtime))
		if err != nil {
			return Change{}, false
		}
		return Change{0, r.Policy, r.ProfileDigest}, true
	}
	for i := len(all) - 1; i >= 0; i-- {
		if all[i].Since <= started && all[i].Since != never {
			return all[i], true
		}
	}
	return Change{}, false
}
