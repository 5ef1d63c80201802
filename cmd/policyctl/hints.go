package main

import (
	"context"
	"fmt"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/internal/cli"
	"policyd.dev/policyd/internal/policy"
)

// landlockRef is a reference to a policy that programs run under, without the word of its kind.
func landlockRef(ref string) (string, error) {
	switch kind, name := splitKind(ref); kind {
	case policy.KindPolicy:
		return name, nil
	case policy.KindFragment:
		return "", cli.Usage(fmt.Errorf("%s is a fragment: want a policy, one that includes it", ref))
	case policy.KindSmack:
		return "", cli.Usage(fmt.Errorf("%s is a Smack policy: want a LandlockPolicy (see `policyctl smack --help`)", ref))
	default:
		return "", cli.Usage(fmt.Errorf("%s is of kind %s: want a policy", ref, kind))
	}
}

// otherKind says of a policy that is not found which other kind has its name.
func otherKind(ctx context.Context, c *cli.Client, ref string, err error) error {
	if status.Code(err) != codes.NotFound || hasKind(ref) {
		return err
	}
	name, _, _ := strings.Cut(ref, "@")
	for _, k := range storedKinds[1:] {
		res, oerr := c.Policies.ListVersions(ctx, &apiv1.ListVersionsRequest{Kind: k.kind, Name: name})
		if oerr == nil && len(res.GetVersions()) > 0 {
			return fmt.Errorf("%w (did you mean %s/%s?)", err, k.word, ref)
		}
	}
	return err
}
