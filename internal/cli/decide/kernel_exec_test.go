package decide

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"

	"policyd.dev/policyd/enforce/landlock"
	"policyd.dev/policyd/enforce/profile"
	"policyd.dev/policyd/internal/testkernel"
)

// under runs f on a thread that is confined by the profile and then thrown away.
func under(p *profile.Profile, sup landlock.Support, f func()) error {
	c, err := confine(p, sup)
	if err != nil {
		return err
	}
	defer c.end()
	return c.do(func() error { f(); return nil })
}

// Ports too, where the kernel knows them.
func TestKernelAgreesOnPorts(t *testing.T) {
	testkernel.Each(t, testkernel.Landlock, func(t *testing.T) {
		sup := landlock.Probe()
		handled := (profile.NetBindTCP | profile.NetBindUDP) & profile.Handled(profile.Net, sup.ABI)
		if handled == 0 {
			testkernel.Skip(t, "a kernel with net rights (ABI 4)", "linux 6.7")
		}
		p := build(t, []profile.Layer{layer("net", 0, handled)}, nil, profile.PortRow{First: 40100, Last: 40200, Access: []profile.Access{handled}})
		d, err := New(p, nil, Options{ABI: sup.ABI, Errata: sup.Errata})
		if err != nil {
			t.Fatal(err)
		}
		var report []string
		err = under(p, sup, func() {
			for _, port := range []int{40099, 40100, 40150, 40200, 40201} {
				for _, protocol := range []string{"tcp", "udp"} {
					got := bind(protocol, port)
					q, err := Parse([]string{"bind", protocol, fmt.Sprint(port)})
					if err != nil {
						report = append(report, err.Error())
						continue
					}
					v, err := d.Answer(q)
					if err != nil || v.Allowed() != !errors.Is(got, syscall.EACCES) {
						report = append(report, fmt.Sprintf("bind %s %d: kernel says %v, verdict %+v (%v)", protocol, port, got, v, err))
					}
				}
			}
		})
		if err != nil || len(report) > 0 {
			t.Errorf("%v %v", err, report)
		}
	})
}

func bind(protocol string, port int) error {
	kind := syscall.SOCK_STREAM
	if protocol == "udp" {
		kind = syscall.SOCK_DGRAM
	}
	fd, err := syscall.Socket(syscall.AF_INET, kind|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer syscall.Close(fd)
	return syscall.Bind(fd, &syscall.SockaddrInet4{Port: port, Addr: [4]byte(net.IPv4(127, 0, 0, 1).To4())})
}

// Execution goes through interpreters, of #! and of ELF: the verdict is the
// kernel's for each set of grants on them.
func TestKernelAgreesOnExec(t *testing.T) {
	testkernel.Each(t, testkernel.Landlock, func(t *testing.T) {
		dir := tree(t)
		program, err := os.ReadFile("/bin/true")
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(dir+"/data/interp", program, 0o755); err != nil {
			t.Fatal(err)
		}
		loader, _, err := interpreter(dir + "/data/interp")
		if err != nil || loader == "" {
			t.Fatalf("the loader of /bin/true: %q, %v", loader, err)
		}
		sup := landlock.Probe()
		const all = profile.FSExecute | profile.FSReadFile
		places := []string{dir + "/other/tool", dir + "/data/interp", loader}
		allowed := 0
		for grants := range 64 { // two bits, execute and read_file, for each place
			var rules []rule
			for i, path := range places {
				if a := profile.Access(0) | bit(grants, 2*i, profile.FSExecute) | bit(grants, 2*i+1, profile.FSReadFile); a != 0 {
					rules = append(rules, rule{0, path, a, profile.Fail})
				}
			}
			p := build(t, []profile.Layer{layer("l", all, 0)}, rules)
			d, err := New(p, nil, Options{ABI: sup.ABI, Errata: sup.Errata})
			if err != nil {
				t.Fatal(err)
			}
			for _, path := range places[:2] {
				q, err := Parse([]string{"exec", path})
				if err != nil {
					t.Fatal(err)
				}
				v, err := d.Answer(q)
				if err != nil {
					t.Fatal(err)
				}
				var got error
				if err := under(p, sup, func() { got = execute(path) }); err != nil {
					t.Fatal(err)
				}
				if v.Allowed() != (got == nil) || got != nil && !errors.Is(got, syscall.EACCES) {
					t.Errorf("exec %s, grants %06b: kernel says %v, verdict %+v", path, grants, got, v)
				}
				if v.Allowed() {
					allowed++
				}
			}
		}
		if allowed != 1+4 { // the script with all, the program with whatever the script has
			t.Errorf("%d allowed, want 5", allowed)
		}
	})
}

func bit(set, n int, a profile.Access) profile.Access {
	if set>>n&1 != 0 {
		return a
	}
	return 0
}

// execute runs a program from this very thread. Its own end does not matter.
func execute(path string) error {
	pid, err := syscall.ForkExec(path, []string{path}, &syscall.ProcAttr{})
	if err == nil {
		_, err = syscall.Wait4(pid, nil, 0, nil)
	}
	return err
}

// What the kernel takes for an interpreter: the first word of a #! line up to a
// blank or tab, five of them one after another; that of an ELF file by its program
// headers, and not what that one asks for in turn.
func TestKernelAgreesOnInterpreters(t *testing.T) {
	testkernel.Each(t, testkernel.Landlock, func(t *testing.T) {
		dir := tree(t)
		program, err := os.ReadFile("/bin/true")
		if err != nil {
			t.Fatal(err)
		}
		loader, _, err := interpreter("/bin/true")
		if err != nil {
			t.Fatal(err)
		}
		at := func(name string) string { return dir + "/data/" + name }
		noSections := bytes.Clone(program)
		binary.NativeEndian.PutUint64(noSections[40:], 0x7ffffff0) // e_shoff
		files := map[string]string{
			"p": string(program), "no-sections": string(noSections),
			"return": "#!" + at("p") + "\r\n", "blank": "#! \t" + at("p") + "\t\r\n", "nul": "#!" + at("p") + "\x00x\n",
			"vertical": "#!" + at("p") + "\v-x\n", "no-end": "#!" + at("p"), "nothing": "#!\n", "text": "echo\n", "elf": "\x7fELF",
			"long": "#!" + strings.Repeat("/", 260-len(at("p"))) + at("p") + "\n",
			"s1":   "#!" + at("p") + "\n",
		}
		for i := 2; i <= 7; i++ {
			files[fmt.Sprintf("s%d", i)] = fmt.Sprintf("#!%s\n", at(fmt.Sprintf("s%d", i-1)))
		}
		if i := bytes.Index(program, []byte(loader+"\x00")); i < 0 || len(loader) < 2 {
			t.Fatalf("no %q in /bin/true", loader)
		} else {
			byProgram := bytes.Clone(program)
			copy(byProgram[i:], "p\x00") // of the working directory
			files["by-program"] = string(byProgram)
		}
		for name, content := range files {
			if err := os.WriteFile(at(name), []byte(content), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		t.Chdir(dir + "/data")
		sup := landlock.Probe()
		const all = profile.FSExecute | profile.FSReadFile
		for _, rules := range [][]rule{{{0, dir, all, profile.Fail}}, {{0, dir, all, profile.Fail}, {0, loader, all, profile.Fail}}} {
			p := build(t, []profile.Layer{layer("l", all, 0)}, rules)
			d, err := New(p, nil, Options{ABI: sup.ABI, Errata: sup.Errata, Base: dir + "/data"})
			if err != nil {
				t.Fatal(err)
			}
			for name := range files {
				q, err := Parse([]string{"exec", at(name)})
				if err != nil {
					t.Fatal(err)
				}
				v, err := d.Answer(q)
				var got error
				if err := under(p, sup, func() { got = execute(at(name)) }); err != nil {
					t.Fatal(err)
				}
				switch {
				case errors.Is(got, syscall.EACCES):
					if err != nil || v.Allowed() {
						t.Errorf("%d rules, exec %s: kernel says %v, verdict %+v (%v)", len(rules), name, got, v, err)
					}
				case got == nil, errors.Is(got, syscall.ENOEXEC):
					if err != nil || !v.Allowed() {
						t.Errorf("%d rules, exec %s: kernel says %v, verdict %+v (%v)", len(rules), name, got, v, err)
					}
					unknown := got != nil
					if err == nil && unknown != slices.ContainsFunc(v.Notes, func(n Note) bool { return n.Code == noteInterpreter }) {
						t.Errorf("%d rules, exec %s: kernel says %v, notes %+v", len(rules), name, got, v.Notes)
					}
				default:
					if !errors.Is(err, ErrNotAsked) || !errors.Is(err, got) {
						t.Errorf("%d rules, exec %s: kernel says %v, verdict %+v (%v)", len(rules), name, got, v, err)
					}
				}
			}
		}
	})
}

// Links of /proc to what a process outside of the sandbox has are refused
// whatever the rules say, its other files are not.
func TestKernelAgreesOnOtherProcesses(t *testing.T) {
	testkernel.Each(t, testkernel.Landlock, func(t *testing.T) {
		other := exec.Command("/bin/cat")
		in, err := other.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := other.Start(); err != nil {
			t.Fatal(err)
		}
		defer other.Wait()
		defer in.Close()
		sup := landlock.Probe()
		const all = profile.FSExecute | profile.FSReadFile | profile.FSReadDir
		p := build(t, []profile.Layer{layer("l", all, 0)}, []rule{{0, "/", all, profile.Fail}})
		d, err := New(p, nil, Options{ABI: sup.ABI, Errata: sup.Errata})
		if err != nil {
			t.Fatal(err)
		}
		dir := t.TempDir()
		proc := fmt.Sprintf("/proc/%d", other.Process.Pid)
		if err := os.Symlink(proc+"/root", dir+"/link"); err != nil {
			t.Fatal(err)
		}
		s := &scene{}
		for _, line := range []string{
			"open P/exe r", "open P/root/etc r", "open P/cwd r", "open P/task/N/exe r", "stat P/exe", "open DIR/link/etc r", "open DIR/link r",
			"open /proc/self/../N/root r", "open P/status r", "open P/comm r", "open P/task r", "open P/fd rd", "stat P/status", "open /proc/N/../version r",
			"open P/mem r", "open P/task/N/mem rw", "open P/mem p",
		} {
			line = strings.NewReplacer("P/", proc+"/", "N", fmt.Sprint(other.Process.Pid), "DIR", dir).Replace(line)
			q, err := ParseLine(line)
			if err != nil {
				t.Fatal(err)
			}
			v, said := d.Answer(q)
			var got error
			if err := under(p, sup, func() { got = s.perform(q) }); err != nil {
				t.Fatal(err)
			}
			if got == nil && (said != nil || !v.Allowed()) || got != nil && (!errors.Is(got, syscall.EACCES) || !errors.Is(said, syscall.EACCES) || !errors.Is(said, ErrNotAsked)) {
				t.Errorf("%s: kernel says %v, verdict %+v (%v)", line, got, v, said)
			}
		}
	})
}
