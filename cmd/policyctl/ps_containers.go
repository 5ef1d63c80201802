package main

import (
	"fmt"
	"path"
	"strings"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
)

// containerCells is the row of a container. Who its users are is not known, nor what it executes: its image stands for
// the program.
func containerCells(k *apiv1.Container, wide bool) []string {
	id := k.GetId()
	if !wide {
		id = shortID(id)
	}
	cells := []string{"container", id, containerPolicy(k), containerState(k), number(k.GetPid()), "", age(k.GetCreated())}
	what := containerName(k)
	if k.GetImage() != "" {
		what = strings.TrimSpace(what + " " + k.GetImage())
	}
	text := strings.Join(containerNotes(k, wide), ", ")
	if !wide {
		return append(cells, text, clip(what, 60))
	}
	owner := k.GetEngine()
	if k.GetRuntime() != "" {
		owner = strings.TrimPrefix(owner+" "+path.Base(k.GetRuntime()), " ")
	}
	return append(cells, owner, k.GetBundle(), "", what, text)
}

// shortID is the beginning of an id that an engine has drawn (64 hex digits), as long as engines themselves show it.
func shortID(id string) string {
	if len(id) == 64 && strings.Trim(id, "0123456789abcdef") == "" {
		return id[:12]
	}
	return id
}

func containerPolicy(k *apiv1.Container) string {
	return fmt.Sprintf("%s@%d", k.GetPolicy(), k.GetVersion())
}

// containerName is namespace/pod/container, as far as it is known.
func containerName(k *apiv1.Container) string {
	var parts []string
	for _, p := range []string{k.GetNamespace(), k.GetPod(), k.GetName()} {
		if p != "" {
			parts = append(parts, p)
		}
	}
	return strings.Join(parts, "/")
}

func containerState(k *apiv1.Container) string {
	switch k.GetState() {
	case apiv1.ContainerState_CONTAINER_STATE_CREATED:
		return "created"
	case apiv1.ContainerState_CONTAINER_STATE_RUNNING:
		return "running"
	case apiv1.ContainerState_CONTAINER_STATE_STOPPED:
		return "ended"
	}
	return "?"
}

// containerNotes says what a person should know of a container, and with wide how it came to its policy.
func containerNotes(k *apiv1.Container, wide bool) []string {
	var out []string
	if now := k.GetNow(); k.GetOutdated() {
		switch {
		case now.GetError() != "" && wide:
			out = append(out, "outdated: it would not be started now: "+now.GetError())
		case now.GetError() != "":
			out = append(out, "outdated: it would not be started now")
		default:
			out = append(out, fmt.Sprintf("outdated: now %s@%d", now.GetPolicy(), now.GetVersion()))
		}
	}
	if n := len(k.GetMissing()); n > 0 {
		if wide {
			out = append(out, "not enforced: "+strings.Join(k.GetMissing(), "; "))
		} else {
			out = append(out, fmt.Sprintf("%d not enforced", n))
		}
	}
	if k.GetLastKnown() {
		out = append(out, "last known profile")
	}
	if l := k.GetSmackLabel(); l != "" {
		out = append(out, "label "+l)
	}
	if !wide {
		return out
	}
	switch {
	case k.GetRef() != "":
		out = append(out, "asked for "+k.GetRef())
	case k.GetBinding() != "":
		out = append(out, "by binding "+k.GetBinding())
	default:
		out = append(out, "by bindings.unmatched")
	}
	if set := labelText(k.GetParameters()); set != "" {
		out = append(out, "with "+set)
	}
	return out
}
