package server

import (
	"context"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/internal/config"
	"policyd.dev/policyd/internal/containers"
	"policyd.dev/policyd/store"
)

// pruneEvery is the pause between two removals of records of containers that are gone.
const pruneEvery = 10 * time.Minute

// pruneRecords removes records of containers that are gone, now and time and again until the server stops.
func (s *Server) pruneRecords(every time.Duration) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		if err := containers.Prune(s.records); err != nil {
			s.log.Warn("records of containers that are gone could not be removed", "error", err)
		}
		select {
		case <-s.stopping.Done():
			return
		case <-tick.C:
		}
	}
}

// ListContainers lists the containers under policies that the caller may see, and what each would get if it were
// started now.
func (s *Server) ListContainers(ctx context.Context, req *apiv1.ListContainersRequest) (*apiv1.ListContainersResponse, error) {
	c := callerFrom(ctx)
	resp := &apiv1.ListContainersResponse{}
	if s.records == "" {
		return resp, nil
	}
	all, bad := containers.List(s.records)
	for _, one := range all {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		out := s.container(c, one)
		if c.require(config.RoleViewer, store.KindLandlockPolicy, out.GetPolicy()) != nil || !strings.HasPrefix(out.GetId(), req.GetId()) ||
			req.GetPolicy() != "" && out.GetPolicy() != req.GetPolicy() || req.GetOutdated() && !out.GetOutdated() {
			continue
		}
		resp.Containers = append(resp.Containers, out)
	}
	if c.most(true) >= config.RoleOperator {
		for _, err := range bad {
			resp.Unreadable = append(resp.Unreadable, err.Error())
		}
	}
	return resp, nil
}

var containerStates = map[containers.Life]apiv1.ContainerState{
	containers.Created: apiv1.ContainerState_CONTAINER_STATE_CREATED,
	containers.Running: apiv1.ContainerState_CONTAINER_STATE_RUNNING,
	containers.Stopped: apiv1.ContainerState_CONTAINER_STATE_STOPPED,
	containers.Unknown: apiv1.ContainerState_CONTAINER_STATE_UNKNOWN,
}

func (s *Server) container(c *Caller, one *containers.Container) *apiv1.Container {
	policy, number, _ := strings.Cut(one.Version, "@")
	version, _ := strconv.ParseUint(number, 10, 64) // a record that was read has digits there
	out := &apiv1.Container{
		Id: one.ID, State: containerStates[one.State], Policy: policy, Version: version, ProfileDigest: one.Digest,
		Ref: one.Ref, Binding: one.Binding, Parameters: one.Parameters, SmackLabel: one.SmackLabel,
		Root: one.Root, Bundle: one.Bundle, Runtime: one.Runtime, Engine: one.Engine, Pid: int32(one.Init), StartTicks: one.Ticks,
		Created: timestamppb.New(one.Created), Image: one.Workload.Image, Namespace: one.Workload.Namespace, Pod: one.Workload.Pod,
		Name: one.Workload.Name, Missing: one.Missing, LastKnown: one.LastKnown,
	}
	now := s.wouldGet(c, one.Record)
	if now.GetError() != "" || now.GetPolicy() != policy || now.GetVersion() != version {
		out.Outdated, out.Now = true, now
	}
	return out
}

// wouldGet says under what a container would run if it were started now.
func (s *Server) wouldGet(c *Caller, r *containers.Record) *apiv1.ContainerNow {
	b := &bound{ref: r.Ref}
	told := func(err error) string { return err.Error() }
	if r.Ref == "" {
		w := r.Workload
		var err error
		b, err = s.bind(&apiv1.Workload{Image: w.Image, Namespace: w.Namespace, Container: w.Name, Annotations: w.Annotations, Labels: w.Labels})
		if err != nil {
			return &apiv1.ContainerNow{Error: err.Error()}
		}
		told = func(err error) string { return b.about(err).Error() }
	}
	name, err := refName(store.KindLandlockPolicy, b.ref)
	if err != nil {
		return &apiv1.ContainerNow{Error: told(err)}
	}
	if err := c.require(config.RoleViewer, store.KindLandlockPolicy, name); err != nil {
		return &apiv1.ContainerNow{Error: "it would run under a policy that you may not see"}
	}
	v, err := s.resolve(b.ref)
	if err != nil {
		return &apiv1.ContainerNow{Error: told(err)}
	}
	return &apiv1.ContainerNow{Policy: v.GetInfo().GetName(), Version: v.GetInfo().GetNumber(), Binding: b.name()}
}
