package preflight

import (
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"policyd.dev/policyd/enforce/profile"
)

// host is a folder with programs and a loader of glibc's kind, whose fixed
// places lie in the folder too.
type host struct {
	t   *testing.T
	dir string
}

func newHost(t *testing.T) *host {
	t.Helper()
	if runtime.GOARCH != "amd64" {
		t.Skip("its programs are for amd64")
	}
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	h := &host{t, dir}
	loader := native()
	loader.soname = "ld-linux-x86-64.so.2"
	loader.extra = []byte("\x00" + dir + "/lib/\x00" + dir + "/usr/lib/\x00\x00" + dir + "/etc/ld.so.cache\x00" + dir + "/etc/ld.so.preload\x00")
	h.put("lib64/ld-linux-x86-64.so.2", loader.bytes())
	return h
}

func (h *host) put(name string, content []byte) string {
	h.t.Helper()
	path := filepath.Join(h.dir, name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, content, 0o755)); err != nil {
		h.t.Fatal(err)
	}
	return path
}

// program is one that needs libraries.
func (h *host) program(change func(*image), needed ...string) string {
	m := native()
	m.interp, m.needed = h.dir+"/lib64/ld-linux-x86-64.so.2", needed
	if change != nil {
		change(&m)
	}
	return h.put("bin/app", m.bytes())
}

func (h *host) library(name string, needed ...string) string {
	m := native()
	m.soname, m.needed = filepath.Base(name), needed
	return h.put(name, m.bytes())
}

func (h *host) find(path string, o Options) *Result {
	h.t.Helper()
	if o.Dir == "" {
		o.Dir = h.dir
	}
	if o.Grants == nil {
		o.Grants = everything
	}
	res, err := Find(path, o)
	if err != nil {
		h.t.Fatal(err)
	}
	return res
}

// has compares the libraries, by their places within the host's folder.
func (h *host) has(res *Result, want ...string) {
	h.t.Helper()
	var got []string
	for _, p := range of(res, Library) {
		got = append(got, strings.TrimPrefix(p, h.dir+"/"))
	}
	if !slices.Equal(got, want) {
		h.t.Errorf("libraries %q, want %q", got, want)
	}
}

// refusing refuses everything at some paths.
func (h *host) refusing(names ...string) Grants {
	return func(path string, rights profile.Access) ([]Refusal, error) {
		if slices.Contains(names, strings.TrimPrefix(path, h.dir+"/")) {
			return []Refusal{{"l", profile.FS.Names(rights)}}, nil
		}
		return nil, nil
	}
}

// The order in which glibc looks: ld.so(8).
func TestSearchOrder(t *testing.T) {
	h := newHost(t)
	for _, d := range []string{"rpath", "env", "runpath", "cached", "lib"} {
		h.library(d + "/liba.so")
	}
	h.put("etc/ld.so.cache", makeCache(nil, cached{"liba.so", h.dir + "/cached/liba.so", flags64, 0}))
	env := []string{"LD_LIBRARY_PATH=none:" + h.dir + "/env"}
	rpath := func(m *image) { m.rpath = "$ORIGIN/../rpath" }
	runpath := func(m *image) { m.runpath = "${ORIGIN}/../runpath" }
	both := func(m *image) { rpath(m); runpath(m) }
	nodef := func(m *image) { m.flags1 = dfOneNoDefault }
	h.has(h.find(h.program(rpath, "liba.so"), Options{Env: env}), "rpath/liba.so")
	h.has(h.find(h.program(both, "liba.so"), Options{Env: env}), "env/liba.so")
	h.has(h.find(h.program(runpath, "liba.so"), Options{}), "runpath/liba.so")
	h.has(h.find(h.program(nil, "liba.so"), Options{}), "cached/liba.so")
	h.has(h.find(h.program(nodef, "liba.so"), Options{}), "cached/liba.so")
	h.has(h.find(h.program(nil, h.dir+"/env/liba.so"), Options{}), "env/liba.so")
	h.has(h.find(h.program(nil, "env/liba.so"), Options{}), "env/liba.so")
	if err := os.Remove(h.dir + "/etc/ld.so.cache"); err != nil {
		t.Fatal(err)
	}
	h.has(h.find(h.program(nil, "liba.so"), Options{}), "lib/liba.so")
	if res := h.find(h.program(nodef, "liba.so"), Options{}); res.Starts {
		t.Errorf("with DF_1_NODEFLIB: %+v", res.Needs)
	}
	h.has(h.find(h.program(func(m *image) { m.rpath = "../$LIB:" }, "liba.so"), Options{Dir: h.dir + "/cached"}), "cached/liba.so")
}

// A library is loaded once, under each of its names, by who asks first.
func TestLoadedOnce(t *testing.T) {
	h := newHost(t)
	h.library("lib/liba.so", "libb.so", "libc.so", "ld-linux-x86-64.so.2")
	h.library("lib/libb.so", "liba.so", "libd.so")
	h.library("lib/libd.so", "libb.so")
	if err := os.Symlink("libb.so", h.dir+"/lib/libc.so"); err != nil {
		t.Fatal(err)
	}
	h.has(h.find(h.program(nil, "liba.so", "libb.so"), Options{}), "lib/liba.so", "lib/libb.so", "lib/libd.so")
}

// RPATH goes down to what libraries need, RUNPATH does not.
func TestInheritedRPath(t *testing.T) {
	h := newHost(t)
	h.library("own/liba.so", "libb.so")
	h.library("own/libb.so")
	h.has(h.find(h.program(func(m *image) { m.rpath = h.dir + "/own" }, "liba.so"), Options{}), "own/liba.so", "own/libb.so")
	res := h.find(h.program(func(m *image) { m.runpath = h.dir + "/own" }, "liba.so"), Options{})
	h.has(res, "own/liba.so")
	if last := res.Needs[len(res.Needs)-1]; res.Starts || last.Verdict != NotFound || last.Name != "libb.so" {
		t.Errorf("%+v", res.Needs)
	}
}

// Refused files of the loader: what is found without them, and what is not.
func TestRefusedCache(t *testing.T) {
	h := newHost(t)
	h.library("far/liba.so")
	h.library("lib/libb.so")
	h.put("etc/ld.so.cache", makeCache(nil, cached{"liba.so", h.dir + "/far/liba.so", flags64, 0}, cached{"libb.so", h.dir + "/lib/libb.so", flags64, 0}))
	refuse := Options{Grants: h.refusing("etc/ld.so.cache")}
	if res := h.find(h.program(nil, "libb.so"), refuse); !res.Starts || res.AllGranted() {
		t.Errorf("in a folder of the system: %+v", res.Needs)
	}
	if res := h.find(h.program(nil, "liba.so"), refuse); res.Starts {
		t.Errorf("by the cache alone: %+v", res.Needs)
	}
	h.put("etc/ld.so.cache", []byte("nonsense"))
	res := h.find(h.program(nil, "libb.so"), Options{})
	if !res.Starts || !slices.ContainsFunc(res.Notes, func(n Note) bool { return n.Code == "cache" }) {
		t.Errorf("damaged: %+v", res)
	}
}

// What is preloaded may be refused or absent; what it needs may not.
func TestPreload(t *testing.T) {
	h := newHost(t)
	h.library("p/libp.so", "libq.so")
	h.library("lib/libq.so")
	h.put("etc/ld.so.preload", []byte("# comment\n"+h.dir+"/p/libp.so /none.so\n"))
	app := h.program(nil)
	h.has(h.find(app, Options{Env: []string{"LD_PRELOAD=libq.so:none.so"}}), "lib/libq.so", "p/libp.so")
	for name, starts := range map[string]bool{"p/libp.so": true, "lib/libq.so": false, "etc/ld.so.preload": true} {
		if res := h.find(app, Options{Grants: h.refusing(name)}); res.Starts != starts {
			t.Errorf("without %s: %+v", name, res.Needs)
		}
	}
}

// Libraries of another kind are passed over, damaged ones end the start.
func TestOtherLibraries(t *testing.T) {
	h := newHost(t)
	other := native()
	other.machine = elf.EM_AARCH64
	h.put("one/liba.so", other.bytes())
	h.library("two/liba.so")
	env := []string{"LD_LIBRARY_PATH=" + h.dir + "/one:" + h.dir + "/two"}
	app := h.program(nil, "liba.so")
	h.has(h.find(app, Options{Env: env}), "two/liba.so")
	narrow := native()
	narrow.class = elf.ELFCLASS32
	h.put("one/liba.so", narrow.bytes())
	h.has(h.find(app, Options{Env: env}), "two/liba.so")
	for name, content := range map[string][]byte{"truncated": other.bytes()[:50], "text": []byte("GROUP ( libc.so.6 )")} {
		h.put("one/liba.so", content)
		if res := h.find(app, Options{Env: env}); res.Starts || !strings.Contains(table(res), Unusable) {
			t.Errorf("%s: %s", name, table(res))
		}
	}
	if err := errors.Join(os.Remove(h.dir+"/one/liba.so"), syscall.Mkfifo(h.dir+"/one/liba.so", 0o644)); err != nil {
		t.Fatal(err)
	}
	if res := h.find(app, Options{Env: env}); res.Starts {
		t.Errorf("a named pipe: %s", table(res))
	}
}

// The best subfolder of glibc-hwcaps that the processor has comes first.
func TestProcessorLevels(t *testing.T) {
	v2 := "cx16 lahf_lm popcnt pni sse4_1 sse4_2 ssse3 "
	v3 := v2 + "avx avx2 bmi1 bmi2 f16c fma abm movbe "
	o := &object{class: elf.ELFCLASS64, machine: elf.EM_X86_64}
	for flags, want := range map[string]string{
		"": "", v2: "x86-64-v2", v3: "x86-64-v3 x86-64-v2", v2 + "avx512f": "x86-64-v2",
		v3 + "avx512f avx512bw avx512cd avx512dq avx512vl": "x86-64-v4 x86-64-v3 x86-64-v2",
	} {
		p := parseProcessor("vendor_id\t: GenuineIntel\nflags\t\t: " + flags + "\n\nvendor_id : x\n")
		if got := strings.Join(p.levels(o), " "); got != want {
			t.Errorf("%q: %q, want %q", flags, got, want)
		}
		if got := p.platform(o); (got == "haswell") != strings.HasPrefix(flags, v3) {
			t.Errorf("%q: platform %q", flags, got)
		}
	}
}

// Programs that no policy lets start.
func TestNothingStarts(t *testing.T) {
	h := newHost(t)
	script := func(name, text string) string { return h.put(name, []byte(text)) }
	foreign := native()
	foreign.machine = elf.EM_MIPS
	chain := h.program(nil)
	for i := range maxDepth + 1 {
		chain = script(fmt.Sprint("chain", i), "#!"+chain+"\n")
	}
	pipe := h.dir + "/pipe"
	if err := errors.Join(syscall.Mkfifo(pipe, 0o755), os.Symlink("loop", h.dir+"/loop")); err != nil {
		t.Fatal(err)
	}
	env := h.dir + "/usr/bin/env"
	m := native()
	h.put("usr/bin/env", m.bytes())
	for name, c := range map[string]struct {
		path string
		is   error
	}{
		"a circle of #!":       {script("self", "#!"+h.dir+"/self\n"), syscall.ELOOP},
		"six interpreters":     {chain, syscall.ELOOP},
		"a circle by env":      {script("bin/again", "#!"+env+" again\n"), nil},
		"text without #!":      {script("text", "echo\n"), syscall.ENOEXEC},
		"an empty file":        {script("empty", ""), syscall.ENOEXEC},
		"an empty #! line":     {script("blank", "#! \n/bin/sh"), syscall.ENOEXEC},
		"a long #! line":       {script("long", "#!/"+strings.Repeat("x", 300)+"\n"), syscall.ENOEXEC},
		"a pipe behind #!":     {script("piped", "#!"+pipe+"\n"), errNotRegular},
		"a folder behind #!":   {script("folder", "#!/etc\n"), errNotRegular},
		"a loop behind #!":     {script("looped", "#!"+h.dir+"/loop\n"), syscall.ELOOP},
		"a pipe":               {pipe, errNotRegular},
		"a folder":             {h.dir, errNotRegular},
		"nothing":              {h.dir + "/none", os.ErrNotExist},
		"another architecture": {h.put("foreign", foreign.bytes()), syscall.ENOEXEC},
		"a truncated program":  {h.put("short", m.bytes()[:100]), errDamaged},
	} {
		res, err := Find(c.path, Options{Dir: h.dir, Env: []string{"PATH=" + h.dir + "/bin"}, Grants: everything})
		if !errors.Is(err, ErrCannotStart) || c.is != nil && !errors.Is(err, c.is) {
			t.Errorf("%s: %+v, %v", name, res, err)
		}
	}
	if _, err := Find(chain, Options{Dir: h.dir + "/none", Grants: everything}); !errors.Is(err, ErrCannotStart) {
		t.Errorf("no working directory: %v", err)
	}
	five := strings.TrimSuffix(chain, fmt.Sprint(maxDepth)) + fmt.Sprint(maxDepth-1)
	if res := h.find(five, Options{}); !res.Starts {
		t.Errorf("five interpreters: %s", table(res))
	}
}

// Answers that something is not there.
func TestNotFound(t *testing.T) {
	h := newHost(t)
	h.put("usr/bin/env", native().bytes())
	for name, path := range map[string]string{
		"interpreter": h.put("one", []byte("#!/none/sh\n")),
		"by env":      h.put("two", []byte("#!"+h.dir+"/usr/bin/env none\n")),
		"loader":      h.program(func(m *image) { m.interp = "/none/ld-linux.so.2" }),
	} {
		res := h.find(path, Options{Env: []string{"PATH=/none"}})
		if last := res.Needs[len(res.Needs)-1]; res.Starts || last.Verdict != NotFound || last.Path != "" {
			t.Errorf("%s: %s", name, table(res))
		}
	}
	damaged := h.program(func(m *image) { m.interp = h.put("lib64/ld-linux.so.2", []byte("text")) })
	if res := h.find(damaged, Options{}); res.Starts || !strings.Contains(table(res), Unusable) {
		t.Errorf("damaged loader: %s", table(res))
	}
}

// Where needs cannot be found out, it is said.
func TestUnknown(t *testing.T) {
	h := newHost(t)
	env := h.put("usr/bin/env", native().bytes())
	filter := native()
	filter.filter = "libf.so"
	h.put("lib/liba.so", filter.bytes())
	for code, path := range map[string]string{
		"env-options":    h.put("one", []byte("#!"+env+" -u X sh\n")),
		"unknown-loader": h.put("two", image{class: elf.ELFCLASS64, order: binary.LittleEndian, machine: elf.EM_X86_64, interp: h.put("linker64", native().bytes())}.bytes()),
		"filters":        h.program(nil, "liba.so"),
	} {
		res := h.find(path, Options{})
		if res.Known || !slices.ContainsFunc(res.Notes, func(n Note) bool { return n.Code == code }) {
			t.Errorf("%s: %+v", code, res)
		}
	}
	if os.Geteuid() != 0 {
		path := h.put("secret", native().bytes())
		if err := os.Chmod(path, 0o111); err != nil {
			t.Fatal(err)
		}
		if res := h.find(path, Options{}); res.Known {
			t.Errorf("unreadable: %+v", res)
		}
	}
	if res := h.find(h.program(nil), Options{}); !res.Known {
		t.Errorf("%+v", res)
	}
}

// The words of env's line.
func TestEnvCommand(t *testing.T) {
	for arg, want := range map[string]string{
		"sh": "sh", "-S sh -e": "sh", "-S -i PATH=/x A=b sh": "sh", "-vS sh": "sh", "--split-string=sh -c x": "sh", "sh -e": "sh -e",
		"-S": "", "-i": "", "-S 'a b'": "", "-S ${X}": "", "-u X sh": "", "A=b": "",
	} {
		env := []string{"PATH=/before"}
		name, ok := envCommand(arg, &env)
		if name != want || ok != (want != "") {
			t.Errorf("%q: %q, %v", arg, name, ok)
		}
		if strings.Contains(arg, "PATH=") && pathOf(env) != "/x" {
			t.Errorf("%q: PATH %q", arg, pathOf(env))
		}
	}
}

// What cannot be followed to its end gets no answer; a decision that fails is an error.
func TestBounds(t *testing.T) {
	h := newHost(t)
	var names []string
	for i := range maxNeeded {
		names = append(names, fmt.Sprintf("libnone%d.so", i))
	}
	for i := range 5 {
		m := native()
		m.soname = fmt.Sprintf("lib%d.so", i)
		for _, n := range names[5:] {
			m.needed = append(m.needed, fmt.Sprint(i, n))
		}
		h.put(fmt.Sprintf("lib/lib%d.so", i), m.bytes())
	}
	for _, o := range []struct{ path, needed string }{{"/x", "lib0.so lib1.so lib2.so lib3.so lib4.so"}, {strings.Repeat("/x:", maxSearchDirs+5), "libnone.so"}} {
		env := []string{"LD_LIBRARY_PATH=" + o.path}
		if _, err := Find(h.program(nil, strings.Fields(o.needed)...), Options{Dir: h.dir, Env: env, Grants: everything}); !errors.Is(err, errTooMany) {
			t.Errorf("%s: %v", o.needed, err)
		}
	}
	broken := errors.New("broken")
	_, err := Find(h.program(nil), Options{Dir: h.dir, Grants: func(string, profile.Access) ([]Refusal, error) { return nil, broken }})
	if !errors.Is(err, broken) {
		t.Errorf("%v", err)
	}
}
