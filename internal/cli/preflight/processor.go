package preflight

import (
	"debug/elf"
	"os"
	"slices"
	"strings"
)

// processor is what /proc/cpuinfo says.
type processor struct {
	vendor string
	flags  map[string]bool
}

func readProcessor() *processor {
	b, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		b = nil
	}
	return parseProcessor(string(b))
}

// parseProcessor takes the first processor.
func parseProcessor(text string) *processor {
	p := &processor{flags: map[string]bool{}}
	for line := range strings.Lines(text) {
		key, value, _ := strings.Cut(line, ":")
		value = strings.TrimSpace(value)
		switch strings.TrimSpace(key) {
		case "vendor_id":
			p.vendor = value
		case "flags":
			for _, f := range strings.Fields(value) {
				p.flags[f] = true
			}
			return p
		}
	}
	return p
}

func (p *processor) has(flags ...string) bool {
	return !slices.ContainsFunc(flags, func(f string) bool { return !p.flags[f] })
}

// x86Levels are those of the x86-64 psABI, by the names the kernel has for the
// flags: lowest first, each with what it has beyond the one before.
var x86Levels = []struct {
	name  string
	flags []string
}{
	{"x86-64-v2", []string{"cx16", "lahf_lm", "popcnt", "pni", "sse4_1", "sse4_2", "ssse3"}},
	{"x86-64-v3", []string{"avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe"}},
	{"x86-64-v4", []string{"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}},
}

// levels gives the subfolders of glibc-hwcaps for a program, best first: known
// for x86-64 alone.
func (p *processor) levels(o *object) []string {
	if o.machine != elf.EM_X86_64 || o.class != elf.ELFCLASS64 {
		return nil
	}
	var names []string
	for _, l := range x86Levels {
		if !p.has(l.flags...) {
			break
		}
		names = append([]string{l.name}, names...)
	}
	return names
}

// platform is $PLATFORM: AT_PLATFORM of the kernel, but for processors that
// glibc has a name for (init_cpu_features).
func (p *processor) platform(o *object) string {
	switch o.machine {
	case elf.EM_X86_64:
		if p.vendor == "GenuineIntel" && p.has("avx2", "fma", "bmi1", "bmi2", "abm", "movbe", "popcnt") {
			return "haswell"
		}
		return "x86_64"
	case elf.EM_386:
		return "i686"
	case elf.EM_AARCH64:
		return "aarch64"
	}
	return strings.ToLower(strings.TrimPrefix(o.machine.String(), "EM_"))
}
