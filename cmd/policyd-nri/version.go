package main

import (
	"fmt"
	"strconv"
	"strings"
)

// Versions that take changed arguments of a container: of NRI, and of the runtimes, by which it is known where they do
// not tell that of their NRI. Older ones ignore the arguments without a word.
var takers = []struct {
	name         string
	major, minor int
}{
	{"nri", 0, 10},
	{"containerd", 2, 2},
	{"cri-o", 1, 34},
}

// takes tells whether a version of a taker is new enough, and whether that can be told.
func takes(name, version string) (yes, known bool) {
	for _, t := range takers {
		if t.name != strings.ToLower(name) {
			continue
		}
		// What distributions put behind the numbers does not matter.
		parts := strings.SplitN(strings.TrimPrefix(version, "v"), ".", 3)
		if len(parts) < 2 {
			return false, false
		}
		major, err := strconv.Atoi(parts[0])
		minor, err2 := strconv.Atoi(parts[1])
		if err != nil || err2 != nil || major == 0 && minor == 0 {
			return false, false // 0.0.0 stands for a version that is not known
		}
		return major > t.major || major == t.major && minor >= t.minor, true
	}
	return false, false
}

// takesArguments is an error when the runtime is known, or must be feared, to ignore them.
func (p *plugin) takesArguments() error {
	nri, runtime := "", [2]string{"of an unknown name", ""}
	if f := p.version.Load(); f != nil {
		nri = (*f)()
	}
	if r := p.runtime.Load(); r != nil {
		runtime = *r
	}
	yes, known := takes("nri", nri)
	if !known {
		yes, _ = takes(runtime[0], runtime[1])
	}
	if yes {
		return nil
	}
	return fmt.Errorf("the runtime is %s %q with NRI %q, and a container's program can be changed from NRI 0.10 on (containerd 2.2, CRI-O 1.34): use policyd-runc", runtime[0], runtime[1], nri)
}
