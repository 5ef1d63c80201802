package profile

import "syscall"

// Question is one request that an operation comes down to, with its answer.
type Question struct {
	Kind     Kind
	Path     string // Kind FS: the object asked for, the parent of what is made or removed
	Port     uint16 // Kind Net
	Request  Access
	Decision Decision
}

// Answer is what Landlock says of an [Operation]. It is what Landlock says
// alone: the file system's own errors (ENOENT, EISDIR ...) may come first or
// after, and permission bits are another matter.
type Answer struct {
	Verdict Verdict
	// Errno the operation fails with, 0 unless denied.
	Errno syscall.Errno

	// Created: the denied open made the file all the same. The kernel asks for
	// make_reg first, and only when the new file is opened for the other rights.
	Created bool

	// Optional are the rights an opened file keeps for later, of truncate
	// (ftruncate(2)) and ioctl_dev: decided at open, whatever comes after.
	Optional Access

	// Questions in the order the kernel asks them, [:Asked]. A denial ends it,
	// so the last one is the reason. Not used for OpRename, OpExchange, OpLink.
	Questions [2]Question
	Asked     int

	// Move is the answer for OpRename, OpExchange and OpLink.
	Move MoveDecision
}

// Decide tells what the kernel answers to an operation. It asks as the kernel's
// hooks do (hook_file_open, hook_path_mknod, hook_unix_find, hook_socket_connect
// ...). Errno is EINVAL for no question (a path that is not clean, an unknown
// kind), ENOENT for a move of nothing. It allocates nothing.
func (p *Profile) Decide(op Operation, f Facts) Answer {
	return decideOperation(p, p, &op, &f, pathSpots(op.Path, op.NewPath))
}

// Decide answers as [Profile.Decide].
func (ix *Index) Decide(op Operation, f Facts) Answer {
	return decideOperation(ix.p, ix, &op, &f, pathSpots(op.Path, op.NewPath))
}

// asker asks the questions of one operation. The answer is not in it: beside an
// interface whose methods are called it would be moved to the heap.
type asker struct {
	p  *Profile
	w  walker
	at spots
}

func decideOperation(p *Profile, w walker, op *Operation, f *Facts, at spots) (a Answer) {
	a.Verdict = NotMediated
	q := asker{p: p, w: w, at: at}
	if f.Internal && op.Kind.asksObject() {
		a.Optional = FSTruncate | FSIoctlDev // kept with the file as granted
		return a
	}
	switch op.Kind {
	case OpOpen:
		q.open(&a, op, f, op.Open&OpenCreate != 0 && f.Type == NoFile)
	case OpIoctlDev:
		q.open(&a, op, f, false)
		if a.Verdict == Allow && a.Optional&FSIoctlDev == 0 {
			q.object(&a, FSIoctlDev)
		}
	case OpRename, OpExchange, OpLink:
		q.move(&a, op, f)
	case OpConnectUnix:
		q.connectUnix(&a, f.Shared)
	case OpBindTCP:
		q.port(&a, op.Port, NetBindTCP)
	case OpConnectTCP:
		q.port(&a, op.Port, NetConnectTCP)
	case OpBindUDP:
		q.port(&a, op.Port, NetBindUDP)
	case OpConnectUDP, OpSendUDP:
		if q.port(&a, op.Port, NetConnectSendUDP) && !f.Bound {
			q.port(&a, 0, NetBindUDP)
		}
	case OpSignal:
		if !f.SameProcess {
			q.scope(&a, ScopeSignal, f.Shared)
		}
	case OpAbstractUnix:
		q.scope(&a, ScopeAbstractUnixSocket, f.Shared)
	case OpMount:
		q.mount(&a)
	case OpStat, OpSetAttributes:
	default:
		q.simple(&a, op)
	}
	return a
}

// simple asks one right of one path.
func (q *asker) simple(a *Answer, op *Operation) {
	switch op.Kind {
	case OpExec:
		// The kernel opens it to read, and to execute.
		q.object(a, FSReadFile|FSExecute)
	case OpTruncate:
		q.object(a, FSTruncate)
	case OpMkdir:
		q.parent(a, FSMakeDir)
	case OpMknod:
		q.parent(a, op.Make.makeRight())
	case OpSymlink:
		q.parent(a, FSMakeSym)
	case OpUnlink:
		q.parent(a, FSRemoveFile)
	case OpRmdir:
		q.parent(a, FSRemoveDir)
	default:
		a.Verdict, a.Errno = Deny, syscall.EINVAL
	}
}

// open asks what open(2) does. The rights to truncate and to use ioctl are
// looked up with the others and kept with the file; the kernel refuses only
// when they are used, which O_TRUNC does at once.
func (q *asker) open(a *Answer, op *Operation, f *Facts, created bool) {
	if op.Open&OpenPath != 0 {
		return
	}
	if created && !q.parent(a, FSMakeReg) {
		return
	}
	var req Access
	if op.Open&OpenRead != 0 {
		req |= FSReadFile
	}
	if op.Open&OpenWrite != 0 {
		req |= FSWriteFile
	}
	if f.Type == Directory {
		req = FSReadDir
	}
	optional := FSTruncate
	if f.Type == CharDevice || f.Type == BlockDevice {
		optional |= FSIoctlDev
	}
	if req == 0 || !q.at.object.ok {
		q.object(a, 0)
		return
	}
	left := q.w.unfulfilled(q.at.object, req|optional)
	a.Optional = optional &^ union(&left)
	if op.Open&OpenTruncate != 0 && f.Type == RegularFile {
		req |= FSTruncate // O_TRUNC of what was just made, or is no regular file, is nothing
	}
	left = onlyRights(left, req|QuietRule)
	if !a.add(&Question{Kind: FS, Path: q.at.object.path, Request: req, Decision: q.p.decide(FS, left)}) {
		a.Created, a.Optional = created, 0
	}
}

// connectUnix asks for resolve_unix in the layers that whoever made the socket
// is not under.
func (q *asker) connectUnix(a *Answer, shared int) {
	if !q.at.object.ok {
		q.object(a, 0)
		return
	}
	left := q.w.unfulfilled(q.at.object, FSResolveUnix)
	for l := range left.slice() {
		if l < shared {
			left.slice()[l] = 0
		}
	}
	a.add(&Question{Kind: FS, Path: q.at.object.path, Request: FSResolveUnix, Decision: q.p.decide(FS, left)})
}

func (q *asker) move(a *Answer, op *Operation, f *Facts) {
	mv := Move{Op: Rename, Old: op.Path, New: op.NewPath, OldType: f.Type, NewType: f.NewType, Mounted: f.Mounted}
	switch op.Kind {
	case OpExchange:
		mv.Op = Exchange
	case OpLink:
		mv.Op = Link
	}
	a.Move = decideMove(q.p, q.w, &mv, q.at)
	a.Verdict, a.Errno = Allow, a.Move.Errno
	if !a.Move.Allowed {
		a.Verdict = Deny
	}
}

// mount is refused by any layer that handles any fs right, whatever its rules.
func (q *asker) mount(a *Answer) {
	d := Decision{Allowed: true, Unfulfilled: newMasks(len(q.p.Layers))}
	for l := range q.p.Layers {
		if fs := q.p.Layers[l].FS; fs != 0 {
			d.Unfulfilled.slice()[l] = fs
			d.Allowed, d.Errno = false, syscall.EPERM
		}
	}
	a.add(&Question{Kind: FS, Decision: d})
}

// parent asks for a right to make or remove the object.
func (q *asker) parent(a *Answer, req Access) bool {
	if !q.at.parent.ok {
		return q.object(a, 0)
	}
	return q.spot(a, q.at.parent, req)
}

// object asks for rights on the object itself.
func (q *asker) object(a *Answer, req Access) bool { return q.spot(a, q.at.object, req) }

// spot asks for rights; none are no question.
func (q *asker) spot(a *Answer, at spot, req Access) bool {
	d := badQuestion(len(q.p.Layers))
	if req != 0 && at.ok {
		d = q.p.decide(FS, q.w.unfulfilled(at, req))
	}
	return a.add(&Question{Kind: FS, Path: at.path, Request: req, Decision: d})
}

func (q *asker) port(a *Answer, port uint16, req Access) bool {
	return a.add(&Question{Kind: Net, Port: port, Request: req, Decision: q.p.DecidePort(port, req)})
}

func (q *asker) scope(a *Answer, req Access, shared int) {
	a.add(&Question{Kind: Scope, Request: req, Decision: q.p.DecideScope(req, shared)})
}

// add notes a question and tells whether to go on.
func (a *Answer) add(question *Question) bool {
	a.Questions[a.Asked] = *question
	a.Asked++
	a.Errno = question.Decision.Errno
	a.Verdict = Deny
	if question.Decision.Allowed {
		a.Verdict = Allow
	}
	return question.Decision.Allowed
}
