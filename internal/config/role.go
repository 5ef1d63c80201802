package config

import "fmt"

// Role is what a caller may do; each includes those before it. Which RPC needs which
// stands in internal/server's table.
type Role int

const (
	// RoleNone may nothing but ask for health.
	RoleNone Role = iota
	// RoleViewer reads policies and profiles.
	RoleViewer
	// RoleUser starts sandboxes as himself and tends those.
	RoleUser
	// RoleOperator starts sandboxes as anybody, tends everybody's, rolls back and tags.
	RoleOperator
	// RoleAdmin changes policies and tends the store.
	RoleAdmin
)

var roleNames = [...]string{"none", "viewer", "user", "operator", "admin"}

func (r Role) String() string { return roleNames[r] }

// ParseRole is the inverse of String; "none" is not a role one can give.
func ParseRole(s string) (Role, error) {
	for r := RoleViewer; r <= RoleAdmin; r++ {
		if roleNames[r] == s {
			return r, nil
		}
	}
	return RoleNone, fmt.Errorf("role %q is not one of viewer, user, operator, admin", s)
}
