package sandbox

import (
	"fmt"
	"strconv"

	"google.golang.org/protobuf/types/known/timestamppb"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
)

// Types of events, see Event in the API.
const (
	eventStart = "start"
	eventExit  = "exit"
)

func startEvent(rec *apiv1.Sandbox) *apiv1.Event {
	return &apiv1.Event{
		Time: rec.GetCreated(), Type: eventStart, Actor: rec.GetOwner(), RequestId: rec.GetRequestId(),
		Subject: "sandbox/" + rec.GetId(),
		Message: fmt.Sprintf("%s@%d: %q", rec.GetPolicy(), rec.GetVersion(), rec.GetArgv()[0]),
		Attributes: map[string]string{
			"policy":         rec.GetPolicy(),
			"version":        strconv.FormatUint(rec.GetVersion(), 10),
			"version_digest": rec.GetVersionDigest(),
			"profile_digest": rec.GetProfileDigest(),
			"uid":            strconv.FormatUint(uint64(rec.GetUid()), 10),
			"pid":            strconv.Itoa(int(rec.GetPid())),
		},
	}
}

func exitEvent(rec *apiv1.Sandbox) *apiv1.Event {
	ev := &apiv1.Event{
		Time: rec.GetEnded(), Type: eventExit, Actor: "policyd", Subject: "sandbox/" + rec.GetId(),
		Attributes: map[string]string{},
	}
	if ev.Time == nil {
		ev.Time = timestamppb.Now()
	}
	switch x := rec.GetExit(); {
	case x.GetUnknown():
		ev.Message = "ended while no policyd saw it"
		ev.Attributes["unknown"] = "true"
	case x.GetSignal() != 0:
		ev.Message = fmt.Sprintf("ended by signal %d", x.GetSignal())
		ev.Attributes["signal"] = strconv.Itoa(int(x.GetSignal()))
	default:
		ev.Message = fmt.Sprintf("exit code %d", x.GetCode())
		ev.Attributes["code"] = strconv.Itoa(int(x.GetCode()))
	}
	return ev
}
