package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/containerd/nri/pkg/api"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/enforce/oci"
)

// keys are annotations by which a runtime itself tells policyd-runc what NRI has fields for; enforce/oci reads them.
type keys struct{ container, pod, namespace, image string }

var (
	containerd = keys{"io.kubernetes.cri.container-name", "io.kubernetes.cri.sandbox-name", "io.kubernetes.cri.sandbox-namespace", "io.kubernetes.cri.image-name"}
	crio       = keys{"io.kubernetes.container.name", "io.kubernetes.pod.name", "io.kubernetes.pod.namespace", "io.kubernetes.cri-o.ImageName"}
)

// keysOf are those of the runtime that made a container. CRI-O's containers have the pod's annotations among their own,
// so with keys of both enforce/oci refuses.
func keysOf(c *api.Container) keys {
	for key := range c.GetAnnotations() {
		if key == crio.image || key == "io.kubernetes.cri-o.ContainerType" {
			return crio
		}
	}
	return containerd
}

// config is the part of a config.json that matters here.
type config struct {
	Process     process           `json:"process"`
	Mounts      []mount           `json:"mounts"`
	Annotations map[string]string `json:"annotations"`
}

type process struct {
	Args []string `json:"args"`
}

type mount struct {
	Destination string   `json:"destination"`
	Type        string   `json:"type"`
	Source      string   `json:"source"`
	Options     []string `json:"options"`
}

// described is a container as NRI tells it, read as policyd-runc reads its config.json.
type described struct {
	*oci.Config
	before config
	labels map[string]string
}

// describe makes the config.json that policyd-runc would see of a container, as far as it would look at it. A pod's
// annotations are all told by NRI, also those that the runtime would not pass on to policyd-runc.
func describe(pod *api.PodSandbox, c *api.Container) (*described, error) {
	d := &described{before: config{Process: process{c.GetArgs()}, Annotations: annotationsOf(pod, c)}, labels: pod.GetLabels()}
	for _, m := range c.GetMounts() {
		d.before.Mounts = append(d.before.Mounts, mount{m.GetDestination(), m.GetType(), m.GetSource(), m.GetOptions()})
	}
	text, err := json.Marshal(d.before)
	if err != nil {
		return nil, err
	}
	if d.Config, err = oci.ReadConfig(text); err != nil {
		return nil, err
	}
	if len(d.Text()) != len(text) {
		return nil, fmt.Errorf("annotation %q is there: policyd has edited this container before, or somebody says so", oci.AnnotationApplied)
	}
	return d, nil
}

// runtimes are the beginnings of the keys that runtimes set. A pod's annotations may be anybody's, and CRI-O marks the
// pod there as what holds its namespaces: those of the container count.
var runtimes = []string{"io.kubernetes.cri", "io.kubernetes.container.", "io.kubernetes.pod."}

// annotationsOf are those of the pod, and over them those of the container.
func annotationsOf(pod *api.PodSandbox, c *api.Container) map[string]string {
	a := map[string]string{}
	for key, value := range pod.GetAnnotations() {
		if !slices.ContainsFunc(runtimes, func(r string) bool { return strings.HasPrefix(key, r) }) {
			a[key] = value
		}
	}
	maps.Copy(a, c.GetAnnotations())
	k := keysOf(c)
	for key, value := range map[string]string{k.container: c.GetName(), k.pod: pod.GetName(), k.namespace: pod.GetNamespace(), k.image: c.GetImage().GetName()} {
		if value != "" {
			a[key] = value // the runtime's own word; an annotation could be anybody's
		}
	}
	return a
}

// workload is what Bindings select on.
func (d *described) workload() *apiv1.Workload {
	return &apiv1.Workload{Image: d.Image, Namespace: d.Namespace, Annotations: d.Annotations, Labels: d.labels, Container: d.Container}
}

// adjust is the edit of a config.json, as what NRI adds to a container.
func (d *described) adjust(e oci.Edit) (*api.ContainerAdjustment, error) {
	text, err := d.Edited(e)
	if err != nil {
		return nil, err
	}
	var after config
	if err := json.Unmarshal(text, &after); err != nil {
		return nil, err
	}
	a := &api.ContainerAdjustment{}
	// The program's own stay as they are: JSON has no bytes that are no UTF-8. Unlike SetArgs it does not fail when a
	// plugin has changed the arguments before; they are part of these.
	own := d.before.Process.Args
	a.UpdateArgs(slices.Concat(after.Process.Args[:len(after.Process.Args)-len(own)], own))
	for _, m := range after.Mounts[len(d.before.Mounts):] {
		a.AddMount(&api.Mount{Destination: m.Destination, Type: m.Type, Source: m.Source, Options: m.Options})
	}
	for key, value := range after.Annotations {
		if before, ok := d.before.Annotations[key]; !ok || before != value {
			a.AddAnnotation(key, value)
		}
	}
	return a, nil
}

// stillThere holds what the runtime is about to make of a container against what this plugin asked for: one that came
// later may have put other arguments or mounts in place. ours is of a container with so many arguments.
func stillThere(ours *api.ContainerAdjustment, program int, got *api.ContainerAdjustment) error {
	asked := ours.GetArgs()[1:] // behind UpdateArgs' mark
	prefix := asked[:len(asked)-program]
	if args := got.GetArgs(); len(args) <= len(prefix) || !slices.Equal(args[:len(prefix)], prefix) {
		return fmt.Errorf("another plugin has put other arguments in the place of the launcher's: %.200q", got.GetArgs())
	}
	for key, value := range ours.GetAnnotations() {
		if got.GetAnnotations()[key] != value {
			return fmt.Errorf("another plugin has changed annotation %q", key)
		}
	}
	at := map[string]*api.Mount{}
	for _, m := range ours.GetMounts() {
		at[m.GetDestination()] = m
	}
	for _, m := range got.GetMounts() {
		dest := path.Clean("/" + m.GetDestination())
		switch want := at[dest]; {
		case want != nil && want.GetSource() == m.GetSource() && want.GetType() == m.GetType() && slices.Equal(want.GetOptions(), m.GetOptions()):
			delete(at, dest)
		case dest == "/dev", dest == path.Dir(oci.LauncherPath), strings.HasPrefix(dest, path.Dir(oci.LauncherPath)+"/"):
			return fmt.Errorf("another plugin has put a mount on %s", dest)
		}
	}
	for dest := range at {
		return fmt.Errorf("another plugin has removed the mount on %s", dest)
	}
	return nil
}
