package spawn

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"policyd.dev/policyd/internal/errs"
)

func TestCgroupFolder(t *testing.T) {
	const unified = "31 23 0:28 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"
	for _, tc := range []struct{ cgroup, mounts, want string }{
		{"0::/\n", unified, "/sys/fs/cgroup"},
		{"1:cpu:/x\n0::/a/b\n", "1 0 8:1 / / rw - ext4 /dev/x rw\n" + unified, "/sys/fs/cgroup/a/b"},
		{"0::/part/a\n", "31 23 0:28 /part /mnt rw shared:4 - cgroup2 none rw\n", "/mnt/a"},
		{"0::/part\n", "31 23 0:28 /part /mnt rw - cgroup2 none rw\n", "/mnt"},
		{"0::/partly\n", "31 23 0:28 /part /mnt rw - cgroup2 none rw\n", ""},
		{"0::/a\n", "31 23 0:28 / /a\\040b\\134 rw - cgroup2 none rw\n", "/a b\\/a"},
		{"0::/a\n", "31 23 0:28 / /sys/fs/cgroup rw - cgroup none rw\n", ""},
		{"1:cpu:/\n", unified, ""},
		{"0::/../x\n", unified, ""},
		{"", "", ""},
	} {
		got, err := cgroupFolder(tc.cgroup, tc.mounts)
		if got != tc.want || (err != nil) != (tc.want == "") {
			t.Errorf("%q %q: %q, %v; want %q", tc.cgroup, tc.mounts, got, err, tc.want)
		}
	}
}

func FuzzCgroupFolder(f *testing.F) {
	f.Add("0::/a/b\n", "31 23 0:28 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n")
	f.Add("1:cpu:/\n0::/\n", "1 2 0:3 /x /a\\040b rw shared:1 - cgroup2 none rw\n")
	f.Fuzz(func(t *testing.T, cgroup, mounts string) {
		path, err := cgroupFolder(cgroup, mounts)
		if (err == nil) != (path != "") || err == nil && (!filepath.IsAbs(path) || filepath.Clean(path) != path) {
			t.Errorf("%q, %v", path, err)
		}
	})
}

func FuzzParseLimit(f *testing.F) {
	for _, s := range []string{"1", "1:2", "unlimited", "1K:unlimited", "16777216T", "2:1", "", ":", "-1"} {
		f.Add("nofile", s)
	}
	f.Fuzz(func(t *testing.T, name, value string) {
		l, err := ParseLimit(name, value)
		if err != nil {
			if !errors.Is(err, errs.ErrInvalid) || l != (Limit{}) {
				t.Errorf("%+v, %v", l, err)
			}
			return
		}
		again, err := ParseLimit(l.Name, fmt.Sprintf("%d:%d", l.Soft, l.Hard))
		if l.Soft == Unlimited || l.Hard == Unlimited {
			again, err = l, nil // that number has a name
		}
		if l.Soft > l.Hard || err != nil || again != l {
			t.Errorf("%q: %+v, again %+v, %v", value, l, again, err)
		}
	})
}

// FuzzProtocol reads what a supervisor and policyd say to each other.
func FuzzProtocol(f *testing.F) {
	request, err := json.Marshal(&startRequest{Path: "/bin/true", Argv: []string{"true"}, Umask: new(int), Layers: []layerRequest{{"a", 1}}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(string(request) + "\n")
	f.Add(`{"PID":12}` + "\n")
	f.Add(`{"Class":"not_found","Error":"no"}` + "\n")
	f.Add(`{"Status":{"Code":137,"Signal":9}}` + "\n")
	f.Add("{}")
	f.Fuzz(func(t *testing.T, text string) {
		if req, err := readRequest(strings.NewReader(text)); err == nil {
			b, err := json.Marshal(req)
			if err != nil {
				t.Fatal(err)
			}
			again, err := readRequest(strings.NewReader(string(b) + "\n"))
			if err != nil || !reflect.DeepEqual(req, again) {
				t.Errorf("%+v, again %+v, %v", req, again, err)
			}
		}
		line, _ := bufio.NewReader(strings.NewReader(text)).ReadBytes('\n')
		var reply startReply
		if json.Unmarshal(line, &reply) == nil {
			if err := reply.err(); (err != nil) != (reply.Error != "") || err != nil && errors.Unwrap(err) == nil {
				t.Errorf("%+v: %v", reply, err)
			}
		}
		s := supervisor{buf: append(line, '\n')}
		if st, err := s.status(); err != nil {
			t.Errorf("status %+v, %v", st, err)
		}
	})
}
