package policy

import (
	"slices"
	"strconv"
	"strings"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/enforce/profile"
)

func hasVariable(s string) bool { return strings.IndexByte(s, '$') >= 0 }

func sorted(s []string) []string {
	slices.Sort(s)
	return s
}

// layerName is the name of a layer, or the one it gets by its place.
func layerName(l *apiv1.Layer, i int) string {
	if l.GetName() != "" {
		return l.GetName()
	}
	return "layer-" + strconv.Itoa(i+1)
}

// layer reads everything of a layer but its rules.
func (r *reporter) layer(l *apiv1.Layer, i, abi int, p *place) profile.Layer {
	out := profile.Layer{Name: layerName(l, i)}
	if !isName(out.Name) {
		at := p.key("name")
		r.addf(codeBadName, &at, "layer name %q: %s", clip(out.Name), nameRule)
	}
	if h := l.GetHandles(); h == nil {
		out.FS, out.Net = profile.Handled(profile.FS, abi), profile.Handled(profile.Net, abi)
	} else {
		at := p.key("handles")
		fs, net := at.key("fs"), at.key("net")
		out.FS = r.rights(profile.FS, h.GetFs(), abi, &fs).all()
		out.Net = r.rights(profile.Net, h.GetNet(), abi, &net).all()
	}
	scope := p.key("scope")
	out.Scope = r.rights(profile.Scope, l.GetScope(), abi, &scope).all()
	if out.FS|out.Net|out.Scope == 0 {
		r.addf(codeHandlesNothing, p, "layer %q handles nothing, so it restricts nothing", clip(out.Name))
	}
	if q := l.GetQuiet(); q != nil {
		at := p.key("quiet")
		if abi < abiQuiet {
			r.addf(codeNeedsABI, &at, "quiet is of ABI %d (Linux %s), and this document says abi: %d", abiQuiet, profile.KernelOf(abiQuiet), abi)
		}
		out.QuietFS = r.quiet(profile.FS, q.GetFs(), out.FS, abi, &at)
		out.QuietNet = r.quiet(profile.Net, q.GetNet(), out.Net, abi, &at)
		out.QuietScope = r.quiet(profile.Scope, q.GetScope(), out.Scope, abi, &at)
	}
	if g := l.GetLog(); g != nil {
		if g.GetSameExecOff() {
			out.Log |= profile.LogSameExecOff
		}
		if g.GetNewExecOn() {
			out.Log |= profile.LogNewExecOn
		}
		if g.GetSubdomainsOff() {
			out.Log |= profile.LogSubdomainsOff
		}
		if out.Log != 0 && abi < abiLog {
			at := p.key("log")
			r.addf(codeNeedsABI, &at, "log flags are of ABI %d (Linux %s), and this document says abi: %d", abiLog, profile.KernelOf(abiLog), abi)
		}
	}
	return out
}

// quiet reads a quiet list: a single right must be handled, a group is what is.
func (r *reporter) quiet(kind profile.Kind, names []string, handled profile.Access, abi int, p *place) profile.Access {
	at := p.key(kind.String())
	g := r.rights(kind, names, abi, &at)
	if extra := g.named &^ handled; extra != 0 {
		r.addf(codeNotHandled, &at, "the layer does not handle %s", kind.Format(extra))
	}
	return g.all() & handled
}
