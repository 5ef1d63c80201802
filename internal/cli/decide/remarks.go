package decide

import (
	"path"
	"slices"
	"sort"
	"strings"

	"policyd.dev/policyd/enforce/profile"
)

// remark adds the notes that depend on the answer as a whole.
func (x *inquiry) remark() {
	k := x.op.Kind
	denied := x.a.Verdict == Deny
	switch {
	case x.q.op.Open&profile.OpenPath != 0:
		x.a.note(noteOpenPath, "O_PATH is not mediated: no policy can refuse it; what is done with the descriptor is")
	case x.a.Verdict == NotMediated:
		x.a.note(noteNotMediated, "Landlock is not asked about %s: no policy can refuse it", x.q.word)
	case x.q.op.Path != "":
		x.remarkPaths(denied)
	case k == profile.OpMount && denied:
		x.a.note(noteTopology, "a layer with any fs right refuses to change mounts, and no rule can allow it")
	case k == profile.OpMount:
		x.a.note(noteNotHandled, "no layer handles an fs right: nothing refuses to change mounts")
	case k != profile.OpSignal && k != profile.OpAbstractUnix:
		x.remarkPort(denied)
	}
}

// remarkPort adds what is special about ports.
func (x *inquiry) remarkPort(denied bool) {
	k, port := x.op.Kind, x.op.Port
	if port == 0 && (k == profile.OpBindTCP || k == profile.OpBindUDP) {
		x.a.note(notePortZero, "port 0 asks for any free port; a rule for it is no wildcard for others")
	}
	if (k == profile.OpConnectUDP || k == profile.OpSendUDP) && slices.ContainsFunc(x.d.p.Layers, func(l profile.Layer) bool { return l.Net&profile.NetBindUDP != 0 }) {
		x.a.note(noteUDPAutobind, "decided as for a socket without a local port: it is bound to any, which asks for bind_udp on port 0")
	}
	if !denied {
		return
	}
	if (k == profile.OpBindTCP || k == profile.OpConnectTCP) && x.d.mended(errataTCP) {
		x.a.note(noteMPTCP, "only TCP is refused: MPTCP, SCTP and others are not covered by this right")
	}
	var asked, other profile.Access
	code := noteConnectNotBind
	switch k {
	case profile.OpBindTCP:
		x.a.note(noteListen, "listen(2) without bind(2) takes a free port and is not refused")
		asked, other = profile.NetBindTCP, profile.NetConnectTCP
	case profile.OpBindUDP:
		asked, other = profile.NetBindUDP, profile.NetConnectSendUDP
	case profile.OpConnectTCP:
		asked, other, code = profile.NetConnectTCP, profile.NetBindTCP, noteBindNotConnect
	case profile.OpConnectUDP, profile.OpSendUDP:
		asked, other, code = profile.NetConnectSendUDP, profile.NetBindUDP, noteBindNotConnect
	}
	for _, m := range x.d.walkPort(port, other).met {
		for l, a := range m.cleared {
			if a != 0 && x.denies(x.d.p.Layers[l].Name) {
				x.a.note(code, "layer %s grants %s %d; was %s meant?", x.d.p.Layers[l].Name, profile.Net.Format(other), port, profile.Net.Format(asked))
			}
		}
	}
}

func (x *inquiry) denies(layer string) bool {
	return slices.ContainsFunc(x.a.Layers, func(l Layer) bool { return l.Name == layer })
}

// remarkPaths adds what is special about files.
func (x *inquiry) remarkPaths(denied bool) {
	if x.d.opt.Lexical {
		x.a.note(noteLexical, "decided on the text of paths: symbolic links, hard links and bind mounts were not looked at")
	}
	objects := []struct {
		given string
		found *found
	}{{x.q.op.Path, &x.old}, {x.q.op.NewPath, &x.new}}
	for _, o := range objects {
		if o.given == "" || x.op.Kind == profile.OpExec && o.found.real == "" {
			continue
		}
		if !x.d.opt.Lexical {
			x.remarkBinding(o.given, o.found.real)
			if link := ownLink(x.path(o.given)); link != "" {
				x.a.note(noteOwnLink, "%s leads through %s: decided for where it leads in policyctl; in the program it leads elsewhere", o.given, link)
			}
		}
		if denied {
			x.remarkFileRights(o.found)
		}
	}
	if !x.d.opt.Lexical {
		x.remarkSymlinks(denied)
	}
	if !denied {
		x.remarkReplaceable()
		return
	}
	switch x.op.Kind {
	case profile.OpOpen:
		x.a.note(noteInherited, "a file that is open already, inherited or received from another process, stays usable")
	case profile.OpIoctlDev:
		x.a.note(noteInherited, "a device that is open already, a terminal say, stays usable")
		x.a.note(noteIoctl, "commands that are not about the device (FIOCLEX, FIONBIO and the like) are never refused")
	case profile.OpConnectUnix:
		x.a.note(noteOwnSocket, "decided as for a socket made outside of the sandbox; those made inside can be reached")
	}
}

// path is a path of the question, absolute.
func (x *inquiry) path(given string) string {
	abs, err := x.d.absolute(given)
	if err != nil {
		return ""
	}
	return abs
}

// clean is a path of the question as its text says it, absolute.
func (x *inquiry) clean(given string) string {
	if abs := x.path(given); abs != "" {
		return path.Clean(abs)
	}
	return ""
}

// remarkSymlinks tells where symbolic links led, and when that is why.
func (x *inquiry) remarkSymlinks(denied bool) {
	text := x.op
	text.Path = x.clean(x.q.op.Path)
	moved := text.Path != x.old.real
	if x.op.Kind == profile.OpExec && len(x.programs) > 0 {
		last := x.programs[len(x.programs)-1]
		text.Path, moved = x.clean(last.given), x.clean(last.given) != last.real
		for _, p := range x.programs {
			x.noteLink(p.given, p.real)
		}
	} else {
		x.noteLink(x.q.op.Path, x.old.real)
	}
	if x.q.op.NewPath != "" {
		text.NewPath = x.clean(x.q.op.NewPath)
		moved = moved || text.NewPath != x.new.real
		x.noteLink(x.q.op.NewPath, x.new.real)
	}
	if denied && moved && x.d.p.Decide(text, x.facts).Verdict == profile.Allow {
		x.a.note(noteSymlinkOut, "the path as written is granted, but what it leads to is not; grant %s", strings.Trim(x.op.Path+" "+x.op.NewPath, " "))
	}
}

func (x *inquiry) noteLink(given, real string) {
	if c := x.clean(given); c != "" && real != "" && c != real {
		x.a.note(noteSymlink, "%s is %s", given, real)
	}
}

// remarkBinding looks at the rules that by their text stand on the way but are
// bound to something else, or to nothing.
func (x *inquiry) remarkBinding(given, real string) {
	seen := ""
	for _, start := range []string{x.clean(given), real} {
		if start == "" || start == seen {
			continue
		}
		seen = start
		for at := start; at != ""; at = parent(at) {
			row := sort.Search(len(x.d.p.Paths), func(i int) bool { return x.d.p.Paths[i].Path >= at })
			if row == len(x.d.p.Paths) || x.d.p.Paths[row].Path != at {
				continue
			}
			now, err := lookAt(at, true)
			holds := false
			if err == nil {
				var rows []bound
				rows, err = x.d.on(at, now)
				holds = slices.ContainsFunc(rows, func(b bound) bool { return b.row == row })
			}
			switch {
			case holds:
			case slices.Contains(x.d.Skipped, at):
				x.a.note(noteSkippedRule, "the rule on %s is left out: the path did not exist when rules were bound (missing: skip)", at)
			case err == nil:
				x.a.note(noteStaleRule, "the rule on %s is bound to what was there before, which is another inode now; the rule does not hold for it", at)
			}
		}
	}
}

// remarkFileRights looks for missing rights in rules on the file itself, where
// they do not count.
func (x *inquiry) remarkFileRights(f *found) {
	if f.kind == profile.Directory || f.real == "" {
		return
	}
	var rows []bound
	if x.d.opt.Lexical {
		row := sort.Search(len(x.d.p.Paths), func(i int) bool { return x.d.p.Paths[i].Path >= f.real })
		if row < len(x.d.p.Paths) && x.d.p.Paths[row].Path == f.real {
			rows = []bound{{row: row}}
		}
	} else {
		rows, _ = x.d.on(f.real, f.object)
	}
	for _, b := range rows {
		for l := range x.d.p.Layers {
			dropped := x.d.p.Paths[b.row].Access[l] &^ profile.FileRights(profile.MaxABI) &^ profile.QuietRule
			for _, right := range names(profile.FS, dropped) {
				if i := slices.IndexFunc(x.a.Layers, func(d Layer) bool { return d.Name == x.d.p.Layers[l].Name }); i >= 0 && slices.Contains(x.a.Layers[i].Missing, right) {
					x.a.note(noteFileRights, "the rule on %s grants %s in layer %s, but that right counts on a directory: it is dropped on a file", x.d.p.Paths[b.row].Path, right, x.d.p.Layers[l].Name)
				}
			}
		}
	}
}

// remarkReplaceable warns of rules on files that programs may replace, and
// tells of rules that hold by another name of the object.
func (x *inquiry) remarkReplaceable() {
	for i := range x.granted {
		m := &x.granted[i]
		for _, b := range m.rows {
			name := x.d.p.Paths[b.row].Path
			if name != m.at {
				if f, err := resolve(name, true); err == nil && f.real != m.at {
					x.a.note(noteSharedInode, "the rule on %s holds for %s: they are one inode", name, m.at)
				}
			}
		}
		file := m.at == x.op.Path && x.facts.Type != profile.Directory && m.at != "/"
		const replace = profile.FSMakeReg | profile.FSRemoveFile
		if file && len(m.rows) > 0 && x.rules.p.DecidePath(parent(m.at), replace).Allowed {
			x.a.note(noteReplaceable, "the rule on %s is bound to the file that is there at start, and the policy lets programs replace it: a new file of that name is not covered; grant %s instead", m.at, parent(m.at))
		}
	}
}

// unknownRights notes rights that are asked but that nothing refuses.
func (x *inquiry) unknownRights(kind profile.Kind, req profile.Access) {
	var handled, given profile.Access
	for l := range x.d.p.Layers {
		handled |= x.d.handled(kind, l)
	}
	if req&^handled == 0 {
		return
	}
	for l := range x.d.given.Layers {
		given |= handledBy(x.d.given, kind, l)
	}
	for _, r := range profile.Rights() {
		switch {
		case r.Kind != kind || req&r.Bit == 0 || handled&r.Bit != 0:
		case given&r.Bit != 0:
			x.a.note(noteNotEnforced, "%s is not enforced on a kernel of ABI %d, only from ABI %d (linux %s) on: nothing refuses it", r.Name, x.d.opt.ABI, r.ABI, profile.KernelOf(r.ABI))
		case r.ABI > x.d.given.ABI:
			x.a.note(noteNotHandled, "no layer handles %s: nothing refuses it; the policy is written for ABI %d, the right is of ABI %d (linux %s)", r.Name, x.d.given.ABI, r.ABI, profile.KernelOf(r.ABI))
		default:
			x.a.note(noteNotHandled, "no layer handles %s: nothing refuses it", r.Name)
		}
	}
}
