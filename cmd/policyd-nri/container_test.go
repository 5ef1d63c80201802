package main

import (
	"slices"
	"testing"

	"github.com/containerd/nri/pkg/api"

	"policyd.dev/policyd/enforce/oci"
	"policyd.dev/policyd/enforce/profile"
)

// CRI-O has a pod's annotations among its containers' own: containerd's keys there are not the runtime's word.
func TestDescribeCRIO(t *testing.T) {
	p := &api.PodSandbox{Name: "p", Namespace: "n"}
	for key, value := range map[string]string{"": "", "io.kubernetes.cri.container-type": "sandbox", "io.kubernetes.cri.image-name": "trusted", "io.kubernetes.cri.sandbox-namespace": "trusted"} {
		c := (&host{}).container("web", "a", "b")
		c.Annotations = map[string]string{"io.kubernetes.cri-o.ContainerType": "container", "io.kubernetes.cri-o.ImageName": "nginx:1", "policyd.dev/profile": "web"}
		if key != "" {
			c.Annotations[key] = value
		}
		d, err := describe(p, c)
		if key != "" {
			if err == nil {
				t.Errorf("%s: %+v", key, d.Config)
			}
			continue
		}
		if err != nil || d.Sandbox || d.Ref != "web" || d.Container != "web" || d.Namespace != "n" || d.Pod != "p" || d.Image != "nginx:1" {
			t.Errorf("%+v, %v", d, err)
		}
	}
}

// Whatever a pod says, its container is left alone only when the runtime marks it as the sandbox, and what is adjusted
// runs the launcher before the program as it was, under the digest asked for.
func FuzzDescribe(f *testing.F) {
	f.Add("policyd.dev/profile", "web", "other", "x", "/bin/web", "/srv")
	f.Add("policyd.dev/profile.container.web", "web@1", "io.kubernetes.cri.container-type", "sandbox", "", "/dev/.policyd/launch")
	f.Add("policyd.dev/param.a", "/x", "policyd.dev/applied", "sha256:00", oci.LauncherPath, "/dev/")
	f.Add("io.kubernetes.cri-o.ContainerType", "sandbox", "policyd.dev/profile", "\xff", "\x00", "..")
	f.Add("policyd.dev/profile", "web", "", "", "not \xff UTF-8", "")
	digest := profile.Digest([]byte("p"))
	f.Fuzz(func(t *testing.T, key1, value1, key2, value2, arg, dest string) {
		p := &api.PodSandbox{Name: "p", Namespace: "n", Annotations: map[string]string{key1: value1, key2: value2}}
		c := (&host{}).container("web", arg, "end")
		c.Mounts = append(c.Mounts, &api.Mount{Destination: dest, Type: "bind", Source: "/"})
		d, err := describe(p, c)
		if err != nil {
			return
		}
		if d.Sandbox || d.Container != "web" || d.Namespace != "n" || d.Pod != "p" || d.Image != "nginx:1" {
			t.Fatalf("the pod's annotations say what the container is: %+v", d.Config)
		}
		a, err := d.adjust(oci.Edit{Launcher: "/launch", Profile: "/profile", Digest: digest, Version: "web@1"})
		if err != nil {
			return
		}
		args := a.GetArgs()
		want := append([]string{"", oci.LauncherPath, "exec"}, "--file", oci.ProfilePath, "--digest", digest, "--")
		if len(args) != len(want)+2 || !slices.Equal(args[:len(want)], want) || args[len(args)-1] != "end" {
			t.Fatalf("arguments %q", args)
		}
		if got := args[len(args)-2]; got != arg {
			t.Fatalf("argument %q became %q", arg, got)
		}
		if len(a.GetMounts()) != 3 || a.GetMounts()[1].GetSource() != "/launch" || a.GetMounts()[2].GetSource() != "/profile" {
			t.Fatalf("mounts %v", a.GetMounts())
		}
		if a.GetAnnotations()[oci.AnnotationApplied] != digest {
			t.Fatalf("annotations %v", a.GetAnnotations())
		}
	})
}
