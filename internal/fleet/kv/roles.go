package kv

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"policyd.dev/policyd/internal/errs"
	"policyd.dev/policyd/internal/fleet"
)

// Users of etcd that Init makes, one for each way of working with the fleet. A
// certificate with such a common name is that user.
const (
	UserAdmin     = "policyd-admin" // changes labels and channels, and all the others do
	UserControl   = "policyd-ctl"   // moves pointers, reads nodes, holds
	UserPublisher = "policyd-pub"   // adds bundles
	UserAuditor   = "policyd-audit" // reads all
)

// NodeUser is the etcd user, and the certificate's common name, of a node.
func NodeUser(node string) string { return node }

// permission of one prefix (key ends in /) or one key.
type permission struct {
	key  string
	kind clientv3.PermissionType
}

const (
	read      = clientv3.PermissionType(clientv3.PermRead)
	readWrite = clientv3.PermissionType(clientv3.PermReadWrite)
)

// roleName keeps fleets in one etcd apart.
func (s *Store) roleName(user string) string { return "policyd/" + s.Layout.Fleet + "/" + user }

// InitRoles makes the fleet's users and roles; those that exist are brought up to date.
func (s *Store) InitRoles(ctx context.Context) error {
	l := s.Layout
	for _, u := range []struct {
		name        string
		permissions []permission
	}{
		{UserAdmin, []permission{{l.Prefix(), readWrite}}},
		{UserControl, []permission{{l.Channels(), readWrite}, {l.Halt(""), readWrite}, {l.Halt("") + "/", readWrite}, {l.Control(), readWrite}, {l.Pub(), read}, {l.Nodes(), read}}},
		{UserPublisher, []permission{{l.Blobs(), readWrite}, {l.Channels(), read}, {l.Halt(""), read}, {l.Halt("") + "/", read}, {l.Control(), read}}},
		{UserAuditor, []permission{{l.Prefix(), read}}},
	} {
		if err := s.user(ctx, u.name, u.permissions); err != nil {
			return err
		}
	}
	return nil
}

// EnrollUser makes a node's user and role: it reads what is public and its own
// records, and writes its own status only.
func (s *Store) EnrollUser(ctx context.Context, node string) error {
	if err := fleet.ValidName(node); err != nil {
		return fmt.Errorf("node: %w", err)
	}
	switch node {
	case UserAdmin, UserControl, UserPublisher, UserAuditor, "root":
		return fmt.Errorf("%w: a node cannot be called %s, which is a user of etcd's or of policyd's", errs.ErrInvalid, node)
	}
	l := s.Layout
	return s.user(ctx, NodeUser(node), []permission{{l.Pub(), read}, {l.Node(node), read}, {l.Status(node), readWrite}, {l.Last(node), readWrite}})
}

// LetControl says whether a node's user may do what UserControl may: its policyd has one certificate, as a node and as the
// controller. The user must be there.
func (s *Store) LetControl(ctx context.Context, node string, may bool) error {
	role := s.roleName(UserControl)
	var err error
	if may {
		_, err = s.Client.UserGrantRole(ctx, NodeUser(node), role)
	} else if _, err = s.Client.UserRevokeRole(ctx, NodeUser(node), role); errors.Is(err, rpctypes.ErrRoleNotGranted) {
		err = nil
	}
	if err != nil {
		return fmt.Errorf("user %s: %w", node, Error(err))
	}
	return nil
}

// RemoveUser takes a node's user and role away. Certificates of that name open
// nothing any more; watches that are open etcd ends when it notices. A user that has
// roles beside this fleet's (a node of that name in another fleet of this etcd) stays with them.
func (s *Store) RemoveUser(ctx context.Context, node string) error {
	user, err := s.Client.UserGet(ctx, NodeUser(node))
	if err != nil && !errors.Is(err, rpctypes.ErrUserNotFound) {
		return Error(err)
	}
	if err == nil {
		if err := s.removeUser(ctx, node, user.Roles); err != nil {
			return err
		}
	}
	_, err = s.Client.RoleDelete(ctx, s.roleName(node))
	if err != nil && !errors.Is(err, rpctypes.ErrRoleNotFound) {
		return Error(err)
	}
	return nil
}

func (s *Store) removeUser(ctx context.Context, node string, roles []string) error {
	ours := func(role string) bool { return strings.HasPrefix(role, s.roleName("")) }
	if !slices.ContainsFunc(roles, func(role string) bool { return !ours(role) }) {
		_, err := s.Client.UserDelete(ctx, NodeUser(node))
		return Error(err)
	}
	for _, role := range roles {
		if !ours(role) {
			continue
		}
		if _, err := s.Client.UserRevokeRole(ctx, NodeUser(node), role); err != nil && !errors.Is(err, rpctypes.ErrRoleNotGranted) {
			return Error(err)
		}
	}
	return nil
}

func (s *Store) user(ctx context.Context, user string, permissions []permission) error {
	role := s.roleName(user)
	if _, err := s.Client.RoleAdd(ctx, role); err != nil && !errors.Is(err, rpctypes.ErrRoleAlreadyExist) {
		return fmt.Errorf("role %s: %w", role, Error(err))
	}
	for _, p := range permissions {
		end := ""
		if strings.HasSuffix(p.key, "/") {
			end = clientv3.GetPrefixRangeEnd(p.key)
		}
		if _, err := s.Client.RoleGrantPermission(ctx, role, p.key, end, p.kind); err != nil {
			return fmt.Errorf("role %s: %w", role, Error(err))
		}
	}
	_, err := s.Client.UserAddWithOptions(ctx, user, "", &clientv3.UserAddOptions{NoPassword: true})
	if err != nil && !errors.Is(err, rpctypes.ErrUserAlreadyExist) {
		return fmt.Errorf("user %s: %w", user, Error(err))
	}
	if _, err := s.Client.UserGrantRole(ctx, user, role); err != nil {
		return fmt.Errorf("user %s: %w", user, Error(err))
	}
	return nil
}

// EnableAuth turns etcd's authentication on. Its user root must exist with the
// role root; it is made without a password, for a certificate of that name.
func (s *Store) EnableAuth(ctx context.Context) error {
	if _, err := s.Client.RoleAdd(ctx, "root"); err != nil && !errors.Is(err, rpctypes.ErrRoleAlreadyExist) {
		return Error(err)
	}
	_, err := s.Client.UserAddWithOptions(ctx, "root", "", &clientv3.UserAddOptions{NoPassword: true})
	if err != nil && !errors.Is(err, rpctypes.ErrUserAlreadyExist) {
		return Error(err)
	}
	if _, err := s.Client.UserGrantRole(ctx, "root", "root"); err != nil {
		return Error(err)
	}
	_, err = s.Client.AuthEnable(ctx)
	return Error(err)
}

// AuthEnabled tells whether etcd asks who comes.
func (s *Store) AuthEnabled(ctx context.Context) (bool, error) {
	res, err := s.Client.AuthStatus(ctx)
	if err != nil {
		return false, Error(err)
	}
	return res.Enabled, nil
}

// CheckServer refuses an etcd with GHSA-xg4h-6gfc-h4m8: there a user who may
// read one key could watch all keys behind it, which makes roles worthless. It
// is fixed in 3.6.14 and 3.7.1. Every endpoint is asked; versions are theirs.
func (s *Store) CheckServer(ctx context.Context) (versions []string, err error) {
	for _, e := range s.Client.Endpoints() {
		res, err := s.Client.Status(ctx, e)
		if err != nil {
			return nil, fmt.Errorf("endpoint %s: %w", e, Error(err))
		}
		versions = append(versions, res.Version)
		if !watchFixed(res.Version) {
			return versions, fmt.Errorf("etcd %s at %s lets a user who may read one key watch all behind it (GHSA-xg4h-6gfc-h4m8): update it to 3.6.14, 3.7.1 or later, or give --without-rbac and keep nodes apart by other means", res.Version, e)
		}
	}
	return versions, nil
}

// watchFixed tells whether a version of etcd has the fix; what cannot be read has not.
func watchFixed(version string) bool {
	version, pre, _ := strings.Cut(version, "-")
	parts := strings.Split(version, ".")
	if len(parts) != 3 {
		return false
	}
	var n [3]int
	for i, p := range parts {
		v, err := strconv.Atoi(p)
		if err != nil || v < 0 {
			return false
		}
		n[i] = v
	}
	switch {
	case n[0] != 3:
		return n[0] > 3
	case n[1] == 6:
		return n[2] > 14 || n[2] == 14 && pre == ""
	case n[1] == 7:
		return n[2] > 1 || n[2] == 1 && pre == ""
	}
	return n[1] > 7
}
