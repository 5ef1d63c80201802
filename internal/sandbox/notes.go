package sandbox

import (
	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/enforce/landlock"
	"policyd.dev/policyd/enforce/profile"
)

// maxNotes bounds what a record lists of the paths of one policy; the rest is
// counted. A record is kept in memory and in the store.
const maxNotes = 256

// noteRules writes down what became of a policy's rules on this host: nothing
// of them is dropped or led elsewhere in silence.
func noteRules(rec *apiv1.Sandbox, rs *landlock.Rulesets) {
	for _, n := range rs.Missing {
		rec.Missing = append(rec.Missing, missingRight(n))
	}
	rec.Skipped, rec.Flattened, rec.LogLost = rs.Skipped, rs.Flattened, rs.LogLost
	links := rs.Links[:min(len(rs.Links), maxNotes)]
	for _, l := range links {
		rec.Links = append(rec.Links, &apiv1.RuleLink{Path: l.Rule, Target: l.Target})
	}
	masked := rs.Masked[:min(len(rs.Masked), maxNotes)]
	for _, m := range masked {
		rec.Masked = append(rec.Masked, &apiv1.MaskedRule{Path: m.Path, Type: m.Type, Rights: profile.FS.Names(m.Access)})
	}
	rec.LinksMore, rec.MaskedMore = uint32(len(rs.Links)-len(links)), uint32(len(rs.Masked)-len(masked))
}
