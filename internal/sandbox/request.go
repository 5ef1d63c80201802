package sandbox

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/enforce/profile"
	"policyd.dev/policyd/enforce/spawn"
	"policyd.dev/policyd/internal/errs"
)

// Request says what to start, for whom. The caller has authorized it.
type Request struct {
	Spec    *apiv1.SandboxSpec
	Version *apiv1.VersionInfo // of the policy
	Profile *profile.Profile
	// ProfileDigest is [profile.Digest] of the profile's bytes.
	ProfileDigest string
	Process       *apiv1.Process // of the policy; may be nil

	// SmackLabel is the label of the program, "" for policyd's own. With SmackPool, the first of its labels that no
	// sandbox alive has is taken instead.
	SmackLabel string
	SmackPool  []string
	// SmackRelabel are labels of which the program may take one, once, in place of SmackLabel.
	SmackRelabel []string

	// Cred is who the program runs as; nil: as policyd.
	Cred *spawn.Credential
	// User is set when that is somebody else than the caller: HOME, USER, LOGNAME and
	// SHELL of the environment are then his.
	User *User

	// Owner is the peer identity of the caller (uid:1000), OwnerUID its uid.
	Owner    string
	OwnerUID uint32
	// RequestID, when not empty, makes a start idempotent: a repeat by the same owner is
	// answered with the sandbox of the first time, alive or among the last
	// [maxAnswered] that have ended, also after a restart of policyd (while its record
	// is kept).
	RequestID string
	// Admit, when set, may refuse the start, given how many sandboxes of the owner
	// there are without it. It is called under the lock that counts them, so that two
	// starts at once cannot both take the last place.
	Admit func(alive int) error
}

// User is an entry of the user database.
type User struct{ Name, Home, Shell string }

const (
	defaultUmask = 0o022
	rootPath     = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
	userPath     = "/usr/local/bin:/usr/bin:/bin"
)

func (r *Request) validate() error {
	switch {
	case r.Spec == nil || r.Version == nil || r.Profile == nil:
		return fmt.Errorf("%w: a start needs a spec, a version and a profile", errs.ErrInvalid)
	case len(r.Spec.GetArgv()) == 0 || r.Spec.GetArgv()[0] == "":
		return fmt.Errorf("%w: argv: no program", errs.ErrInvalid)
	}
	for i, a := range r.Spec.GetArgv() {
		if strings.ContainsRune(a, 0) {
			return fmt.Errorf("%w: argv[%d]: holds a NUL", errs.ErrInvalid, i)
		}
	}
	if d := r.Spec.GetDirectory(); d != "" && (!path.IsAbs(d) || strings.ContainsRune(d, 0)) {
		return fmt.Errorf("%w: directory: %.80q is not an absolute path", errs.ErrInvalid, d)
	}
	return nil
}

func (r *Request) directory() string {
	if d := r.Spec.GetDirectory(); d != "" {
		return d
	}
	return "/"
}

// environment is the caller's, with the defaults it lacks, and over all what the
// policy adds. Of a name given twice the last stays.
func (r *Request) environment(tty bool) ([]string, error) {
	env := make([]string, 0, len(r.Spec.GetEnvironment())+8)
	at := make(map[string]int)
	set := func(name, value string) {
		if i, ok := at[name]; ok {
			env[i] = name + "=" + value
			return
		}
		at[name] = len(env)
		env = append(env, name+"="+value)
	}
	fallback := func(name, value string) {
		if _, ok := at[name]; !ok {
			set(name, value)
		}
	}
	for i, kv := range r.Spec.GetEnvironment() {
		name, value, ok := strings.Cut(kv, "=")
		if !ok || name == "" || strings.ContainsRune(kv, 0) {
			return nil, fmt.Errorf("%w: environment[%d]: %.80q is not NAME=value", errs.ErrInvalid, i, kv)
		}
		set(name, value)
	}
	if r.Cred != nil && r.Cred.UID == 0 {
		fallback("PATH", rootPath)
	} else {
		fallback("PATH", userPath)
	}
	if tty {
		fallback("TERM", "xterm")
	}
	if u := r.User; u != nil {
		set("HOME", u.Home)
		set("USER", u.Name)
		set("LOGNAME", u.Name)
		set("SHELL", u.Shell)
	}
	added := r.Process.GetEnvironment()
	for _, name := range slices.Sorted(maps.Keys(added)) {
		if name == "" || strings.ContainsAny(name, "=\x00") || strings.ContainsRune(added[name], 0) {
			return nil, fmt.Errorf("%w: process.environment: %.80q", errs.ErrInvalid, name)
		}
		set(name, added[name])
	}
	return env, nil
}

func (r *Request) umask() (int, error) {
	text := r.Process.GetUmask()
	if text == "" {
		return defaultUmask, nil
	}
	v, err := strconv.ParseUint(text, 8, 32)
	if err != nil || v > 0o777 {
		return 0, fmt.Errorf("%w: process.umask: %.20q is not octal and at most 0777", errs.ErrInvalid, text)
	}
	return int(v), nil
}

func (r *Request) limits() ([]spawn.Limit, error) {
	var out []spawn.Limit
	given := r.Process.GetLimits()
	for _, name := range slices.Sorted(maps.Keys(given)) {
		l, err := spawn.ParseLimit(name, given[name])
		if err != nil {
			return nil, fmt.Errorf("process.limits: %w", err)
		}
		out = append(out, l)
	}
	return out, nil
}

// command is the request as spawn wants it, without streams, group and resolved path.
func (r *Request) command(tty bool) (*spawn.Command, error) {
	if err := r.validate(); err != nil {
		return nil, err
	}
	env, err := r.environment(tty)
	if err != nil {
		return nil, err
	}
	umask, err := r.umask()
	if err != nil {
		return nil, err
	}
	limits, err := r.limits()
	if err != nil {
		return nil, err
	}
	return &spawn.Command{
		Argv: r.Spec.GetArgv(), Env: env, Dir: r.directory(),
		Credential: r.Cred, Umask: &umask, Limits: limits,
		TTY: tty, SmackLabel: r.SmackLabel, SmackRelabel: r.SmackRelabel,
	}, nil
}

// repeats tells whether the sandbox of an earlier request with the same id was asked
// for with the same words.
func (r *Request) repeats(rec *apiv1.Sandbox, detached bool) bool {
	return rec.GetPolicy() == r.Version.GetName() && rec.GetDetached() == detached &&
		rec.GetDirectory() == r.directory() &&
		(rec.GetSmackLabel() == r.SmackLabel || slices.Contains(r.SmackPool, rec.GetSmackLabel())) &&
		slices.Equal(rec.GetArgv(), r.Spec.GetArgv()) &&
		maps.Equal(rec.GetParameters(), r.Spec.GetParameters())
}
