package oci

import (
	"errors"
	"maps"
	"strings"
	"testing"

	"policyd.dev/policyd/internal/errs"
)

func TestParameters(t *testing.T) {
	const state = AnnotationParameter + "state"
	type set = map[string]string
	for _, tc := range []struct {
		annotations set
		container   string
		want        set
		err         string
	}{
		{nil, "", nil, ""},
		{set{"other": "x", AnnotationProfile: "web"}, "", nil, ""},
		{set{state: "/srv"}, "", set{"state": "/srv"}, ""},
		{set{state: "/srv", AnnotationParameter + "cache": "/var/cache"}, "app", set{"state": "/srv", "cache": "/var/cache"}, ""},
		{set{state: "/srv", state + "/container.app": "/app"}, "app", set{"state": "/app"}, ""},
		{set{state: "/srv", state + ".container.app": "/app"}, "app", set{"state": "/app"}, ""},
		{set{state: "/srv", state + "/container.app": "/app"}, "other", set{"state": "/srv"}, ""},
		{set{state + "/container.app": "/app"}, "other", nil, ""},
		{set{state + "/container.app": "/app"}, "", nil, "nothing tells the name"},
		{set{state + "/container.app": "/a", state + ".container.app": "/b"}, "app", nil, "say the same"},
		{set{state + "/container.": "/a"}, "app", nil, "names no container"},
		{set{state + "/app": "/a"}, "app", nil, "names no parameter"},
		{set{state + ".app": "/a"}, "app", nil, "names no parameter"},
		{set{AnnotationParameter: "/a"}, "", nil, "names no parameter"},
		{set{AnnotationParameter + "/container.app": "/a"}, "app", nil, "names no parameter"},
		{set{state: ""}, "", nil, "is empty"},
		{set{state: "/a\n/b"}, "", nil, "control characters"},
		{set{state: "/a\x00"}, "", nil, "control characters"},
		{set{state: "/" + strings.Repeat("x", maxValue)}, "", nil, "is no path"},
	} {
		got, err := Parameters(tc.annotations, tc.container)
		if tc.err != "" {
			if !errors.Is(err, errs.ErrInvalid) || !strings.Contains(err.Error(), tc.err) || !strings.Contains(err.Error(), AnnotationParameter) {
				t.Errorf("%q: %v, want %q", tc.annotations, err, tc.err)
			}
			continue
		}
		if err != nil || !maps.Equal(Values(got), tc.want) {
			t.Errorf("%q of %q: %v, %v; want %v", tc.annotations, tc.container, got, err, tc.want)
		}
	}
	all, err := Parameters(set{state: "/srv", state + "/container.app": "/app"}, "app")
	if err != nil || About(all) != state+`/container.app="/app"` || About(nil) != "" {
		t.Errorf("%s, %v", About(all), err)
	}
}

// The form with one slash is that of Kubernetes.
func TestContainersOwnAnnotations(t *testing.T) {
	read := func(annotations string) (*Config, error) {
		return ReadConfig([]byte(`{"process":{"args":["a"]},"annotations":{` + annotations + `}}`))
	}
	for annotations, want := range map[string]string{
		`"policyd.dev/profile":"web","policyd.dev/profile.container.app":"app","io.kubernetes.cri.container-name":"app"`:   "app",
		`"policyd.dev/profile":"web","policyd.dev/profile.container.app":"app","io.kubernetes.cri.container-name":"other"`: "web",
	} {
		if c, err := read(annotations); err != nil || c.Ref != want {
			t.Errorf("%s: %+v, %v", annotations, c, err)
		}
	}
	for annotations, want := range map[string]string{
		`"policyd.dev/profile.container.app":"a","policyd.dev/profile/container.app":"b","io.kubernetes.cri.container-name":"app"`: "say the same",
		`"policyd.dev/profile.app":"a","io.kubernetes.cri.container-name":"app"`:                                                   "there is no annotation",
		`"policyd.dev/smack-label":"Web"`: "without",
		`"policyd.dev/param.":"/x"`:       "names no parameter",
	} {
		if _, err := read(annotations); !errors.Is(err, errs.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", annotations, err, want)
		}
	}
	c, err := read(`"policyd.dev/param.state":"/srv","io.kubernetes.cri.container-name":"app","io.kubernetes.cri.sandbox-name":"pod-1"`)
	if err != nil || Values(c.Parameters)["state"] != "/srv" || c.Container != "app" || c.Pod != "pod-1" {
		t.Errorf("%+v, %v", c, err)
	}
}

// A label is in the launcher's arguments and in the annotations, and goes with the edit.
func TestSmackLabel(t *testing.T) {
	for name, text := range inputs(t) {
		e := edit
		e.SmackLabel = "Web"
		got, err := edited(text, e)
		if err != nil || !strings.Contains(string(got), `"--smack-label","Web","--"`) || !strings.Contains(string(got), `"policyd.dev/smack-label":"Web"`) {
			t.Errorf("%s: %v\n%s", name, err, got)
			continue
		}
		if again, err := edited(got, e); err != nil || string(again) != string(got) {
			t.Errorf("%s: edited again: %v\n%s", name, err, again)
		}
		if without, err := edited(got, edit); err != nil || strings.Contains(string(without), "smack") {
			t.Errorf("%s: without a label: %v\n%s", name, err, without)
		}
		// Who takes the label out of one place is found out.
		if _, err := ReadConfig([]byte(strings.Replace(string(got), `"policyd.dev/smack-label":"Web"`, `"policyd.dev/smack-label":"Other"`, 1))); !errors.Is(err, errs.ErrInvalid) {
			t.Errorf("%s: forged: %v", name, err)
		}
	}
	l, err := StateLaunch([]byte(`{"annotations":{"policyd.dev/applied":"sha256:12","policyd.dev/smack-label":"Web"}}`))
	if err != nil || l != (Launch{"sha256:12", "Web"}) {
		t.Errorf("%+v, %v", l, err)
	}
	got, err := EditProcess([]byte(`{"args":["id"]}`), l)
	if err != nil || !strings.Contains(string(got), `"--smack-label","Web","--","id"`) {
		t.Errorf("%s, %v", got, err)
	}
	if again, err := EditProcess(got, l); err != nil || string(again) != string(got) {
		t.Errorf("again: %s, %v", again, err)
	}
}
