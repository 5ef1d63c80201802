package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/nri/pkg/stub"

	"policyd.dev/policyd/enforce/oci"
	"policyd.dev/policyd/internal/containers"
)

// plugin answers the runtime. Its methods are called by many connections at once while one follows another.
type plugin struct {
	settings *settings
	memory   *memory
	log      *slog.Logger

	// registered is called when the runtime has taken it for a plugin, each time.
	registered func()
	// version tells the NRI version of the runtime where it says one; runtime is its name and its own version.
	version atomic.Pointer[func() string]
	runtime atomic.Pointer[[2]string]

	mu sync.Mutex
	// made are the answers about containers that the runtime has not made yet, by id.
	made map[string]made
}

// What it is asked and told.
var _ interface {
	stub.ConfigureInterface
	stub.SynchronizeInterface
	stub.RunPodInterface
	stub.CreateContainerInterface
	stub.ValidateContainerAdjustmentInterface
	stub.PostStartContainerInterface
	stub.RemoveContainerInterface
} = (*plugin)(nil)

// made is what was answered about a container whose program has so many arguments.
type made struct {
	adjustment *api.ContainerAdjustment
	program    int
}

// Configure is called first of all.
func (p *plugin) Configure(_ context.Context, _, runtime, version string) (api.EventMask, error) {
	p.runtime.Store(&[2]string{runtime, version})
	return 0, nil // every event that there is a method for
}

// Synchronize is called once after each registration, with all there is.
func (p *plugin) Synchronize(_ context.Context, pods []*api.PodSandbox, all []*api.Container) ([]*api.ContainerUpdate, error) {
	if err := p.takesArguments(); err != nil {
		p.log.Error("containers that want a profile are refused", "error", err)
	}
	for _, pod := range pods {
		p.expect(pod)
	}
	p.forget(all)
	p.log.Info("registered with the runtime", "socket", p.settings.NRISocket, "pods", len(pods), "containers", len(all))
	p.registered()
	return nil, nil
}

// RunPodSandbox tells of a pod before its containers, so that what it will ask for can be had in time.
func (p *plugin) RunPodSandbox(_ context.Context, pod *api.PodSandbox) error {
	p.expect(pod)
	return nil
}

// expect has the profiles that a pod's annotations name fetched. What is wrong with them is told when a container asks.
func (p *plugin) expect(pod *api.PodSandbox) {
	if p.leaves(pod) {
		return
	}
	names := []string{"-"} // no container's name: those without an annotation of their own
	for key := range pod.GetAnnotations() {
		if i := strings.LastIndex(key, "container."); i > 0 {
			names = append(names, key[i+len("container."):])
		}
	}
	for _, name := range names {
		if d, err := describe(pod, &api.Container{Name: name}); err == nil {
			_, _ = p.memory.find(d) // what is not there is fetched
		}
	}
}

// leaves tells that the pod is none of this plugin's concern.
func (p *plugin) leaves(pod *api.PodSandbox) bool {
	h := p.settings.RuntimeHandlers
	return slices.Contains(p.settings.ExceptNamespaces, pod.GetNamespace()) || len(h) > 0 && !slices.Contains(h, pod.GetRuntimeHandler())
}

// CreateContainer puts the launcher before a container's program, or refuses the container.
func (p *plugin) CreateContainer(_ context.Context, pod *api.PodSandbox, c *api.Container) (*api.ContainerAdjustment, []*api.ContainerUpdate, error) {
	a, err := p.confine(pod, c)
	if err != nil {
		err = fmt.Errorf("policyd-nri on node %s: container %q of pod %s/%s: %w", p.settings.node, c.GetName(), pod.GetNamespace(), pod.GetName(), err)
		p.log.Warn("refused", "error", err)
		return nil, nil, err
	}
	return a, nil, nil
}

func (p *plugin) confine(pod *api.PodSandbox, c *api.Container) (*api.ContainerAdjustment, error) {
	if p.leaves(pod) {
		return nil, nil
	}
	d, err := describe(pod, c)
	if err != nil {
		return nil, err
	}
	if d.Sandbox {
		return nil, nil
	}
	// Until the record is there, nobody clears the file away.
	defer p.memory.hold()()
	answer, err := p.memory.find(d)
	if err != nil || answer == nil {
		return nil, err
	}
	if err := p.takesArguments(); err != nil {
		return nil, fmt.Errorf("%s: %w", answer.about(), err)
	}
	a, err := d.adjust(oci.Edit{Launcher: p.settings.Launcher, Profile: answer.file, Digest: answer.digest, Version: answer.version})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", answer.about(), err)
	}
	if err := p.record(c, d, answer); err != nil {
		return nil, err
	}
	p.mu.Lock()
	if p.made == nil {
		p.made = map[string]made{}
	}
	p.made[c.GetId()] = made{a, len(c.GetArgs())}
	p.mu.Unlock()
	return a, nil
}

// ValidateContainerAdjustment is called after all plugins: one that came after this may have undone what it did.
func (p *plugin) ValidateContainerAdjustment(_ context.Context, req *api.ValidateContainerAdjustmentRequest) error {
	id := req.GetContainer().GetId()
	p.mu.Lock()
	m, ok := p.made[id]
	delete(p.made, id)
	p.mu.Unlock()
	if !ok {
		return nil
	}
	err := stillThere(m.adjustment, m.program, req.GetAdjust())
	if err == nil {
		return nil
	}
	err = fmt.Errorf("policyd-nri on node %s: container %q: %w", p.settings.node, req.GetContainer().GetName(), err)
	p.log.Warn("refused", "error", err)
	return errors.Join(err, containers.Remove(p.settings.Records, p.settings.RuntimeRoot, id))
}

func (p *plugin) record(c *api.Container, d *described, a *answer) error {
	r := &containers.Record{
		ID: c.GetId(), Root: p.settings.RuntimeRoot, Engine: engine,
		Version: a.version, Digest: a.digest, Binding: a.binding, Parameters: oci.Values(d.Parameters), Missing: a.missing,
		Created: time.Now().UTC(),
		Workload: containers.Workload{
			Image: d.Image, Namespace: d.Namespace, Name: d.Container, Pod: d.Pod, Annotations: d.Annotations, Labels: d.labels,
		},
	}
	if p.settings.Select != "bindings" {
		r.Ref = a.ref // nobody else asks by name
	}
	return containers.Write(p.settings.Records, r)
}

// engine marks the records that are this plugin's.
const engine = "nri"

// PostStartContainer completes a record by the container's first process, where the runtime tells it.
func (p *plugin) PostStartContainer(_ context.Context, _ *api.PodSandbox, c *api.Container) error {
	if c.GetPid() == 0 {
		return nil
	}
	r, err := containers.Read(p.settings.Records, p.settings.RuntimeRoot, c.GetId())
	if errors.Is(err, containers.ErrNone) {
		return nil
	}
	if err == nil && r.Engine == engine {
		r.Pid = int(c.GetPid())
		err = containers.Write(p.settings.Records, r)
	}
	if err != nil {
		p.log.Warn("record of a container", "id", c.GetId(), "error", err)
	}
	return nil
}

// RemoveContainer takes the record away.
func (p *plugin) RemoveContainer(_ context.Context, _ *api.PodSandbox, c *api.Container) error {
	p.mu.Lock()
	delete(p.made, c.GetId())
	p.mu.Unlock()
	if err := containers.Remove(p.settings.Records, p.settings.RuntimeRoot, c.GetId()); err != nil {
		p.log.Warn("record of a container", "id", c.GetId(), "error", err)
	}
	return nil
}

// forget takes away this plugin's records of containers that the runtime no longer has: they ended while it was not
// connected.
func (p *plugin) forget(there []*api.Container) {
	ids := map[string]bool{}
	for _, c := range there {
		ids[c.GetId()] = true
	}
	list, bad := containers.List(p.settings.Records)
	for _, c := range list {
		if c.Engine == engine && c.Root == p.settings.RuntimeRoot && !ids[c.ID] {
			if err := containers.Remove(p.settings.Records, c.Root, c.ID); err != nil {
				bad = append(bad, err)
			}
		}
	}
	if err := errors.Join(bad...); err != nil {
		p.log.Warn("records of containers", "error", err)
	}
}
