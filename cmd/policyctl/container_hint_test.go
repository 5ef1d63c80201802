package main

import (
	"strings"
	"testing"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
)

func TestEngineCommand(t *testing.T) {
	id := strings.Repeat("0123456789abcdef", 4)
	docker := &apiv1.Container{Id: id, Root: "/var/run/docker/runtime-policyd/moby", Bundle: "/run/containerd/io.containerd.runtime.v2.task/moby/" + id}
	podman := &apiv1.Container{Id: id, Root: "/run/runc", Bundle: "/var/lib/containers/storage/overlay-containers/" + id + "/userdata"}
	pod := &apiv1.Container{Id: id, Root: "/run/containerd/runc/k8s.io", Namespace: "shop", Pod: "web-0", Name: "nginx"}
	crio := &apiv1.Container{Id: id, Root: "/run/runc", Bundle: podman.Bundle, Namespace: "shop", Pod: "web-0", Name: "nginx"}
	bare := &apiv1.Container{Id: "mine", Root: "/run/runc", Runtime: "/usr/bin/runc", Bundle: "/srv/mine"}
	for _, tc := range []struct {
		k          *apiv1.Container
		verb, want string
	}{
		{docker, "kill", "docker kill 0123456789ab"},
		{docker, "wait", "docker wait 0123456789ab"},
		{podman, "logs", "podman logs 0123456789ab"},
		{pod, "logs", "kubectl logs -n shop web-0 -c nginx"},
		{pod, "wait", "kubectl get pod --watch -n shop web-0"},
		{pod, "kill", "crictl stop 0123456789ab"},
		{crio, "kill", "crictl stop 0123456789ab"},
		{bare, "kill", "runc --root /run/runc kill mine"},
		{bare, "logs", "what called runc has its output and its exit status"},
		{&apiv1.Container{Id: "mine", Runtime: "/usr/bin/crun"}, "kill", "crun kill mine"},
	} {
		if got := engineCommand(tc.verb, tc.k); got != tc.want {
			t.Errorf("%s of %v: %q, want %q", tc.verb, tc.k, got, tc.want)
		}
	}
}
