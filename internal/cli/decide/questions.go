package decide

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"policyd.dev/policyd/enforce/profile"
)

// ErrQuestion is returned for a question that is none.
var ErrQuestion = errors.New("want `open PATH r|w|rw`, `exec PATH`, `bind tcp|udp PORT` or `connect tcp|udp PORT`")

// Question is a question that was understood.
type Question func(*Decider) (*Verdict, error)

// Parse reads a question given as words. Errors wrap ErrQuestion.
func Parse(words []string) (Question, error) {
	bad := fmt.Errorf("%q: %w", strings.Join(words, " "), ErrQuestion)
	switch {
	case len(words) == 2 && words[0] == "exec":
		return func(d *Decider) (*Verdict, error) { return d.Exec(words[1]) }, nil
	case len(words) == 3 && words[0] == "open":
		if m := words[2]; m != "r" && m != "w" && m != "rw" {
			return nil, fmt.Errorf("mode %q: %w", m, ErrQuestion)
		}
		return func(d *Decider) (*Verdict, error) { return d.Open(words[1], words[2]) }, nil
	case len(words) == 3 && (words[0] == "bind" || words[0] == "connect"):
		req, ok := map[string]profile.Access{
			"bind tcp": profile.NetBindTCP, "connect tcp": profile.NetConnectTCP,
			"bind udp": profile.NetBindUDP, "connect udp": profile.NetConnectSendUDP,
		}[words[0]+" "+words[1]]
		if !ok {
			return nil, fmt.Errorf("protocol %q: %w", words[1], ErrQuestion)
		}
		port, err := strconv.ParseUint(words[2], 10, 16)
		if err != nil {
			return nil, fmt.Errorf("port %q: want 0 to 65535: %w", words[2], ErrQuestion)
		}
		return func(d *Decider) (*Verdict, error) {
			return verdict(strings.Join(words, " "), []*Check{d.port(uint16(port), req)}), nil
		}, nil
	}
	return nil, bad
}

// Open asks whether path can be opened with mode "r", "w" or "rw": the kernel's
// get_required_file_open_access. A path that does not exist is decided as the
// file it would be; creating it needs make_reg on its folder besides.
func (d *Decider) Open(path, mode string) (*Verdict, error) {
	question := strings.Join([]string{"open", path, mode}, " ")
	real, dir, exists, err := resolve(path)
	if err != nil {
		return nil, err
	}
	if dir {
		if mode != "r" {
			return nil, fmt.Errorf("open %s for writing, whatever the policy says: %w", path, syscall.EISDIR)
		}
		return verdict(question, []*Check{d.path("directory", path, real, profile.FSReadDir)}), nil
	}
	var req profile.Access
	if strings.Contains(mode, "r") {
		req |= profile.FSReadFile
	}
	if strings.Contains(mode, "w") {
		req |= profile.FSWriteFile
	}
	var notes []string
	if !exists {
		notes = append(notes, real+" does not exist: decided as for a file of that name; to create it needs make_reg on its folder")
	}
	return verdict(question, []*Check{d.path("file", path, real, req)}, notes...), nil
}

// Exec asks whether path can be executed. The kernel opens the program, the
// interpreter of its #! line and that of its ELF header, each for reading and
// executing.
func (d *Decider) Exec(path string) (*Verdict, error) {
	question := "exec " + path
	real, dir, exists, err := resolve(path)
	if err != nil {
		return nil, err
	}
	if !exists {
		return nil, fmt.Errorf("%s: %w", path, fs.ErrNotExist)
	}
	if dir {
		return nil, fmt.Errorf("execute %s: %w", path, syscall.EISDIR)
	}
	const req = profile.FSExecute | profile.FSReadFile
	checks := []*Check{d.path("program", path, real, req)}
	var notes []string
	for depth := 0; checks[len(checks)-1].Allowed; depth++ {
		next, err := interpreter(real)
		if err != nil {
			notes = append(notes, fmt.Sprintf("%s was not looked into for an interpreter: %v", real, err))
			break
		}
		if next == "" {
			break
		}
		if depth == maxInterpreters {
			return nil, fmt.Errorf("%s: more than %d interpreters, the kernel says ELOOP", path, maxInterpreters)
		}
		object := next
		if real, _, exists, err = resolve(next); err != nil || !exists {
			return nil, fmt.Errorf("interpreter %s: %w", next, errors.Join(err, fs.ErrNotExist))
		}
		checks = append(checks, d.path("interpreter", object, real, req))
	}
	notes = append(notes, "shared libraries need read_file and are not looked at")
	return verdict(question, checks, notes...), nil
}

// resolve makes a path absolute and follows its symbolic links. For one that
// does not exist the folder is resolved and the last name kept.
func resolve(path string) (real string, dir, exists bool, err error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return "", false, false, err
	}
	real, err = filepath.EvalSymlinks(abs)
	if err == nil {
		_, dir, err = look(real)
		return real, dir, true, err
	}
	if !isMissing(err) {
		return "", false, false, err
	}
	folder, err := filepath.EvalSymlinks(filepath.Dir(abs))
	if err != nil {
		return "", false, false, err
	}
	return filepath.Join(folder, filepath.Base(abs)), false, false, nil
}
