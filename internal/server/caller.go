package server

import (
	"context"
	"fmt"
	"log/slog"
	"path"
	"slices"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/internal/config"
	"policyd.dev/policyd/internal/errs"
	"policyd.dev/policyd/internal/peer"
	"policyd.dev/policyd/internal/policy"
	"policyd.dev/policyd/store"
)

// Caller is a peer with the grants that hold for it.
type Caller struct {
	Identity *peer.Identity
	grants   []config.Grant
	doing    string // what this call is for, in words of the table of roles
}

// authority gives callers their roles. It never changes; a reload makes a new one.
type authority struct {
	// self is the user policyd runs as, who is admin whatever the file says.
	self   uint32
	grants []config.Grant
}

func newAuthority(self int, grants []config.Grant) *authority {
	if grants == nil {
		grants = config.DefaultGrants(self)
	}
	return &authority{self: uint32(self), grants: grants}
}

// caller gives a peer its grants. What runs in a sandbox may look and do nothing else, whoever its user is: it could
// start a program under a wider policy than its own, or write itself one.
func (a *authority) caller(id *peer.Identity) *Caller {
	c := a.unconfined(id)
	if id.Confined != "" {
		for i := range c.grants {
			c.grants[i].Role = min(c.grants[i].Role, config.RoleViewer)
		}
	}
	return c
}

func (a *authority) unconfined(id *peer.Identity) *Caller {
	c := &Caller{Identity: id}
	if id.Local && id.UID == a.self {
		c.grants = []config.Grant{{Role: config.RoleAdmin}}
		return c
	}
	for i := range a.grants {
		if matches(&a.grants[i], id) {
			c.grants = append(c.grants, a.grants[i])
		}
	}
	return c
}

func matches(g *config.Grant, id *peer.Identity) bool {
	if !id.Local {
		return slices.Contains(g.Certificates, id.Certificate)
	}
	return g.Everyone ||
		slices.Contains(g.Users, id.UID) ||
		slices.ContainsFunc(g.Groups, id.InGroup) ||
		id.SmackLabel != "" && slices.Contains(g.SmackLabels, id.SmackLabel)
}

// String is the identity, as authors and owners are recorded.
func (c *Caller) String() string { return c.Identity.String() }

// most is the caller's greatest role; with global, among grants for everything.
func (c *Caller) most(global bool) config.Role {
	role := config.RoleNone
	for i := range c.grants {
		if g := &c.grants[i]; g.Role > role && (!global || len(g.Policies) == 0) {
			role = g.Role
		}
	}
	return role
}

// roleFor is the caller's role for the policy or fragment of that name.
func (c *Caller) roleFor(name string) config.Role {
	role := config.RoleNone
	for i := range c.grants {
		g := &c.grants[i]
		if g.Role > role && (len(g.Policies) == 0 || slices.ContainsFunc(g.Policies, func(pattern string) bool {
			ok, err := path.Match(pattern, name)
			return ok && err == nil
		})) {
			role = g.Role
		}
	}
	return role
}

// require is an error unless the caller has the role for the document of that name. A Binding may give any workload
// another policy, whatever its own name is: who changes one needs the role for all policies.
func (c *Caller) require(role config.Role, kind, name string) error {
	if kind == store.KindBinding && role > config.RoleViewer {
		if c.most(true) >= role {
			return nil
		}
		return fmt.Errorf("%w: to %s needs the role %s for all policies, since %s %q may be about any workload, and %s has not",
			errs.ErrNotAllowed, c.doing, role, kind, name, c)
	}
	if c.roleFor(name) >= role {
		return nil
	}
	if role == config.RoleViewer && kind == store.KindFragment && policy.IsReserved(name) && c.most(false) >= role {
		return nil // the shipped fragments are no secret
	}
	return fmt.Errorf("%w: to %s needs the role %s for %s %q, and %s has not", errs.ErrNotAllowed, c.doing, role, kind, name, c)
}

// requireSandbox is an error unless the sandbox is the caller's own or he is operator of its policy.
func (c *Caller) requireSandbox(sb *apiv1.Sandbox) error {
	if c.owns(sb) || c.roleFor(sb.GetPolicy()) >= config.RoleOperator {
		return nil
	}
	// Not whose it is, nor under what: he may have guessed the beginning of an id.
	return fmt.Errorf("%w: to %s of others needs the role %s for their policy, and %s has not", errs.ErrNotAllowed, c.doing, config.RoleOperator, c)
}

func (c *Caller) owns(sb *apiv1.Sandbox) bool { return sb.GetOwner() == c.String() }

// roles lists the caller's grants in words for Status: "user", "admin of web-*".
func (c *Caller) roles() []string {
	var out []string
	for i := range c.grants {
		text := c.grants[i].Role.String()
		for j, p := range c.grants[i].Policies {
			text += [...]string{" of ", ", "}[min(j, 1)] + p
		}
		if !slices.Contains(out, text) {
			out = append(out, text)
		}
	}
	return out
}

// call is what the interceptors know of an RPC under way.
type call struct {
	caller *Caller
	id     string
	method string
	noted  []slog.Attr // for its line in the log
}

type callKey struct{}

// callFrom returns the call of an RPC's context; every handler runs below the interceptors that put it there.
func callFrom(ctx context.Context) *call { return ctx.Value(callKey{}).(*call) }

func callerFrom(ctx context.Context) *Caller { return callFrom(ctx).caller }
