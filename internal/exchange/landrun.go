package exchange

import (
	"fmt"
	"strings"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/enforce/profile"
)

// landrunABI is the ABI that landrun 0.1.17 restricts.
const landrunABI = 9

// landrunOptions tells which options of landrun have a value.
var landrunOptions = map[string]bool{
	"--ro": true, "--rox": true, "--rw": true, "--rwx": true, "--unix": true, "--bind-tcp": true, "--connect-tcp": true,
	"--env": true, "--log-level": true,
	"--best-effort": false, "--unrestricted-network": false, "--unrestricted-filesystem": false, "--unrestricted-scoped": false,
	"--ignore-missing": false, "--log-disable-originating": false, "--log-enable-subprocesses": false, "--log-disable-subdomains": false,
	"--add-exec": false, "--ldd": false,
}

const (
	readRights  = profile.FSReadFile | profile.FSReadDir
	makeRights  = profile.FSMakeChar | profile.FSMakeDir | profile.FSMakeReg | profile.FSMakeSock | profile.FSMakeFifo | profile.FSMakeBlock | profile.FSMakeSym
	writeRights = profile.FSWriteFile | profile.FSTruncate | profile.FSIoctlDev | profile.FSRemoveDir | profile.FSRemoveFile | makeRights | profile.FSRefer
)

var landrunPaths = map[string]profile.Access{
	"--ro": readRights, "--rox": readRights | profile.FSExecute,
	"--rw": readRights | writeRights, "--rwx": readRights | writeRights | profile.FSExecute,
	"--unix": profile.FSResolveUnix,
}

// landrun reads a command line of landrun 0.1.17, or of the ABI of an older one. The first word that is no option begins
// the command.
func (r *report) landrun(files []File, o Options) []*draft {
	args, at, ok := r.commandLine(files[0], "landrun")
	if !ok {
		return nil
	}
	opts, command, ok := r.options(args, landrunOptions)
	if !ok {
		return nil
	}
	abi := o.ABI
	if abi == 0 {
		abi = landrunABI
	}
	if abi > landrunABI {
		r.errorf(at, codeBadABI, "landrun knows Landlock up to ABI %d", landrunABI)
		return nil
	}
	on := map[string]bool{}
	for _, opt := range opts {
		if !landrunOptions[opt.name] {
			on[opt.name] = opt.value != "false"
		}
	}
	l := &draftLayer{
		name: "landrun", fs: profile.Handled(profile.FS, abi), net: profile.Handled(profile.Net, abi), scope: profile.Handled(profile.Scope, abi),
	}
	d := &draft{name: defaultName, abi: abi, degrade: on["--best-effort"], layers: []*draftLayer{l}}
	if on["--unrestricted-filesystem"] {
		l.fs = 0
	}
	if on["--unrestricted-network"] {
		l.net = 0
	}
	if on["--unrestricted-scoped"] {
		l.scope = 0
	}
	if on["--log-disable-originating"] || on["--log-enable-subprocesses"] || on["--log-disable-subdomains"] {
		l.log = &apiv1.Log{SameExecOff: on["--log-disable-originating"], NewExecOn: on["--log-enable-subprocesses"], SubdomainsOff: on["--log-disable-subdomains"]}
	}
	for _, opt := range opts {
		r.landrunOption(d, l, opt, on["--ignore-missing"], o.Base)
	}
	r.landrunProgram(l, on, command, at)
	if l.fs|l.net|l.scope == 0 {
		r.errorf(at, codeHandlesNothing, "everything is unrestricted: nothing is handled, so a program would not be confined at all")
	}
	if (l.fs == 0) != (l.net == 0) && len(l.paths)+len(l.ports) == 0 {
		r.remarkf(at, "landrun restricts neither files nor ports when it has no rules and one of both is unrestricted; this policy denies what it handles")
	}
	if !on["--best-effort"] {
		r.remarkf(at, "landrun without --best-effort needs a kernel of ABI %d; this policy needs one that has what it handles", abi)
	}
	r.remarkf(at, "landrun starts the program with an empty environment and what --env names; a policy only adds to the environment given at start")
	return []*draft{d}
}

// landrunOption reads an option with a value.
func (r *report) landrunOption(d *draft, l *draftLayer, opt option, skip bool, base string) {
	allow, isPath := landrunPaths[opt.name]
	switch {
	case isPath:
		if allow &= profile.Handled(profile.FS, d.abi); allow == 0 {
			r.errorf(opt.at, codeBadABI, "%s is of ABI 9, and this is read for ABI %d", opt.name, d.abi)
			return
		}
		for value := range strings.SplitSeq(opt.value, ",") {
			path, ok := r.literal(opt.from, value, base)
			if !ok {
				continue
			}
			if l.fs == 0 {
				r.remarkf(opt.at, "files are unrestricted, so %s says nothing", opt.name)
				continue
			}
			l.grant(path, allow, skip)
		}
	case opt.name == "--bind-tcp" || opt.name == "--connect-tcp":
		right := profile.NetBindTCP
		if opt.name == "--connect-tcp" {
			right = profile.NetConnectTCP
		}
		for value := range strings.SplitSeq(opt.value, ",") {
			port, ok := r.port(opt.from, value, func(n int64) string {
				return fmt.Sprintf("; landrun cuts it to its last 16 bits and grants port %d", uint16(n))
			})
			switch {
			case ok && l.net != 0:
				l.grantPort(port, right)
			case ok:
				r.remarkf(opt.at, "the network is unrestricted, or ABI %d has no rights on ports, so %s says nothing", d.abi, opt.name)
			}
		}
	case opt.name == "--env":
		for value := range strings.SplitSeq(opt.value, ",") {
			name, text, given := strings.Cut(value, "=")
			if !given {
				r.remarkf(opt.from, "--env %s passes the caller's value, which is no part of a policy", clip(name))
				continue
			}
			if d.env == nil {
				d.env = map[string]string{}
			}
			d.env[name] = text
		}
	}
}

// landrunProgram adds what landrun grants for the program itself.
func (r *report) landrunProgram(l *draftLayer, on map[string]bool, command []word, at spot) {
	if on["--ldd"] {
		r.remarkf(at, "--ldd grants the libraries of the program on the host at hand; they are not known here and not granted: name them, or include std/base")
	}
	if !on["--add-exec"] || l.fs == 0 {
		return
	}
	if len(command) == 0 || !strings.HasPrefix(command[0].text, "/") {
		r.remarkf(at, "--add-exec grants the program, found with PATH; it is not known here and not granted: give its absolute path")
		return
	}
	if path, ok := r.literal(command[0].at, command[0].text, ""); ok {
		l.grant(path, readRights&^profile.FSReadDir|profile.FSExecute, false)
	}
}
