package smackbench

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strconv"
	"testing"

	"policyd.dev/policyd/smack/smackfs"
	"policyd.dev/policyd/smack/smacktest"
)

// rawFile is the rules as files of many packages have them. Beside each tenth rule stands one more for its pair with another
// access, two without effect, and one without access under a label that nothing else names.
func rawFile(shape smacktest.Shape) []byte {
	var b []byte
	i := 0
	shape.Each(func(subject, object, access string) {
		if i++; i%10 == 0 {
			b = fmt.Appendf(b, "%s %s r\n", subject, object)
			b = fmt.Appendf(b, "%s %s rwx\n", subject, subject)
			b = fmt.Appendf(b, "%s _ rx\n", object)
			b = fmt.Appendf(b, "Gone::%d %s -\n", i/10%100, object)
		}
		b = fmt.Appendf(b, "%s %s %s\n", subject, object, access)
	})
	return b
}

// kernelMemory reads KiB of /proc/meminfo, and how many rules /proc/slabinfo counts, where the kernel has that.
func kernelMemory() (values, error) {
	b, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return nil, err
	}
	v := values{}
	number := func(b []byte, name string, field int) bool {
		for line := range bytes.Lines(b) {
			f := bytes.Fields(line)
			if len(f) > field && string(f[0]) == name {
				n, err := strconv.Atoi(string(f[field]))
				v[name] = float64(n)
				return err == nil
			}
		}
		return false
	}
	if !number(b, "Slab:", 1) || !number(b, "SUnreclaim:", 1) {
		return nil, fmt.Errorf("meminfo: %s", b)
	}
	if b, err := os.ReadFile("/proc/slabinfo"); err == nil {
		number(b, "smack_rule", 1)
	}
	return v, nil
}

// growth gives what f takes of the kernel's memory.
func growth(f func() error) (values, error) {
	before, err := kernelMemory()
	if err != nil {
		return nil, err
	}
	if err := f(); err != nil {
		return nil, err
	}
	after, err := kernelMemory()
	for name := range after {
		after[name] -= before[name]
	}
	return after, err
}

func takeMemory(fs smackfs.FS, shape smacktest.Shape) (values, error) {
	set, warnings, err := compileText(rawFile(shape))
	if err != nil {
		return nil, err
	}
	if warnings == 0 {
		return nil, fmt.Errorf("no warning of duplicates")
	}
	return growth(func() error {
		_, err := smackfs.Load(context.Background(), fs, set, nil, smackfs.Options{})
		return err
	})
}

func takeMemoryRaw(fs smackfs.FS, shape smacktest.Shape) (values, error) {
	pieces := chunks(rawFile(shape), maxWrite)
	return growth(func() error {
		_, err := writeBare(fs, pieces)
		return err
	})
}

// What loading takes of the kernel's memory, in KiB: Load, which leaves out what says something twice or changes nothing, and
// the same file written as it is.
func BenchmarkKernelMemory(b *testing.B) {
	inGuests(b, func(b *testing.B, kernel string) {
		m := samples(b, kernel, "17k-500", "memory", "memoryraw")
		for unit, name := range map[string]string{"KiB-slab": "Slab:", "KiB-unreclaimable": "SUnreclaim:", "rules": "smack_rule"} {
			if _, ok := m["memory/"+name]; !ok {
				continue
			}
			b.ReportMetric(m["memory/"+name], unit+"/load")
			b.ReportMetric(m["memoryraw/"+name], unit+"/raw")
		}
		b.ReportMetric(m["memoryraw/SUnreclaim:"]/m["memory/SUnreclaim:"], "raw/load")
	})
}
