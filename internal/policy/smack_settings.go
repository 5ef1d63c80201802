package policy

import (
	"fmt"
	"net/netip"

	"go.yaml.in/yaml/v4"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/smack"
)

// smackSettings checks settings and gives them as package smack has them, with
// warnings on addresses that are written in another way than they were given.
func (r *reporter) smackSettings(s *apiv1.SmackSettings, p *place) (smack.Settings, []*apiv1.Finding) {
	at := p.key("settings")
	c := settingsCheck{r, &at, nil}
	out := smack.Settings{
		Direct: c.number("direct", s.GetDirect(), s != nil && s.Direct != nil, 255),
		Mapped: c.number("mapped", s.GetMapped(), s != nil && s.Mapped != nil, 255),
		PTrace: c.number("ptrace", s.GetPtrace(), s != nil && s.Ptrace != nil, 2),

		Logging:      c.number("logging", s.GetLogging(), s != nil && s.Logging != nil, 3),
		DOI:          s.GetDoi(),
		Ambient:      c.label("ambient", s.GetAmbient(), s != nil && s.Ambient != nil),
		Syslog:       c.label("syslog", s.GetSyslog(), s != nil && s.Syslog != nil),
		Onlycap:      c.labels("onlycap", s.GetOnlycap()),
		RelabelSelf:  c.labels("relabelSelf", s.GetRelabelSelf()),
		ClearOnlycap: s.GetClearOnlycap(),
	}
	if s != nil && s.Doi != nil && s.GetDoi() == 0 {
		c.fail("doi", codeBadValue, "doi 0: it is 1 to 4294967295")
	}
	if s != nil && s.Unconfined != nil {
		if out.ClearUnconfined = s.GetUnconfined() == ""; !out.ClearUnconfined {
			out.Unconfined = c.label("unconfined", s.GetUnconfined(), true)
		}
	}
	c.onlycap(s)
	out.Cipso = c.cipso(s.GetCipso())
	out.Netlabel = c.netlabel(s.GetNetlabel())
	out.IPv6Host = c.ipv6host(s.GetIpv6Host())
	if len(r.errors.findings) == 0 {
		if err := out.Validate(); err != nil { // limits of size
			r.addf(smackCode(err), &at, "%s", smackMessage(err))
		}
	}
	return out, c.remarks
}

type settingsCheck struct {
	*reporter
	p       *place
	remarks []*apiv1.Finding
}

func (c *settingsCheck) fail(key, code, format string, args ...any) {
	at := c.p.key(key)
	c.addf(code, &at, format, args...)
}

func (c *settingsCheck) number(key string, v uint32, given bool, most uint32) *uint8 {
	switch {
	case !given:
		return nil
	case v > most:
		c.fail(key, codeBadValue, "%s %d: it is 0 to %d", key, v, most)
		return nil
	}
	n := uint8(v)
	return &n
}

func (c *settingsCheck) label(key, v string, given bool) string {
	if !given {
		return ""
	}
	if err := smack.CheckLabel(v); err != nil {
		c.fail(key, codeBadLabel, "%v", err)
	}
	return v
}

func (c *settingsCheck) labels(key string, list []string) []string {
	at := c.p.key(key)
	seen := make(map[string]bool, len(list))
	for i, l := range list {
		here := at.at(i)
		if err := smack.CheckLabel(l); err != nil {
			c.addf(codeBadLabel, &here, "%v", err)
		} else if seen[l] {
			c.addf(codeBadValue, &here, "%s is named twice", clip(l))
		}
		seen[l] = true
	}
	return list
}

// onlycap checks that it is emptied on purpose alone: every label keeps its
// privileges then. Whether an empty list was written only the text can tell.
func (c *settingsCheck) onlycap(s *apiv1.SmackSettings) {
	if s.GetClearOnlycap() && len(s.GetOnlycap()) > 0 {
		c.fail("clearOnlycap", codeBadValue, "onlycap is set and cleared")
	}
	if s.GetClearOnlycap() || len(s.GetOnlycap()) > 0 || c.seg == nil {
		return
	}
	at := c.p.key("onlycap")
	if n := locate(c.root, &at); n != nil && n != locate(c.root, c.p) && n.Kind == yaml.SequenceNode {
		c.addf(codeBadValue, &at, "an empty onlycap gives every label the privileges of Smack: write clearOnlycap: true if that is meant")
	}
}

func (c *settingsCheck) cipso(list []*apiv1.SmackCipso) []smack.Cipso {
	at := c.p.key("cipso")
	var out []smack.Cipso
	seen := map[string]bool{}
	for i, e := range list {
		here := at.at(i)
		entry := smack.Cipso{Label: e.GetLabel(), Level: int(e.GetLevel())}
		for _, n := range e.GetCategories() {
			entry.Categories = append(entry.Categories, int(n))
		}
		if e.GetLevel() > 255 {
			entry.Level = 256 // int may be narrower
		}
		one := smack.Settings{Cipso: []smack.Cipso{entry}}
		if err := one.Validate(); err != nil {
			c.addf(smackCode(err), &here, "%s", smackMessage(err))
			continue
		}
		if seen[entry.Label] {
			c.addf(codeBadValue, &here, "cipso names %s twice", entry.Label)
		}
		seen[entry.Label] = true
		out = append(out, entry)
	}
	return out
}

func (c *settingsCheck) netlabel(list []*apiv1.SmackHost) []smack.Netlabel {
	at := c.p.key("netlabel")
	var out []smack.Netlabel
	seen := map[netip.Prefix]bool{}
	for i, e := range list {
		here := at.at(i)
		n, err := smack.NewNetlabel(e.GetAddress(), e.GetLabel())
		if err != nil {
			c.addf(smackCode(err), &here, "%s", smackMessage(err))
			continue
		}
		if given, err := netip.ParsePrefix(e.GetAddress()); err == nil && given != n.Prefix {
			c.remark(&here, fmt.Sprintf("%s is %s: the bits beyond the mask are cut off", e.GetAddress(), n.Prefix))
		}
		c.twice(seen, n.Prefix, &here)
		out = append(out, n)
	}
	return out
}

func (c *settingsCheck) ipv6host(list []*apiv1.SmackHost) []smack.IPv6Host {
	at := c.p.key("ipv6host")
	var out []smack.IPv6Host
	seen := map[netip.Prefix]bool{}
	for i, e := range list {
		here := at.at(i)
		hosts, err := smack.NewIPv6Host(e.GetAddress(), e.GetLabel())
		if err != nil {
			c.addf(smackCode(err), &here, "%s", smackMessage(err))
			continue
		}
		if len(hosts) > 1 {
			c.remark(&here, fmt.Sprintf("%s is written as %d prefixes of %d bits: the kernel's mask is right at multiples of 16 alone", e.GetAddress(), len(hosts), hosts[0].Prefix.Bits()))
		}
		for _, h := range hosts {
			if !c.twice(seen, h.Prefix, &here) {
				break
			}
		}
		out = append(out, hosts...)
	}
	return out
}

// twice refuses a prefix that has an entry.
func (c *settingsCheck) twice(seen map[netip.Prefix]bool, prefix netip.Prefix, p *place) bool {
	if seen[prefix] {
		c.addf(codeBadValue, p, "%s has an entry already", prefix)
		return false
	}
	seen[prefix] = true
	return true
}

func (c *settingsCheck) remark(p *place, text string) {
	f := c.finding(string(smack.WarnPrefix), p, text)
	f.Severity = apiv1.Finding_SEVERITY_WARNING
	c.remarks = append(c.remarks, f)
}
