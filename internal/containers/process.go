package containers

import (
	"errors"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"time"
)

// Life is what a container is doing.
type Life string

// The lives of a container. Gone is of a record whose container the runtime does not have, or has under another
// profile. Unknown: it cannot be told, as without the right to read the runtime's folder.
const (
	Created Life = "created"
	Running Life = "running"
	Stopped Life = "stopped"
	Gone    Life = "gone"
	Unknown Life = "unknown"
)

// Now is what a container is at a moment.
type Now struct {
	State Life
	// First process, in the number space of whoever asks; 0 when it has ended or is not known.
	Init int
	// Ticks is its start, in clock ticks after boot.
	Ticks uint64
}

// Look finds out what the container of a record is now. The runtime's own files say it; where they are not known, the
// process that the record names, and else the one in the pid file, unless that process is younger than the file.
func (r *Record) Look() Now {
	if r.Root != "" {
		st, err := Runtime(r.Root, r.ID)
		switch {
		case errors.Is(err, ErrNone):
			return Now{State: Gone}
		case err != nil:
			return Now{State: Unknown}
		case st.Digest != r.Digest:
			return Now{State: Gone} // of an attempt to create another one of its name
		}
		ticks, alive := startOf(st.Pid)
		switch {
		case !alive || st.Start != 0 && st.Start != ticks:
			return Now{State: Stopped}
		case st.Created:
			return Now{State: Created, Init: st.Pid, Ticks: ticks}
		}
		return Now{State: Running, Init: st.Pid, Ticks: ticks}
	}
	if r.Pid != 0 {
		if ticks, alive := startOf(r.Pid); alive && (r.Start == 0 || r.Start == ticks) {
			return Now{State: Running, Init: r.Pid, Ticks: ticks}
		}
		return Now{State: Gone}
	}
	if r.PidFile != "" {
		return r.lookPidFile()
	}
	return Now{State: Unknown}
}

// slack is how far the clock that files are stamped by and that of processes may be apart.
const slack = 2 * time.Second

func (r *Record) lookPidFile() Now {
	st, err := os.Stat(r.PidFile)
	if errors.Is(err, fs.ErrNotExist) {
		if time.Since(r.Created) < startTakes {
			return Now{State: Unknown}
		}
		return Now{State: Gone}
	}
	if err != nil || !st.Mode().IsRegular() || st.Size() > 64 {
		return Now{State: Unknown}
	}
	b, err := os.ReadFile(r.PidFile)
	if err != nil {
		return Now{State: Unknown}
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil || pid <= 0 {
		return Now{State: Unknown}
	}
	ticks, alive := startOf(pid)
	if !alive || started(ticks).After(st.ModTime().Add(slack)) {
		return Now{State: Gone}
	}
	return Now{State: Running, Init: pid, Ticks: ticks}
}

// startOf gives when a process started, in clock ticks after boot (proc(5), field 22 of stat); false when there is
// none, or only one that has ended.
func startOf(pid int) (ticks uint64, alive bool) {
	if pid <= 0 {
		return 0, false
	}
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0, false
	}
	// The name, in parentheses, may hold anything.
	text := string(b)
	fields := strings.Fields(text[strings.LastIndexByte(text, ')')+1:])
	if len(fields) < 20 || fields[0] == "Z" || fields[0] == "X" {
		return 0, false
	}
	ticks, err = strconv.ParseUint(fields[19], 10, 64)
	return ticks, err == nil
}

// started is a moment in ticks as one of the clock. A tick is 10 ms for every user of the kernel (USER_HZ).
func started(ticks uint64) time.Time {
	b, err := os.ReadFile("/proc/stat")
	if err != nil {
		return time.Time{}
	}
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, "btime "); ok {
			boot, err := strconv.ParseInt(strings.TrimSpace(rest), 10, 64)
			if err != nil {
				return time.Time{}
			}
			return time.Unix(boot, 0).Add(time.Duration(ticks) * 10 * time.Millisecond)
		}
	}
	return time.Time{}
}
