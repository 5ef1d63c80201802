package server

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/user"
	"slices"
	"strconv"
	"strings"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/enforce/spawn"
	"policyd.dev/policyd/internal/config"
	"policyd.dev/policyd/internal/errs"
	"policyd.dev/policyd/internal/sandbox"
)

// account is as whom a program shall run.
type account struct {
	// cred is nil when that is as policyd itself runs.
	cred *spawn.Credential
	// user is set when it is somebody else than the caller.
	user *sandbox.User
}

// account decides as whom the caller may start the sandbox. Without operator's role on the policy that is
// himself: his uid, and of his groups any as the first one. self is the uid policyd runs as; without
// root it can start programs as that alone.
func (c *Caller) account(spec *apiv1.SandboxSpec, policyName string, self int) (account, error) {
	id := c.Identity
	operator := c.roleFor(policyName) >= config.RoleOperator
	want, err := lookupUser(spec.GetUser(), c)
	if err != nil {
		return account{}, err
	}
	other := !id.Local || want.uid != id.UID
	if other && !operator {
		return account{}, fmt.Errorf("%w: %s may start sandboxes as himself only, not as user %q", errs.ErrNotAllowed, c, spec.GetUser())
	}
	cred := &spawn.Credential{UID: want.uid, GID: want.gid, Groups: want.groups}
	if !other {
		// What the calling process has, which may be less than what the user database says.
		cred.GID, cred.Groups = id.GID, id.Groups
	}
	if name := spec.GetGroup(); name != "" {
		gid, err := lookupGroup(name)
		if err != nil {
			return account{}, err
		}
		own := gid == cred.GID || slices.Contains(cred.Groups, gid)
		if !own && !operator {
			return account{}, fmt.Errorf("%w: %s is not in group %q", errs.ErrNotAllowed, c, name)
		}
		if gid != cred.GID && !slices.Contains(cred.Groups, cred.GID) {
			// The group that made way stays a supplementary one: dropping it could open
			// files whose modes give a group less than everybody else.
			cred.Groups = append(slices.Clone(cred.Groups), cred.GID)
		}
		cred.GID = gid
	}
	a := account{cred: cred}
	if other {
		a.user = &sandbox.User{Name: want.name, Home: want.home, Shell: want.shell}
	}
	if self != 0 {
		if int(want.uid) != self {
			return account{}, fmt.Errorf("%w: policyd runs as uid %d and cannot start sandboxes as uid %d", errs.ErrNotAllowed, self, want.uid)
		}
		if cred.GID != uint32(os.Getegid()) {
			return account{}, fmt.Errorf("%w: policyd runs as gid %d and cannot start sandboxes as gid %d", errs.ErrNotAllowed, os.Getegid(), cred.GID)
		}
		a.cred = nil
	}
	return a, nil
}

// entry is what the user database says of a user.
type entry struct {
	uid, gid          uint32
	groups            []uint32
	name, home, shell string
}

// lookupUser finds a user by name or uid; an empty name is the caller, who need not be in the database.
func lookupUser(name string, c *Caller) (entry, error) {
	id := c.Identity
	switch {
	case name == "" && id.Local:
		return entry{uid: id.UID, gid: id.GID}, nil
	case name == "":
		return entry{}, invalidField("spec.user", "a client of the network has no uid: name the user to start as")
	}
	var u *user.User
	uid, err := strconv.ParseUint(name, 10, 32)
	if err == nil {
		if uid == noID {
			return entry{}, invalidField("spec.user", "uid %s is not one", name)
		}
		if id.Local && uint32(uid) == id.UID {
			return entry{uid: id.UID, gid: id.GID}, nil
		}
		u, err = user.LookupId(name)
	} else {
		u, err = user.Lookup(name)
	}
	var unknownName user.UnknownUserError
	var unknownID user.UnknownUserIdError
	switch {
	case errors.As(err, &unknownName), errors.As(err, &unknownID):
		return entry{}, invalidField("spec.user", "user %.80q does not exist", name)
	case err != nil:
		return entry{}, fmt.Errorf("user %.80q: %w", name, err)
	}
	e := entry{name: u.Username, home: u.HomeDir, shell: loginShell(u.Username)}
	gids, err := u.GroupIds()
	if err != nil {
		return entry{}, fmt.Errorf("groups of user %.80q: %w", name, err)
	}
	for _, text := range append([]string{u.Uid, u.Gid}, gids...) {
		n, err := strconv.ParseUint(text, 10, 32)
		if err != nil {
			return entry{}, fmt.Errorf("user %.80q has the id %q: %w", name, text, err)
		}
		e.groups = append(e.groups, uint32(n))
	}
	e.uid, e.gid, e.groups = e.groups[0], e.groups[1], e.groups[2:]
	return e, nil
}

// noID is (uid_t)-1, which system calls take for "leave as it is".
const noID = 1<<32 - 1

func lookupGroup(name string) (uint32, error) {
	if n, err := strconv.ParseUint(name, 10, 32); err == nil && n != noID {
		return uint32(n), nil
	}
	g, err := user.LookupGroup(name)
	if err != nil {
		return 0, invalidField("spec.group", "group %.80q does not exist", name)
	}
	n, err := strconv.ParseUint(g.Gid, 10, 32)
	if err != nil {
		return 0, fmt.Errorf("group %.80q has the id %q: %w", name, g.Gid, err)
	}
	return uint32(n), nil
}

// loginShell is the last field of passwd(5), which os/user leaves out; /bin/sh where it cannot be told.
func loginShell(name string) string {
	const fallback = "/bin/sh"
	f, err := os.Open("/etc/passwd")
	if err != nil {
		return fallback
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		fields := strings.Split(lines.Text(), ":")
		if len(fields) == 7 && fields[0] == name && fields[6] != "" {
			return fields[6]
		}
	}
	return fallback
}
