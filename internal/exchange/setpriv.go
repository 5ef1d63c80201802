package exchange

import (
	"strings"

	"policyd.dev/policyd/enforce/profile"
)

// setprivABI is the newest ABI that setpriv knows.
const setprivABI = 10

// setprivOptions tells which long options of setpriv have a value.
var setprivOptions = map[string]bool{
	"--landlock-access": true, "--landlock-rule": true,
	"--nnp": false, "--no-new-privs": false, "-d": false, "--dump": false, "--clear-groups": false, "--keep-groups": false,
	"--init-groups": false, "--reset-env": false, "--list-caps": false,
	"--ambient-caps": true, "--inh-caps": true, "--bounding-set": true, "--ruid": true, "--euid": true, "--rgid": true, "--egid": true,
	"--reuid": true, "--regid": true, "--groups": true, "--securebits": true, "--pdeathsig": true, "--ptracer": true,
	"--selinux-label": true, "--apparmor-profile": true, "--seccomp-filter": true,
}

// setpriv reads a command line of setpriv.
func (r *report) setpriv(files []File, o Options) []*draft {
	args, at, ok := r.commandLine(files[0], "setpriv")
	if !ok {
		return nil
	}
	opts, _, ok := r.options(args, setprivOptions)
	if !ok {
		return nil
	}
	if o.ABI > setprivABI {
		r.errorf(at, codeBadABI, "setpriv knows Landlock up to ABI %d", setprivABI)
		return nil
	}
	l := &draftLayer{name: "setpriv"}
	d := &draft{name: defaultName, abi: o.ABI, layers: []*draftLayer{l}}
	for _, opt := range opts {
		switch opt.name {
		case "--landlock-access":
			r.setprivAccess(l, opt, o.ABI)
		case "--landlock-rule", "--nnp", "--no-new-privs":
		default:
			r.remarkf(opt.at, "%s is no part of a policy", opt.name)
		}
	}
	for _, opt := range opts {
		if opt.name == "--landlock-rule" {
			r.setprivRule(l, opt, o.Base)
		}
	}
	if l.fs|l.net|l.scope == 0 && len(r.errors) == 0 {
		r.errorf(at, codeHandlesNothing, "there is no --landlock-access: nothing is handled, so a program would not be confined at all")
	}
	return []*draft{d}
}

// setprivAccess reads fs, net or scope, with rights or for all that the running kernel has.
func (r *report) setprivAccess(l *draftLayer, opt option, abi int) {
	what, names, _ := strings.Cut(opt.value, ":")
	for kind, handled := range map[profile.Kind]*profile.Access{profile.FS: &l.fs, profile.Net: &l.net, profile.Scope: &l.scope} {
		if kind.String() != what {
			continue
		}
		switch {
		case names != "":
			*handled |= r.setprivRights(opt.from, kind, names)
		case abi == 0:
			r.errorf(opt.from, codeBadABI, "%s stands for all rights of the running kernel: say with --abi which one that is", what)
		case profile.Handled(kind, abi) == 0:
			r.errorf(opt.from, codeBadABI, "ABI %d has no %s rights", abi, what)
		default:
			*handled |= profile.Handled(kind, abi)
		}
		return
	}
	r.errorf(opt.from, codeUnknownRight, "%q: want fs, net or scope, and after a colon its rights", clip(opt.value))
}

// setprivRights reads a list of names with dashes.
func (r *report) setprivRights(at spot, kind profile.Kind, list string) profile.Access {
	var access profile.Access
	for name := range strings.SplitSeq(list, ",") {
		right, ok := profile.RightByName(kind, strings.ReplaceAll(name, "-", "_"))
		if ok && !strings.Contains(name, "_") && right.ABI <= setprivABI {
			access |= right.Bit
			continue
		}
		hint := ""
		for _, right := range profile.Rights() {
			if dashed := strings.ReplaceAll(right.Name, "_", "-"); kind == profile.FS && right.Kind == kind && strings.HasPrefix(dashed, name) {
				hint = "; setpriv takes it for " + dashed + ": write that"
				break
			}
		}
		r.errorf(at, codeUnknownRight, "unknown %s right %q%s", kind, clip(name), hint)
	}
	return access
}

// setprivRule reads path-beneath:RIGHTS:PATH or net-port:RIGHTS:PORT; without rights they are all that is handled.
func (r *report) setprivRule(l *draftLayer, opt option, base string) {
	parts := strings.SplitN(opt.value, ":", 3)
	kind, handled := profile.FS, l.fs
	switch {
	case len(parts) == 3 && parts[0] == "path-beneath":
	case len(parts) == 3 && parts[0] == "net-port":
		kind, handled = profile.Net, l.net
	default:
		r.errorf(opt.from, codeBadValue, "%q: want path-beneath:RIGHTS:PATH or net-port:RIGHTS:PORT", clip(opt.value))
		return
	}
	allow := handled
	if parts[1] != "" {
		allow = r.setprivRights(opt.from, kind, parts[1])
	}
	switch extra := allow &^ handled; {
	case handled == 0:
		if len(r.errors) == 0 {
			r.errorf(opt.from, codeNotHandled, "the rule needs a --landlock-access %s", kind)
		}
		return
	case extra != 0:
		r.errorf(opt.from, codeNotHandled, "no --landlock-access has %s, so the kernel refuses the rule", kind.Format(extra))
		return
	}
	if kind == profile.Net {
		if port, ok := r.port(opt.from, parts[2], nil); ok && allow != 0 {
			l.grantPort(port, allow)
		}
		return
	}
	if path, ok := r.literal(opt.from, parts[2], base); ok && allow != 0 {
		l.grant(path, allow, false)
	}
}
