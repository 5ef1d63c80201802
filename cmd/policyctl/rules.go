package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/enforce/landlock"
	"policyd.dev/policyd/enforce/profile"
)

// tellRecord says what is not as the policy has it for a sandbox; verbose also
// what became of its rules on that host, none of which widens or narrows it.
func (a *app) tellRecord(s *apiv1.Sandbox, verbose bool) {
	for _, m := range s.GetMissing() {
		a.note("not enforced on this kernel: %s", missingText(m))
	}
	a.tellLogLost(s.GetLogLost())
	if !verbose {
		return
	}
	for _, p := range s.GetSkipped() {
		a.note("%s", skippedText(p))
	}
	for _, l := range s.GetLinks() {
		a.note("%s", linkText(l.GetPath(), l.GetTarget()))
	}
	for _, m := range s.GetMasked() {
		a.note("%s", maskedText(m.GetPath(), m.GetType(), m.GetRights()))
	}
	if n := s.GetLinksMore() + s.GetMaskedMore(); n > 0 {
		a.note("and %d more of these", n)
	}
}

// tellRulesets is tellRecord for rulesets that were built here.
func (a *app) tellRulesets(rs *landlock.Rulesets, verbose bool) {
	for _, n := range rs.Missing {
		a.note("not enforced on this kernel: %v", n)
	}
	a.tellLogLost(rs.LogLost)
	if !verbose {
		return
	}
	for _, p := range rs.Skipped {
		a.note("%s", skippedText(p))
	}
	for _, l := range rs.Links {
		a.note("%s", linkText(l.Rule, l.Target))
	}
	for _, m := range rs.Masked {
		a.note("%s", maskedText(m.Path, m.Type, profile.FS.Names(m.Access)))
	}
}

func (a *app) tellLogLost(lost []string) {
	for _, l := range lost {
		a.note("not kept by one layer in place of several: %s", l)
	}
}

func skippedText(path string) string { return path + " is not there, its rule is skipped" }

func linkText(path, target string) string { return path + " leads to " + target }

func maskedText(path, kind string, rights []string) string {
	return fmt.Sprintf("%s is a %s and has no %s", path, kind, strings.Join(rights, ", "))
}

func verboseFlag(cmd *cobra.Command, verbose *bool) {
	cmd.Flags().BoolVarP(verbose, "verbose", "v", false, "say which paths of rules are not there, which led elsewhere and which are files")
}
