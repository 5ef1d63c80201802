package policy

import (
	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/enforce/profile"
)

const (
	abiLog   = 7  // log flags
	abiQuiet = 10 // quiet rules
)

// ruleSet is where rules go: the rules of one document in one layer.
type ruleSet struct {
	*reporter
	values map[string][]string // of the document's variables
	used   map[string]bool     // names that a path used; may be nil
	bounds map[string]string   // folders that values given at start must lie in; may be nil
	abi    int                 // of the document
	layer  *profile.Layer
	strict bool // the document's own layer: what it does not handle is an error
	room   *int // how many more paths the compilation may have

	clean func(path string) bool // knows some paths to be clean; may be nil

	path func(rule, at int, path string, access profile.Access, quiet bool, missing profile.Missing)
	// within follows path: the first n bytes name a folder that symbolic links must not lead out of. May be nil.
	within func(n int)
	port   func(rule int, first, last uint16, access profile.Access, quiet bool)
}

// access reads what a rule grants in the layer; ok is false when it is nothing.
func (s *ruleSet) access(kind profile.Kind, allow []string, quiet bool, p *place) (a profile.Access, q, ok bool) {
	handled, quietMask := s.layer.FS, s.layer.QuietFS
	if kind == profile.Net {
		handled, quietMask = s.layer.Net, s.layer.QuietNet
	}
	at := p.key("allow")
	before := len(s.errors.findings) + s.errors.more
	g := s.rights(kind, allow, s.abi, &at)
	a = g.all() & handled
	if quiet && s.abi < abiQuiet {
		here := p.key("quiet")
		s.addf(codeNeedsABI, &here, "quiet is of ABI %d (Linux %s), and this document says abi: %d", abiQuiet, profile.KernelOf(abiQuiet), s.abi)
	}
	if !s.strict {
		quiet = quiet && quietMask != 0
		return a, quiet, a != 0 || quiet
	}
	if extra := g.named &^ handled; extra != 0 {
		s.addf(codeNotHandled, &at, "layer %q does not handle %s", s.layer.Name, kind.Format(extra))
	}
	if quiet && quietMask == 0 && s.abi >= abiQuiet {
		here := p.key("quiet")
		s.addf(codeBadValue, &here, "the layer lists no quiet %s rights", kind)
	}
	if len(s.errors.findings)+s.errors.more != before {
		return 0, false, false
	}
	if a == 0 && !quiet {
		if len(allow) == 0 {
			s.addf(codeEmptyAllow, p, "the rule grants nothing; it does not deny either: rules of a layer only add, use another layer to take away")
		} else {
			s.addf(codeEmptyAllow, &at, "the layer handles none of these rights, so the rule grants nothing")
		}
		return 0, false, false
	}
	return a, quiet, true
}

// paths reads path rules and calls path for each path they stand for.
func (s *ruleSet) paths(rules []*apiv1.PathRule, p *place) {
	list := p.key("paths")
	for i, rule := range rules {
		here := list.at(i)
		access, quiet, ok := s.access(profile.FS, rule.GetAllow(), rule.GetQuiet(), &here)
		missing := profile.Fail
		if rule.GetMissing() == apiv1.MissingPath_MISSING_PATH_SKIP {
			missing = profile.Skip
		}
		at := here.key("at")
		if len(rule.GetAt()) == 0 {
			s.addf(codeMissingKey, &here, "at is missing: the paths of the rule")
		}
		for j, text := range rule.GetAt() {
			member := at.at(j)
			if hasVariable(text) {
				s.expand(text, &member, func(path, folder string) {
					if !ok {
						return
					}
					s.path(i, j, path, access, quiet, missing)
					if s.within != nil && folder != "" && beneath(path, folder) {
						s.within(len(folder))
					}
				})
			} else if path, good := s.plainPath(text, &member); good && ok {
				s.path(i, j, path, access, quiet, missing)
			}
		}
	}
}

// plainPath gives the clean path of a text without variables.
func (s *ruleSet) plainPath(text string, p *place) (string, bool) {
	clean := text
	if s.clean == nil || !s.clean(text) {
		var err error
		if clean, err = cleanPath(text); err != nil {
			s.addf(codeBadPath, p, "%v", err)
			return "", false
		}
	}
	if *s.room--; *s.room < 0 {
		s.tooManyPaths(p)
		return "", false
	}
	return clean, true
}

// expand calls f with each clean path a text with variables stands for, and the folder that must hold it, if any.
func (s *ruleSet) expand(text string, p *place, f func(path, folder string)) {
	if len(text) > 4*MaxPathBytes {
		s.addf(codeBadPath, p, "path of %d bytes, at most %d: %q", len(text), MaxPathBytes, clip(text))
		return
	}
	t, err := parseTemplate(text)
	if err != nil {
		s.addf(codeBadTemplate, p, "%v", err)
		return
	}
	for _, name := range t.vars {
		if s.used != nil {
			s.used[name] = true
		}
		if _, ok := s.values[name]; !ok {
			known := make([]string, 0, len(s.values))
			for k := range s.values {
				known = append(known, k)
			}
			s.addf(codeUnknownVariable, p, "unknown variable %q%s", name, suggest(name, sorted(known)))
			return
		}
	}
	if n := t.count(s.values, *s.room); n > *s.room {
		s.tooManyPaths(p)
		return
	}
	t.expand(s.values, func(path string, chosen []string) bool {
		*s.room--
		clean, err := cleanPath(path)
		if err != nil {
			s.addf(codeBadPath, p, "%v", err)
			return false
		}
		f(clean, t.within(chosen, s.bounds))
		return true
	})
}

// tooManyPaths is said once, of the first path without room.
func (s *ruleSet) tooManyPaths(p *place) {
	if *s.room > -1<<30 {
		s.addf(codeTooLarge, p, "more than %d paths after variables and fragments", MaxExpansion)
		*s.room = -1 << 30
	}
}

// ports reads port rules and calls port for each range.
func (s *ruleSet) ports(rules []*apiv1.PortRule, p *place) {
	list := p.key("ports")
	for i, rule := range rules {
		here := list.at(i)
		access, quiet, ok := s.access(profile.Net, rule.GetAllow(), rule.GetQuiet(), &here)
		at := here.key("port")
		if len(rule.GetPort()) == 0 {
			s.addf(codeMissingKey, &here, "port is missing: the ports of the rule")
		}
		for j, text := range rule.GetPort() {
			first, last, err := parsePorts(text)
			if err != nil {
				member := at.at(j)
				s.addf(codeBadPort, &member, "%v", err)
				continue
			}
			if ok {
				s.port(i, first, last, access, quiet)
			}
		}
	}
}
