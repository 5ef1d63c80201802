package main

import (
	"cmp"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/enforce/oci"
	"policyd.dev/policyd/internal/binding"
)

// question is what policyd is asked: a policy with values of its parameters, or what a workload gets.
type question struct {
	ref        string
	parameters map[string]string
	// workload is asked about where Bindings decide and it gives values of parameters itself: which it may give, policyd
	// must say. decides is then the Binding as NAME@VERSION, or unmatched.
	workload *apiv1.Workload
	binding  string
	decides  string
}

// unmatched is what no Binding matches.
const unmatched = "unmatched"

func (q question) unmatched() bool { return q.decides == unmatched }

// key is one of questions that have the same answer.
func (q question) key() string {
	var b strings.Builder
	if b.WriteString(q.ref); q.decides != "" {
		b.Reset()
		b.WriteString("\x00" + q.decides) // no reference holds a NUL
	}
	for _, name := range slices.Sorted(maps.Keys(q.parameters)) {
		fmt.Fprintf(&b, "\x00%s\x00%d:%s", name, len(q.parameters[name]), q.parameters[name])
	}
	return b.String()
}

// name is that of the policy.
func (q question) name() string {
	name, _, _ := strings.Cut(q.ref, "@")
	return name
}

// answer is what policyd said. One with an error is an answer too.
type answer struct {
	question
	digest, version string
	file            string
	missing         []string
	err             error
}

func (q question) about() string {
	switch {
	case q.unmatched():
		return "what containers get that no Binding matches"
	case q.binding != "":
		return fmt.Sprintf("profile %q by Binding %s", q.ref, q.binding)
	}
	return fmt.Sprintf("profile %q", q.ref)
}

// extraMost bounds the questions kept that containers asked and that are not asked for by themselves: those of old
// versions and with parameters.
const extraMost = 4096

// memory holds what containers are answered from. Only the follower puts something in.
type memory struct {
	settings *settings
	log      *slog.Logger

	mu      sync.RWMutex
	answers map[string]*answer
	index   *binding.Index // nil until the Bindings are known
	// state says how it stands with policyd, for whoever is refused.
	state string

	wantMu sync.Mutex
	// extra are questions that containers asked, by key, and when last.
	extra map[string]extra
	// fresh are those of them that nobody has looked after yet.
	fresh []question
	wake  chan struct{}

	// clearing is held shared while a container is answered, and alone while files are cleared away.
	clearing sync.RWMutex
}

type extra struct {
	question
	asked time.Time
}

func newMemory(s *settings, log *slog.Logger) *memory {
	return &memory{settings: s, log: log, answers: map[string]*answer{}, state: "policyd was not reached yet", extra: map[string]extra{}, wake: make(chan struct{}, 1)}
}

// hold keeps files from being cleared away until what it gives is called.
func (m *memory) hold() (release func()) {
	m.clearing.RLock()
	return m.clearing.RUnlock
}

// find gives the answer for a container: nil when it runs as it is.
func (m *memory) find(d *described) (*answer, error) {
	if m.settings.Select == "bindings" {
		return m.bound(d)
	}
	if ref := cmp.Or(d.Ref, m.settings.Profile); ref != "" {
		return m.get(question{ref: ref, parameters: oci.Values(d.Parameters)})
	}
	if m.settings.Unannotated == "refuse" {
		return nil, fmt.Errorf("it has no annotation %s, and the configuration says to refuse such (unannotated: in %s)", oci.AnnotationProfile, m.settings.file)
	}
	if len(d.Parameters) > 0 {
		return nil, fmt.Errorf("it has values of parameters (%s) and nothing that names a policy", oci.About(d.Parameters))
	}
	return nil, nil
}

// bound gives the answer by Bindings.
func (m *memory) bound(d *described) (*answer, error) {
	m.mu.RLock()
	index, state := m.index, m.state
	m.mu.RUnlock()
	if index == nil {
		return nil, fmt.Errorf("the Bindings are not in memory (%s); see `policyctl status`, then start it again", state)
	}
	w := d.workload()
	q := question{decides: unmatched}
	b := index.Best(w)
	if b != nil {
		q = question{ref: b.Spec.GetPolicy(), parameters: b.Spec.GetSet(), binding: b.Name}
	}
	if len(d.Parameters) > 0 {
		q.workload, q.parameters = w, oci.Values(d.Parameters)
		if b != nil {
			q.decides = fmt.Sprintf("%s@%d", b.Name, b.Version)
		}
	}
	return m.get(q)
}

// get gives the answer to a question. What is not there is asked for, for the next time.
func (m *memory) get(q question) (*answer, error) {
	m.mu.RLock()
	a, state := m.answers[q.key()], m.state
	m.mu.RUnlock()
	way := "policyctl get policy " + strconv.Quote(q.name())
	if q.unmatched() {
		way = "policyctl get bindings"
	}
	if a == nil {
		m.want(q)
		return nil, fmt.Errorf("%s is not in memory (%s); see `%s`, then start it again", q.about(), state, way)
	}
	if a.err != nil {
		m.want(q)
		return nil, fmt.Errorf("%s: %w; see `%s`", q.about(), a.err, way)
	}
	with := *a
	with.question = q // two Bindings may lead to one profile
	return &with, nil
}

// want has a question asked soon.
func (m *memory) want(q question) {
	m.wantMu.Lock()
	defer m.wantMu.Unlock()
	if len(m.extra) >= extraMost {
		oldest := ""
		for key, e := range m.extra {
			if oldest == "" || e.asked.Before(m.extra[oldest].asked) {
				oldest = key
			}
		}
		delete(m.extra, oldest)
	}
	m.extra[q.key()] = extra{q, time.Now()}
	m.fresh = append(m.fresh, q)
	if len(m.fresh) > extraMost {
		m.fresh = m.fresh[1:]
	}
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

// takeFresh gives the questions that came since it was last called.
func (m *memory) takeFresh() []question {
	m.wantMu.Lock()
	defer m.wantMu.Unlock()
	fresh := m.fresh
	m.fresh = nil
	return fresh
}

// extras are all questions of containers.
func (m *memory) extras() []question {
	m.wantMu.Lock()
	defer m.wantMu.Unlock()
	var all []question
	for _, e := range m.extra {
		all = append(all, e.question)
	}
	return all
}

func (m *memory) put(a *answer) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.answers[a.key()] = a
}

func (m *memory) current(q question) *answer {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.answers[q.key()]
}

// retain forgets every answer but those to the questions.
func (m *memory) retain(questions []question) {
	keep := make(map[string]bool, len(questions))
	for _, q := range questions {
		keep[q.key()] = true
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	maps.DeleteFunc(m.answers, func(key string, _ *answer) bool { return !keep[key] })
}

func (m *memory) setIndex(x *binding.Index) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.index = x
}

func (m *memory) setState(state string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.state = state
}

// digests are those of all answers.
func (m *memory) digests() map[string]bool {
	m.mu.RLock()
	defer m.mu.RUnlock()
	all := make(map[string]bool, len(m.answers))
	for _, a := range m.answers {
		all[a.digest] = true
	}
	return all
}
