package policy

import (
	"cmp"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/smack"
)

// SmackSettings gives settings as a document writes them, nil when there is none.
// What a document cannot say, that relabel-self is emptied, is left out.
func SmackSettings(s *smack.Settings) *apiv1.SmackSettings {
	m := &apiv1.SmackSettings{
		Onlycap: s.Onlycap, ClearOnlycap: s.ClearOnlycap, RelabelSelf: s.RelabelSelf,
		Ambient: given(s.Ambient), Syslog: given(s.Syslog), Unconfined: given(s.Unconfined), Doi: given(s.DOI),
		Direct: widened(s.Direct), Mapped: widened(s.Mapped), Ptrace: widened(s.PTrace), Logging: widened(s.Logging),
	}
	if s.ClearUnconfined {
		m.Unconfined = new(string)
	}
	for _, c := range s.Cipso {
		e := &apiv1.SmackCipso{Label: c.Label, Level: uint32(c.Level)}
		for _, n := range c.Categories {
			e.Categories = append(e.Categories, uint32(n))
		}
		m.Cipso = append(m.Cipso, e)
	}
	for _, n := range s.Netlabel {
		m.Netlabel = append(m.Netlabel, &apiv1.SmackHost{Address: n.Prefix.String(), Label: n.Label})
	}
	for _, h := range s.IPv6Host {
		m.Ipv6Host = append(m.Ipv6Host, &apiv1.SmackHost{Address: h.Prefix.String(), Label: h.Label})
	}
	if len(Canonical(m)) == len("{}") {
		return nil
	}
	return m
}

// given is nil for what is not set.
func given[T comparable](v T) *T {
	var none T
	if v == none {
		return nil
	}
	return &v
}

func widened(n *uint8) *uint32 {
	if n == nil {
		return nil
	}
	v := uint32(*n)
	return &v
}

// SmackCode is the code of a finding for an error or a warning of package smack.
func SmackCode(p smack.Problem) string { return cmp.Or(string(p.Code), smackCode(p.Err)) }
