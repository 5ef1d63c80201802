package smackbench

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"

	"policyd.dev/policyd/smack"
	"policyd.dev/policyd/smack/smackfs"
	"policyd.dev/policyd/smack/smacktest"
)

// timedLoad loads and gives the report, with the milliseconds of the whole and of the writing.
func timedLoad(fs smackfs.FS, want, owned *smack.Set, m *smackfs.Memory) (r *smackfs.Report, whole, writing float64, err error) {
	timed := &timedFS{FS: fs}
	runtime.GC()
	start := time.Now()
	r, err = smackfs.Load(context.Background(), timed, want, owned, smackfs.Options{Memory: m})
	return r, since(start), timed.writing(), err
}

func takeLoad(fs smackfs.FS, shape smacktest.Shape) (values, error) {
	set, err := compiled(shape)
	if err != nil {
		return nil, err
	}
	if err := warm(set, text(set)); err != nil {
		return nil, err
	}
	r, whole, writing, err := timedLoad(fs, set, nil, nil)
	if err != nil {
		return nil, err
	}
	return values{"ms": whole, "writing": writing, "writes": float64(r.Writes), "bytes": float64(r.Bytes)}, nil
}

// A full load into a kernel that was just booted:
//
//	ms/bare     the same bytes, ready in memory, in chunks of at most 4095
//	ms/writing  of Load, from the beginning of its first write to the end of its last
//	ms/load     Load whole: reading the kernel's rules, comparing, writing, reading and comparing again
//	ms/single   one rule a write, ready in memory, as systemd does it
//
// The ratios named least are of the quickest samples instead of the medians.
func BenchmarkFullLoad(b *testing.B) {
	for _, shape := range []string{"17k-500", "50k-200-a-subject"} {
		b.Run(shape, func(b *testing.B) {
			inGuests(b, func(b *testing.B, kernel string) {
				ways := []string{"bare", "load"}
				if shape == "17k-500" { // with more it takes seconds and tells nothing new
					ways = append(ways, "single")
				}
				m := samples(b, kernel, shape, ways...)
				if m["load/bytes"] != m["bare/bytes"] || m["load/writes"] > m["bare/writes"] {
					b.Errorf("Load writes %v bytes in %v, bare %v in %v", m["load/bytes"], m["load/writes"], m["bare/bytes"], m["bare/writes"])
				}
				b.ReportMetric(m["bare/ms"], "ms/bare")
				b.ReportMetric(m["load/writing"], "ms/writing")
				b.ReportMetric(m["load/ms"], "ms/load")
				b.ReportMetric(m["load/writes"], "writes")
				b.ReportMetric(m["load/writing"]/m["bare/ms"], "writing/bare")
				b.ReportMetric(m["load/ms"]/m["bare/ms"], "load/bare")
				b.ReportMetric(m["load/writing/least"]/m["bare/ms/least"], "writing/bare-least")
				b.ReportMetric(m["load/ms/least"]/m["bare/ms/least"], "load/bare-least")
				if len(ways) > 2 {
					b.ReportMetric(m["single/ms"], "ms/single")
					b.ReportMetric(m["single/ms"]/m["load/ms"], "single/load")
				}
			})
		})
	}
}

// oneChanged gives the rules with the access of one in the middle changed.
func oneChanged(set *smack.Set) (*smack.Set, error) {
	b := smack.NewSetBuilder()
	i := 0
	for r := range set.All() {
		if i == set.Len()/2 {
			r.Access ^= smack.Append
		}
		b.Set(r.Subject, r.Object, r.Access)
		i++
	}
	return b.Build()
}

func takeChange(fs smackfs.FS, shape smacktest.Shape) (values, error) {
	set, err := compiled(shape)
	if err != nil {
		return nil, err
	}
	other, err := oneChanged(set)
	if err != nil {
		return nil, err
	}
	rules := text(set)
	pieces, single := chunks(rules, maxWrite), chunks(rules, 0)
	if err := warm(set, rules); err != nil {
		return nil, err
	}
	first, _, _, err := timedLoad(fs, set, nil, nil)
	if err != nil {
		return nil, err
	}
	memory, err := smackfs.NewMemory(fs)
	if err != nil {
		return nil, err
	}
	defer memory.Close()
	all := map[string][]float64{}
	add := func(name string, ms float64) { all[name] = append(all[name], ms) }
	now, next, owned := set, other, first.Owned
	for _, way := range []struct {
		name   string
		memory *smackfs.Memory
	}{{"-read", nil}, {"", memory}} {
		// The first load with a memory reads the rules.
		if _, _, _, err := timedLoad(fs, now, owned, way.memory); err != nil {
			return nil, err
		}
		for range repeats {
			r, whole, _, err := timedLoad(fs, now, owned, way.memory)
			if err != nil || r.Writes != 0 {
				return nil, fmt.Errorf("an unchanged load makes %d writes: %w", r.Writes, err)
			}
			add("unchanged"+way.name, whole)
			r, whole, writing, err := timedLoad(fs, next, r.Owned, way.memory)
			if err != nil || r.Writes != 1 || r.Written != 1 {
				return nil, fmt.Errorf("a change of one rule makes %d writes of %d rules: %w", r.Writes, r.Written, err)
			}
			add("one"+way.name, whole)
			if way.memory == nil { // the clock stops where the rules are read again
				add("one-writing", writing)
			}
			now, next, owned = next, now, r.Owned
		}
	}
	for range repeats {
		runtime.GC()
		ms, err := writeBare(fs, pieces)
		if err != nil {
			return nil, err
		}
		add("rewrite", ms)
		runtime.GC()
		if ms, err = clearAndLoad(fs, rules); err != nil {
			return nil, err
		}
		add("clear", ms)
	}
	ms, err := writeBare(fs, single)
	if err != nil {
		return nil, err
	}
	add("single", ms)
	v := values{}
	for name, list := range all {
		v[name] = median(list)
	}
	return v, nil
}

// Loads into a kernel that has the rules already:
//
//	ms/unchanged    Load of the same rules, which writes nothing; with the memory of the loads before, as policyd has it
//	ms/one          Load with one rule changed, which writes that one; with the memory
//	ms/unchanged-read, ms/one-read  the same without a memory: all rules are read, and read again; ms/one-writing is the write
//	ms/rewrite      all rules written again in chunks, ready in memory
//	ms/clear        every rule set to no access, then all written, as smackctl apply does it
//	ms/single       all rules written again, one a write
func BenchmarkChange(b *testing.B) {
	inGuests(b, func(b *testing.B, kernel string) {
		m := samples(b, kernel, "17k-500", "change")
		for _, name := range []string{"unchanged", "one", "unchanged-read", "one-read", "one-writing", "rewrite", "clear", "single"} {
			b.ReportMetric(m["change/"+name], "ms/"+name)
		}
		b.ReportMetric(m["change/rewrite"]/m["change/one-writing"], "rewrite/one-writing")
		for _, name := range []string{"rewrite", "clear", "single"} {
			b.ReportMetric(m["change/"+name]/m["change/one"], name+"/one")
			b.ReportMetric(m["change/"+name]/m["change/one-read"], name+"/one-read")
		}
	})
}

// sharedPairs gives up to n pairs with what both sets allow, evenly from the whole.
func sharedPairs(a, b *smack.Set, n int) []smack.Query {
	var all []smack.Query
	for r := range a.All() {
		other, _ := b.Lookup(r.Subject, r.Object)
		if both := r.Access & other &^ smack.Bringup; both != 0 {
			all = append(all, smack.Query{Subject: r.Subject, Object: r.Object, Access: both})
		}
	}
	step := max(1, len(all)/n)
	var out []smack.Query
	for i := 0; i < len(all) && len(out) < n; i += step {
		out = append(out, all[i])
	}
	return slices.Clip(out)
}
