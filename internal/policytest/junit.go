package policytest

import (
	"encoding/xml"
	"fmt"
	"io"
)

type junitSuites struct {
	XMLName  xml.Name     `xml:"testsuites"`
	Name     string       `xml:"name,attr"`
	Tests    int          `xml:"tests,attr"`
	Failures int          `xml:"failures,attr"`
	Errors   int          `xml:"errors,attr"`
	Skipped  int          `xml:"skipped,attr"`
	Time     string       `xml:"time,attr"`
	Suites   []junitSuite `xml:"testsuite"`
}

type junitSuite struct {
	Name     string      `xml:"name,attr"`
	File     string      `xml:"file,attr"`
	Tests    int         `xml:"tests,attr"`
	Failures int         `xml:"failures,attr"`
	Errors   int         `xml:"errors,attr"`
	Skipped  int         `xml:"skipped,attr"`
	Time     string      `xml:"time,attr"`
	Cases    []junitCase `xml:"testcase"`
}

type junitCase struct {
	Name      string        `xml:"name,attr"`
	Classname string        `xml:"classname,attr"`
	File      string        `xml:"file,attr"`
	Line      int           `xml:"line,attr"`
	Time      string        `xml:"time,attr"`
	Failure   *junitProblem `xml:"failure"`
	Error     *junitProblem `xml:"error"`
	Skipped   *junitSkipped `xml:"skipped"`
	Out       string        `xml:"system-out,omitempty"`
}

type junitProblem struct {
	Message string `xml:"message,attr"`
	Type    string `xml:"type,attr"`
	Text    string `xml:",chardata"`
}

type junitSkipped struct {
	Message string `xml:"message,attr"`
}

// WriteJUnit writes the report as JUnit XML: a testsuite for every test, a
// testcase for every expectation. A test that could not be run is a case with
// an error. Times are the test's, shared among its cases.
func WriteJUnit(w io.Writer, r *Report) error {
	s := &r.Summary
	all := junitSuites{
		Name: "policyctl test", Tests: s.Passed + s.Failed + s.Skipped + s.Broken,
		Failures: s.Failed, Errors: s.Broken, Skipped: s.Skipped, Time: seconds(s.Seconds),
	}
	for _, t := range r.Tests {
		all.Suites = append(all.Suites, suiteOf(t))
	}
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return err
	}
	enc := xml.NewEncoder(w)
	enc.Indent("", "  ")
	if err := enc.Encode(all); err != nil {
		return err
	}
	_, err := io.WriteString(w, "\n")
	return err
}

func seconds(s float64) string { return fmt.Sprintf("%.6f", s) }

func suiteOf(t *Result) junitSuite {
	s := junitSuite{
		Name: t.Name, File: t.File, Tests: len(t.Expectations),
		Failures: t.Count(Failed), Skipped: t.Count(Skipped), Time: seconds(t.Seconds),
	}
	if t.Error != "" {
		s.Tests, s.Errors = 1, 1
		s.Cases = []junitCase{{
			Name: "run", Classname: t.Name, File: t.File, Line: t.Line, Time: s.Time,
			Error: &junitProblem{Message: "the test could not be run", Type: "error", Text: t.Error},
		}}
		return s
	}
	each := seconds(t.Seconds / float64(max(1, len(t.Expectations))))
	for i := range t.Expectations {
		x := &t.Expectations[i]
		c := junitCase{Name: x.Op, Classname: t.Name, File: t.File, Line: x.Line, Time: each}
		switch x.Status {
		case Failed:
			text := fmt.Sprintf("%s:%d: %s\nwant %s\n%s\n", t.File, x.Line, x.Op, x.Want.String(), x.Text)
			if x.Reason != "" {
				text += "because " + x.Reason + "\n"
			}
			c.Failure = &junitProblem{Message: x.Text, Type: "expectation", Text: text}
		case Skipped:
			c.Skipped = &junitSkipped{Message: x.Text}
		case Passed:
			if x.Kernel != nil {
				c.Out = fmt.Sprintf("the kernel: %s under the policy, %s without", x.Kernel.Under, x.Kernel.Without)
			}
		}
		s.Cases = append(s.Cases, c)
	}
	return s
}
