package main

import (
	"fmt"
	"strings"

	"policyd.dev/policyd/internal/errs"
	"policyd.dev/policyd/internal/paths"
	"policyd.dev/policyd/internal/units"
)

// attachedTo are the services on this host, and of the calling user, that start under a policy of the policyd that is asked,
// each as detach takes it. policyd itself knows of none.
func (a *app) attachedTo(policy string) ([]string, error) {
	asked := a.target()
	if asked == "" {
		asked = paths.Target()
	}
	var found []string
	for _, user := range []bool{false, true} {
		p, err := units.PlaceOf(user)
		if err != nil {
			continue // no session of a user, so no systemd of theirs
		}
		all, err := p.All()
		if err != nil {
			return nil, err
		}
		usual, option := paths.System().Socket(), ""
		if user {
			usual, option = paths.User().Socket(), "--user "
		}
		for _, d := range all {
			at := d.Socket
			if at == "" {
				at = usual
			}
			if name, _, _ := strings.Cut(d.Policy, "@"); name == policy && bareSocket(at) == bareSocket(asked) {
				found = append(found, option+d.Unit)
			}
		}
	}
	return found, nil
}

// bareSocket is the path in an address.
func bareSocket(address string) string {
	return strings.TrimPrefix(strings.TrimPrefix(address, "unix:"), "//")
}

// notAttached refuses to delete a policy that services start under.
func (a *app) notAttached(policy string) error {
	found, err := a.attachedTo(policy)
	if err != nil {
		return fmt.Errorf("whether services are attached to %s: %w (--force does not ask)", policy, err)
	}
	if len(found) == 0 {
		return nil
	}
	return fmt.Errorf("policy/%s: %w: services are attached to it: %s (policyctl detach UNIT; or --force: each start of theirs then goes on under the profile of the last one)",
		policy, errs.ErrReferenced, strings.Join(found, ", "))
}
