package main

import (
	"context"
	"fmt"
	"path"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/internal/cli"
)

// notOfContainers says of a sandbox that is not found that its id is a container's, and with what its engine does the
// same: policyd knows of containers, but others start and end them.
func notOfContainers(ctx context.Context, c *cli.Client, verb, id string, err error) error {
	bare := strings.TrimPrefix(id, "container/")
	// Ids of containers have characters that those of sandboxes have not.
	if code := status.Code(err); code != codes.NotFound && code != codes.InvalidArgument || bare == "" {
		return err
	}
	res, lerr := c.Containers.ListContainers(ctx, &apiv1.ListContainersRequest{Id: bare})
	if lerr != nil || len(res.GetContainers()) == 0 {
		return err
	}
	k := res.GetContainers()[0]
	return fmt.Errorf("%w (%s is a container, which its engine starts and ends: %s)", err, shortID(k.GetId()), engineCommand(verb, k))
}

// engineCommand is the command that does to a container what policyctl kill, logs and wait do to a sandbox. The engine is
// told by the folders that it gives its runtime.
func engineCommand(verb string, k *apiv1.Container) string {
	places := k.GetRoot() + ":" + k.GetBundle()
	pod := fmt.Sprintf("-n %s %s", k.GetNamespace(), k.GetPod())
	switch {
	case k.GetPod() != "" && verb == "logs":
		return fmt.Sprintf("kubectl logs %s -c %s", pod, k.GetName())
	case k.GetPod() != "" && verb == "kill":
		return "crictl stop " + shortID(k.GetId())
	case k.GetPod() != "":
		return "kubectl get pod --watch " + pod
	case strings.Contains(places, "/docker/"), strings.Contains(places, "/moby"):
		return "docker " + verb + " " + shortID(k.GetId())
	case strings.Contains(places, "/overlay-containers/"):
		return "podman " + verb + " " + shortID(k.GetId())
	case verb != "kill":
		return "what called " + path.Base(k.GetRuntime()) + " has its output and its exit status"
	}
	root := ""
	if k.GetRoot() != "" {
		root = "--root " + k.GetRoot() + " "
	}
	return path.Base(k.GetRuntime()) + " " + root + "kill " + k.GetId()
}
