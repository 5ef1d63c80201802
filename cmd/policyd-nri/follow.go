package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/status"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/internal/binding"
	"policyd.dev/policyd/internal/cli"
)

// Kinds of documents, as policyd's log of events names them.
const (
	kindPolicy  = "LandlockPolicy"
	kindBinding = "Binding"
)

const (
	together = 20 * time.Millisecond  // changes within it are looked after at once
	again    = 30 * time.Second       // what has no event is asked after this often
	tryFirst = 100 * time.Millisecond // between attempts to reach policyd, at first
	tryMost  = 2 * time.Second
)

// follower keeps a memory as policyd has it: all is asked at every connection, and what an event is about when it comes.
type follower struct {
	settings *settings
	memory   *memory
	log      *slog.Logger
	client   *cli.Client

	// refs are the references to each policy that are held without being asked for: its name, and its tags.
	refs     map[string][]question
	bindings map[string]bound
	index    *binding.Index // of these, once it is in force
}

// bound is a Binding with the digest of its text: after a restored backup its number may be another's.
type bound struct {
	*binding.Binding
	digest string
}

func newFollower(s *settings, m *memory, log *slog.Logger) (*follower, error) {
	c, err := cli.Dial(s.Socket)
	if err != nil {
		return nil, fmt.Errorf("configuration: %s: socket: %w", s.file, err)
	}
	return &follower{settings: s, memory: m, log: log, client: c}, nil
}

// run follows until ctx ends. What is in memory stays there while policyd is away: nobody else changes policies.
func (f *follower) run(ctx context.Context) {
	defer f.client.Close()
	for pause := tryFirst; ctx.Err() == nil; pause = min(2*pause, tryMost) {
		began := time.Now()
		err := f.session(ctx)
		if ctx.Err() != nil {
			return
		}
		if time.Since(began) > tryMost {
			pause = tryFirst
		}
		text := status.Convert(err).Message()
		f.memory.setState("policyd is not followed: " + text)
		f.log.Warn("policyd is not followed; what is in memory goes on being used", "error", text, "again in", pause)
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

// session is one connection to policyd.
func (f *follower) session(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if err := f.client.Ready(ctx); err != nil {
		return err
	}
	// The last event is looked up before anything is asked, so that what changes meanwhile comes as an event.
	last, err := f.lastEvent(ctx)
	if err != nil {
		return err
	}
	stream, err := f.client.Admin.Events(ctx, &apiv1.EventsRequest{From: last + 1, Follow: true})
	if err != nil {
		return err
	}
	if err := f.all(ctx); err != nil {
		return err
	}
	f.memory.setState("policyd did not have it when it was last asked")
	f.log.Info("policyd is followed", "profiles", len(f.memory.digests()))

	events := make(chan *apiv1.Event)
	ended := make(chan error, 1)
	go func() {
		for {
			res, err := stream.Recv()
			if err != nil {
				ended <- err
				return
			}
			select {
			case events <- res.GetEvent():
			case <-ctx.Done():
				return
			}
		}
	}()
	tick := time.NewTicker(again)
	defer tick.Stop()
	for {
		select {
		case e := <-events:
			err = f.changed(ctx, batch(ctx, e, events))
		case <-f.memory.wake:
			err = f.ask(ctx, f.memory.takeFresh())
		case <-tick.C:
			err = f.unannounced(ctx)
		case err = <-ended:
			if errors.Is(err, io.EOF) {
				err = errors.New("policyd ended the stream of events")
			}
		}
		if err != nil {
			return err
		}
	}
}

func (f *follower) lastEvent(ctx context.Context) (seq uint64, err error) {
	stream, err := f.client.Admin.Events(ctx, &apiv1.EventsRequest{Tail: 1})
	if err != nil {
		return 0, err
	}
	for {
		res, err := stream.Recv()
		switch {
		case errors.Is(err, io.EOF):
			return seq, nil
		case err != nil:
			return 0, err
		}
		seq = res.GetEvent().GetSeq()
	}
}

// batch gathers the events that come within a moment.
func batch(ctx context.Context, first *apiv1.Event, events <-chan *apiv1.Event) []*apiv1.Event {
	all := []*apiv1.Event{first}
	for end := time.After(together); ; {
		select {
		case e := <-events:
			all = append(all, e)
		case <-end:
			return all
		case <-ctx.Done():
			return all
		}
	}
}

// changed looks after what events are about.
func (f *follower) changed(ctx context.Context, events []*apiv1.Event) error {
	names := map[string]bool{}
	bindings := f.settings.Select == "bindings"
	rebind := false
	for _, e := range events {
		kind, ref, _ := strings.Cut(e.GetSubject(), "/")
		switch kind {
		case kindPolicy:
			name, _, _ := strings.Cut(ref, "@")
			names[name] = true
		case kindBinding:
			rebind = bindings
		}
	}
	if len(names) == 0 && !rebind {
		return nil
	}
	index := f.index
	if rebind {
		var err error
		if index, err = f.bind(ctx); err != nil {
			return err
		}
	}
	for name := range names {
		if bindings {
			break // what they name is all that counts
		}
		if err := f.list(ctx, name); err != nil {
			return err
		}
	}
	return f.load(ctx, index, func(q question) bool {
		return names[q.name()] || q.unmatched() || f.memory.current(q) == nil // the configuration may name one of them
	})
}

// all asks everything.
func (f *follower) all(ctx context.Context) error {
	var index *binding.Index
	var err error
	if f.settings.Select == "bindings" {
		index, err = f.bind(ctx)
	} else {
		err = f.listAll(ctx)
	}
	if err == nil {
		err = f.load(ctx, index, func(question) bool { return true })
	}
	if err != nil {
		return err
	}
	if err := f.memory.clear(); err != nil {
		f.log.Warn("profiles that nothing uses could not be removed", "error", err)
	}
	return nil
}

// load asks those questions that are due, and then puts the Bindings that lead to them in force, and forgets the answers
// to what is no question any more: a tag that was taken away, a policy that was deleted.
func (f *follower) load(ctx context.Context, index *binding.Index, due func(question) bool) error {
	questions := f.questions()
	if err := f.ask(ctx, slices.DeleteFunc(slices.Clone(questions), func(q question) bool { return !due(q) })); err != nil {
		return err
	}
	f.index = index
	f.memory.setIndex(index)
	f.memory.retain(questions)
	return nil
}

// unannounced asks again what changes without an event: the policy for what no Binding matches stands in policyd's
// configuration, and what was refused may have been for a while only.
func (f *follower) unannounced(ctx context.Context) error {
	var questions []question
	for _, q := range f.questions() {
		if a := f.memory.current(q); q.unmatched() || a == nil || a.err != nil {
			questions = append(questions, q)
		}
	}
	return f.ask(ctx, questions)
}

// questions are all that the memory shall hold answers to.
func (f *follower) questions() []question {
	var all []question
	if f.settings.Select == "bindings" {
		for _, b := range f.bindings {
			all = append(all, question{ref: b.Spec.GetPolicy(), parameters: b.Spec.GetSet()})
		}
		all = append(all, question{decides: unmatched})
	} else {
		for _, of := range f.refs {
			all = append(all, of...)
		}
		if f.settings.Profile != "" {
			all = append(all, question{ref: f.settings.Profile})
		}
	}
	all = append(all, f.memory.extras()...)
	slices.SortFunc(all, func(a, b question) int { return strings.Compare(a.key(), b.key()) })
	return slices.CompactFunc(all, func(a, b question) bool { return a.key() == b.key() })
}
