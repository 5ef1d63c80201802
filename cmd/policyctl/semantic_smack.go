package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"policyd.dev/policyd/internal/cli"
	"policyd.dev/policyd/internal/policy"
	"policyd.dev/policyd/smack"
)

// toldSmack is the answer of diff --semantic on two Smack policies; the JSON names are an interface.
type toldSmack struct {
	First    toldSide       `json:"first"`
	Second   toldSide       `json:"second"`
	Equal    bool           `json:"equal"`
	Gained   bool           `json:"gained"`
	Lost     bool           `json:"lost"`
	Pairs    []toldPair     `json:"pairs"`
	Settings []toldSmackSet `json:"settings"`
}

// toldPair is a pair of labels whose access differs, all layers together.
type toldPair struct {
	Subject string       `json:"subject"`
	Object  string       `json:"object"`
	First   string       `json:"first"` // letters, "-" for none
	Second  string       `json:"second"`
	Gained  string       `json:"gained"` // "" for none
	Lost    string       `json:"lost"`
	Origins []toldOrigin `json:"origins"` // the rules of the pair, of the second policy, or of the first when the second has none
}

// toldSmackSet is a setting that differs. Which way, is told where it can be: "gained", "lost", "neither", and
// "unknown" where it depends on what is labelled how; the exit code takes that for gained.
type toldSmackSet struct {
	Name   string `json:"name"`
	First  string `json:"first"` // "" when it is left alone
	Second string `json:"second"`
	Effect string `json:"effect"`
}

// smackSides loads both when they are Smack policies; ok is false when neither is one.
func (a *app) smackSides(ctx context.Context, args []string) (sides [2]*policy.CompiledSmack, ok bool, err error) {
	var is [2]bool
	var kept [2][]byte
	for i, what := range args {
		if is[i], kept[i], err = a.isSmack(what); err != nil {
			return sides, false, fmt.Errorf("%s: %w", what, err)
		}
	}
	switch {
	case !is[0] && !is[1]:
		return sides, false, nil
	case is[0] != is[1]:
		if other := args[slices.Index(is[:], false)]; !isProfileOrFile(other) && !hasKind(other) {
			return sides, false, fmt.Errorf("%s is a LandlockPolicy and the other a SmackPolicy: did you mean smackpolicy/%s?", other, other)
		}
		return sides, false, cli.Usage(errors.New("one is a SmackPolicy and the other is not: they cannot be compared"))
	}
	for i, what := range args {
		if isFile(what) {
			in := a.in
			if what == cli.Stdin {
				a.in = bytes.NewReader(kept[i])
			}
			sides[i], err = a.compileSmackFile([]string{what})
			a.in = in
		} else {
			_, ref := splitKind(what)
			sides[i], err = a.loadSmack(ctx, []string{ref}, nil)
		}
		if err != nil {
			return sides, false, fmt.Errorf("%s: %w", what, err)
		}
	}
	return sides, true, nil
}

// isSmack tells whether a reference or a file is a SmackPolicy. Standard input is read, and put back for who reads it next.
func (a *app) isSmack(what string) (bool, []byte, error) {
	if kind, _ := splitKind(what); !isProfileOrFile(what) {
		return kind == policy.KindSmack, nil, nil
	}
	if is, err := a.beginsAsProfile(what); err != nil || is {
		return false, nil, err
	}
	var kept bytes.Buffer
	in := a.in
	if what == cli.Stdin {
		a.in = io.TeeReader(in, &kept)
		defer func() { a.in = io.MultiReader(bytes.NewReader(kept.Bytes()), in) }()
	}
	files, err := cli.ReadSources([]string{what}, a.in)
	if err != nil {
		return false, nil, err
	}
	var kinds []string
	for _, f := range files {
		kinds = append(kinds, policy.KindsOf(f.GetContent())...)
	}
	is := slices.Contains(kinds, policy.KindSmack)
	if is && slices.Contains(kinds, policy.KindPolicy) {
		return false, nil, fmt.Errorf("kinds %s and %s: want policies of one kind", policy.KindPolicy, policy.KindSmack)
	}
	return is, kept.Bytes(), nil
}

// semanticSmackAnswer compares two Smack policies and gives the exit code.
func (a *app) semanticSmackAnswer(args []string, sides [2]*policy.CompiledSmack, form cli.Format) (int, error) {
	t := newToldSmack(args, sides)
	var err error
	if form == cli.Table || form == cli.Wide {
		err = a.semanticSmackTable(t, form == cli.Wide)
	} else {
		err = cli.WriteValue(a.out, form, t)
	}
	switch {
	case err != nil:
		return 0, err
	case t.Gained:
		return exitGained, nil
	case !t.Equal:
		return cli.ExitRefused, nil
	}
	return cli.ExitOK, nil
}

func newToldSmack(args []string, sides [2]*policy.CompiledSmack) *toldSmack {
	from, to := sides[0], sides[1]
	t := &toldSmack{
		First:  toldSide{args[0], smack.Digest(from.Policy.Encode())},
		Second: toldSide{args[1], smack.Digest(to.Policy.Encode())},
		Pairs:  []toldPair{}, Settings: []toldSmackSet{},
	}
	letters := func(a smack.Access) string {
		if a == 0 {
			return ""
		}
		return a.String()
	}
	for _, c := range to.Policy.Difference(from.Policy).All() {
		p := toldPair{
			Subject: c.Subject, Object: c.Object, First: c.Old.String(), Second: c.New.String(),
			Gained: letters(c.New &^ c.Old), Lost: letters(c.Old &^ c.New), Origins: []toldOrigin{},
		}
		t.Gained = t.Gained || p.Gained != ""
		t.Lost = t.Lost || p.Lost != ""
		t.Pairs = append(t.Pairs, p)
	}
	for i := range min(len(t.Pairs), maxSmackOrigins) {
		p := &t.Pairs[i]
		rules := to.Origins(p.Subject, p.Object)
		if len(rules) == 0 {
			rules = from.Origins(p.Subject, p.Object)
		}
		for _, o := range rules {
			p.Origins = append(p.Origins, toldOrigin{File: o.File, Line: o.Line, Field: o.Field})
		}
	}
	for _, c := range to.Policy.Settings.Difference(&from.Policy.Settings) {
		effect := settingEffect(c, &from.Policy.Settings, &to.Policy.Settings)
		t.Gained = t.Gained || effect == "gained" || effect == "unknown"
		t.Lost = t.Lost || effect == "lost"
		t.Settings = append(t.Settings, toldSmackSet{c.Name, c.Old, c.New, effect})
	}
	t.Equal = len(t.Pairs)+len(t.Settings) == 0
	return t
}

// maxSmackOrigins bounds for how many pairs their rules are looked up, each in time linear in the rules.
const maxSmackOrigins = 1000

// settingEffect tells whether a setting allows more than before.
func settingEffect(c smack.SettingChange, from, to *smack.Settings) string {
	name, _, _ := strings.Cut(c.Name, " ")
	switch name {
	case "logging":
		return "neither"
	case "ptrace":
		was, is := ptraceOf(c.Old), ptraceOf(c.New)
		switch {
		case was < 0 || is < 0:
			return "unknown"
		case is < was:
			return "gained"
		}
		return "lost"
	case "unconfined":
		switch {
		case to.Unconfined != "":
			return "gained"
		case to.ClearUnconfined:
			return "lost"
		}
	case "onlycap":
		switch {
		case len(to.Onlycap) == 0:
			return "gained"
		case len(from.Onlycap) > 0 && subset(to.Onlycap, from.Onlycap), from.ClearOnlycap:
			return "lost"
		case len(from.Onlycap) > 0:
			return "gained"
		}
	case "relabel-self":
		if subset(to.RelabelSelf, from.RelabelSelf) {
			return "lost"
		}
		return "gained"
	}
	return "unknown"
}

// ptraceOf reads a value of ptrace, -1 when it is left alone.
func ptraceOf(s string) int {
	n, err := strconv.Atoi(s)
	if err != nil {
		return -1
	}
	return n
}

func subset(list, of []string) bool {
	return !slices.ContainsFunc(list, func(s string) bool { return !slices.Contains(of, s) })
}

func (a *app) semanticSmackTable(t *toldSmack, all bool) error {
	if !a.quiet {
		fmt.Fprintln(a.out, cli.Clean(fmt.Sprintf("A %s -> B %s", t.First.Name, t.Second.Name)))
	}
	var b bytes.Buffer
	rows := cli.NewRows(&b)
	for i, p := range t.Pairs {
		if i == smackShown && len(t.Pairs) > smackShown+1 && !all {
			rows.Add("~", fmt.Sprintf("and %s (-o wide)", count(len(t.Pairs)-i, "more pair", "more pairs")))
			break
		}
		pair, change, where := p.Subject+" "+p.Object, p.First+" -> "+p.Second, originText(p.Origins)
		if p.Gained != "" {
			rows.Add("+", pair, p.Gained, change, where)
		}
		if p.Lost != "" {
			rows.Add("-", pair, p.Lost, change, where)
		}
	}
	for _, s := range t.Settings {
		sign := map[string]string{"gained": "+", "lost": "-"}[s.Effect]
		if sign == "" {
			sign = "~"
		}
		rows.Add(sign, s.Name, settingText(s.First)+" -> "+settingText(s.Second))
	}
	if err := rows.Flush(); err != nil {
		return err
	}
	paint := a.painter(a.out)
	for line := range strings.Lines(b.String()) {
		line = strings.TrimRight(line, "\n ")
		switch line[0] {
		case '+':
			line = paint.Paint(line, cli.Green)
		case '-':
			line = paint.Paint(line, cli.Red)
		}
		if _, err := io.WriteString(a.out, line+"\n"); err != nil {
			return err
		}
	}
	if !a.quiet {
		fmt.Fprintln(a.out, t.summary())
	}
	return nil
}

// smackShown is how many pairs a table shows.
const smackShown = 50

func originText(list []toldOrigin) string {
	var out []string
	for _, o := range list {
		at := o.Field
		if o.Line > 0 {
			at = strings.TrimPrefix(fmt.Sprintf("%s:%d", o.File, o.Line), ":")
		}
		if !slices.Contains(out, at) {
			out = append(out, at)
		}
	}
	return strings.Join(out, ", ")
}

// settingText shows a setting; one that is left alone is not the same as one that is emptied.
func settingText(s string) string {
	switch s {
	case "":
		return "left alone"
	case "-":
		return "emptied"
	}
	return s
}

func (t *toldSmack) summary() string {
	switch {
	case t.Equal:
		return "no difference"
	case t.Gained && t.Lost:
		return "something is gained, something is lost"
	case t.Gained:
		return "something is gained, nothing is lost"
	case t.Lost:
		return "nothing is gained, something is lost"
	}
	return "nothing is gained or lost"
}
