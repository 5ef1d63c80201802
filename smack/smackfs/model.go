package smackfs

import (
	"io"
	"os"
	"slices"
	"sync"

	"golang.org/x/sys/unix"
)

// ModelKernel is what differs between the kernels a [Model] can be.
type ModelKernel struct {
	Bringup bool // CONFIG_SECURITY_SMACK_BRINGUP: b allows, the file unconfined exists
	Old     bool // 6.1: doi, direct and mapped are parsed less strictly
}

// Model is a smackfs in memory with the kernel's semantics, odd ones included, and no checks of its own. Its methods
// may be called from many goroutines.
type Model struct {
	kernel ModelKernel

	mu     sync.Mutex
	known  []*modelLabel // oldest first
	byName map[string]*modelLabel
	secid  uint32

	direct, mapped int
	doi            uint64
	ambient        *modelLabel
	onlycap        []*modelLabel // as written; shown in reverse
	unconfined     *modelLabel   // nil: none
	syslog         *modelLabel   // nil: shown as *
	logging        int
	ptrace         int
	net4           []*modelNet4 // longest mask first
	net6           []*modelNet6

	rulesMade int

	uses map[*modelFS]int // how often each process wrote a file of rules, or closed one it could write
}

type modelLabel struct {
	name  string
	rules modelRules
	level int
	cats  []byte // bit 0x80 of byte 0 is category 1
}

// modelRules are in the order they were made; a rule is never removed.
type modelRules struct {
	list  []*modelRule
	index map[[2]*modelLabel]*modelRule
}

type modelRule struct {
	subject, object *modelLabel
	access          uint8
}

// Caller is a process as smackfs sees it. The zero value is one without any privilege; its label is "_" if empty.
type Caller struct {
	Label    string
	Root     bool // may write files that only their owner may (CAP_DAC_OVERRIDE or uid 0)
	MacAdmin bool // has CAP_MAC_ADMIN
}

// Root is the caller that most tests want.
var Root = Caller{Label: "_", Root: true, MacAdmin: true}

// NewModel makes a smackfs as it is after boot.
func NewModel(k ModelKernel) *Model {
	m := &Model{
		kernel: k, byName: map[string]*modelLabel{}, secid: 2,
		direct: 250, mapped: 251, doi: 3, logging: 1, uses: map[*modelFS]int{},
	}
	for _, name := range []string{"?", "^", "*", "_", "@"} {
		m.insert(name)
	}
	m.secid = 10
	m.ambient = m.byName["_"]
	return m
}

// As gives the smackfs one process sees: rules and labels of load-self, load-self2 and relabel-self are its own.
func (m *Model) As(c Caller) FS {
	if c.Label == "" {
		c.Label = "_"
	}
	return &modelFS{m: m, caller: c}
}

// Open opens a file as [Root]; each call is by a process of its own.
func (m *Model) Open(name string, flag int) (File, error) { return m.As(Root).Open(name, flag) }

// Sizes gives how many labels and rules the kernel holds memory for; neither is ever freed.
func (m *Model) Sizes() (labels, rules int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.known), m.rulesMade
}

type modelFS struct {
	m       *Model
	caller  Caller
	self    modelRules
	relabel []*modelLabel
}

// privileged is smack_privileged(CAP_MAC_ADMIN).
func (fs *modelFS) privileged() bool {
	if !fs.caller.MacAdmin {
		return false
	}
	for _, l := range fs.m.onlycap {
		if l.name == fs.caller.Label {
			return true
		}
	}
	return len(fs.m.onlycap) == 0
}

// modelOps is one file of the model. Both functions run under the model's lock. write returns the count or an errno;
// pos is the file's offset, which a write never moves.
type modelOps struct {
	anyone bool // mode 0666
	write  func(fs *modelFS, f *modelFile, p []byte) (int, error)
	// read gives the whole of the file; nul files are refused to a buffer that does not hold them whole
	read func(fs *modelFS) []byte
	nul  bool
}

func (fs *modelFS) Open(name string, flag int) (File, error) {
	fs.m.mu.Lock()
	defer fs.m.mu.Unlock()
	ops, ok := modelFiles[name]
	if !ok || (name == fileUnconf && !fs.m.kernel.Bringup) {
		return nil, &os.PathError{Op: "open", Path: name, Err: unix.ENOENT}
	}
	if flag&unix.O_ACCMODE != unix.O_RDONLY && !ops.anyone && !fs.caller.Root {
		return nil, &os.PathError{Op: "open", Path: name, Err: unix.EACCES}
	}
	return &modelFile{fs: fs, name: name, ops: ops, flag: flag}, nil
}

// used counts for those who watch.
func (fs *modelFS) used(name string) {
	if slices.Contains(ruleFiles, name) {
		fs.m.uses[fs]++
	}
}

// watchRules tells of the other processes, those of [Model.Open] among them. Only root may watch.
func (fs *modelFS) watchRules() (watch, error) {
	if !fs.caller.Root {
		return nil, unix.EPERM
	}
	w := &modelWatch{fs: fs}
	w.quiet()
	return w, nil
}

type modelWatch struct {
	fs   *modelFS
	seen int
}

func (w *modelWatch) quiet() bool {
	w.fs.m.mu.Lock()
	defer w.fs.m.mu.Unlock()
	n := 0
	for fs, uses := range w.fs.m.uses {
		if fs != w.fs {
			n += uses
		}
	}
	quiet := n == w.seen
	w.seen = n
	return quiet
}

func (w *modelWatch) close() {}

type modelFile struct {
	fs   *modelFS
	name string
	ops  *modelOps
	flag int

	pos    int
	closed bool
	text   []byte // what is being read, from the first read on
	taken  bool   // an access transaction was begun
}

func (f *modelFile) Read(p []byte) (int, error) {
	f.fs.m.mu.Lock()
	defer f.fs.m.mu.Unlock()
	switch {
	case f.closed || f.flag&unix.O_ACCMODE == unix.O_WRONLY:
		return 0, &os.PathError{Op: "read", Path: f.name, Err: unix.EBADF}
	case len(p) == 0:
		return 0, nil
	}
	if f.pos == 0 && f.ops.read != nil {
		f.text = f.ops.read(f.fs)
		if f.ops.nul && len(p) < len(f.text) {
			return 0, &os.PathError{Op: "read", Path: f.name, Err: unix.EINVAL}
		}
	}
	if f.pos >= len(f.text) {
		return 0, io.EOF
	}
	n := copy(p, f.text[f.pos:])
	f.pos += n
	return n, nil
}

func (f *modelFile) Write(p []byte) (int, error) {
	f.fs.m.mu.Lock()
	defer f.fs.m.mu.Unlock()
	if f.closed || f.flag&unix.O_ACCMODE == unix.O_RDONLY {
		return 0, &os.PathError{Op: "write", Path: f.name, Err: unix.EBADF}
	}
	f.fs.used(f.name)
	n, err := f.ops.write(f.fs, f, p)
	if err != nil {
		return 0, &os.PathError{Op: "write", Path: f.name, Err: err}
	}
	return n, nil
}

func (f *modelFile) Close() error {
	f.fs.m.mu.Lock()
	defer f.fs.m.mu.Unlock()
	if f.closed {
		return &os.PathError{Op: "close", Path: f.name, Err: os.ErrClosed}
	}
	f.closed = true
	if f.flag&unix.O_ACCMODE != unix.O_RDONLY {
		f.fs.used(f.name)
	}
	return nil
}

// modelFiles is filled in init, since the operations refer to it.
var modelFiles map[string]*modelOps

func init() {
	modelFiles = map[string]*modelOps{
		fileLoad:     {write: writeLoad, read: showRules(oldLabelLen)},
		fileLoad2:    {write: writeLoad2, read: showRules(maxLabel + 1)},
		fileSelf:     {anyone: true, write: writeSelf, read: showSelf(oldLabelLen)},
		fileSelf2:    {anyone: true, write: writeSelf2, read: showSelf(maxLabel + 1)},
		fileChange:   {write: writeChange},
		fileRevoke:   {write: writeRevoke},
		fileAccess:   {anyone: true, write: writeAccess},
		fileAccess2:  {anyone: true, write: writeAccess2},
		fileCipso:    {write: writeCipso, read: showCipso(oldLabelLen)},
		fileCipso2:   {write: writeCipso2, read: showCipso(maxLabel + 1)},
		fileNetlabel: {write: writeNet4, read: showNet4},
		fileIPv6:     {write: writeNet6, read: showNet6},
		fileDoi:      {write: writeDoi, read: showDoi},
		fileDirect:   {write: writeLevel(directOf), read: showLevel(directOf)},
		fileMapped:   {write: writeLevel(mappedOf), read: showLevel(mappedOf)},
		fileAmbient:  {write: writeAmbient, read: showAmbient, nul: true},
		fileOnlycap:  {write: writeOnlycap, read: showOnlycap},
		fileRelabel:  {anyone: true, write: writeRelabel, read: showRelabel},
		fileUnconf:   {write: writeUnconfined, read: showUnconfined, nul: true},
		fileSyslog:   {write: writeSyslog, read: showSyslog, nul: true},
		fileLogging:  {write: writeSmall(loggingOf, 3, false), read: showSmall(loggingOf)},
		filePtrace:   {write: writeSmall(ptraceOf, 2, true), read: showSmall(ptraceOf)},
	}
}
