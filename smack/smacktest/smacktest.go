// Package smacktest makes Smack rules for tests and benchmarks, the same ones
// on every machine. It imports nothing but the standard library.
package smacktest

import (
	"fmt"
	"math/rand/v2"
	"strconv"
)

// Shape is what to make.
type Shape struct {
	Rules  int
	Labels int
	// PerSubject, when not 0, is how many objects each subject has; otherwise
	// subjects have as many as the draw gives them.
	PerSubject int
	Seed       uint64
}

// Platform is 17,000 rules over 500 labels: as many as a phone's platform has,
// and the measure of the project's benchmarks.
var Platform = Shape{Rules: 17000, Labels: 500, Seed: 1}

// Wide is 50,000 rules, 200 objects a subject: what 500 packages need.
var Wide = Shape{Rules: 50000, Labels: 500, PerSubject: 200, Seed: 2}

// accesses are those of platform rules, the frequent ones more often.
var accesses = [...]string{"r", "r", "rx", "rx", "rx", "w", "w", "rw", "rw", "rwx", "rwxa", "rwxat", "rwxatl", "rl", "x"}

// Label gives label number i: of the kinds platforms use, 5 to 40 bytes.
func (s Shape) Label(i int) string {
	switch i % 5 {
	case 0:
		return "App:org.example.app" + strconv.Itoa(i)
	case 1:
		return "User::Pkg::com.vendor.package" + strconv.Itoa(i) + "::RO"
	case 2:
		return "System" + strconv.Itoa(i)
	case 3:
		return "daemon" + strconv.Itoa(i) + "::db"
	}
	return "lib-" + strconv.Itoa(i)
}

// Each calls f for each rule, no pair twice, by subject. Labels and letters are
// all legal and no rule is without effect.
func (s Shape) Each(f func(subject, object, access string)) {
	rng := rand.New(rand.NewPCG(s.Seed, 0x534d41434b))
	subjects := s.Labels
	if s.PerSubject > 0 {
		subjects = (s.Rules + s.PerSubject - 1) / s.PerSubject
	}
	if s.Labels < 2 || subjects > s.Labels || s.PerSubject >= s.Labels || s.Rules > subjects*(s.Labels-1) {
		panic(fmt.Sprintf("smacktest: %+v cannot be made", s))
	}
	left := s.Rules
	objects := make([]int, s.Labels)
	for i := range objects {
		objects[i] = i
	}
	for sub := range subjects {
		n := left / (subjects - sub)
		if s.PerSubject > 0 {
			n = min(s.PerSubject, left)
		} else if sub < subjects-1 {
			// About as many as the others, half to one and a half times.
			most := min(s.Labels-1, left)
			least := max(0, left-(subjects-sub-1)*(s.Labels-1))
			n = min(max(n/2+rng.IntN(n+1), least), most)
		}
		for i := 0; i < n; i++ {
			// The next of a shuffle that stops when there are enough.
			j := i + rng.IntN(len(objects)-i)
			objects[i], objects[j] = objects[j], objects[i]
			if objects[i] == sub {
				// The own label: take another, and leave this one for later.
				k := i + 1 + rng.IntN(len(objects)-i-1)
				objects[i], objects[k] = objects[k], objects[i]
			}
			f(s.Label(sub), s.Label(objects[i]), accesses[rng.IntN(len(accesses))])
		}
		left -= n
	}
}

// Text gives the rules as a file of rules, a rule a line.
func (s Shape) Text() []byte {
	b := make([]byte, 0, s.Rules*48)
	s.Each(func(subject, object, access string) {
		b = append(append(b, subject...), ' ')
		b = append(append(b, object...), ' ')
		b = append(append(b, access...), '\n')
	})
	return b
}
