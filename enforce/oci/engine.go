package oci

import (
	"cmp"
	"fmt"

	"policyd.dev/policyd/internal/errs"
)

// Annotations by which engines of Kubernetes tell what a container is, after the pod's own: containerd, and CRI-O with
// the kubelet's labels.
const (
	criType      = "io.kubernetes.cri.container-type"
	criImage     = "io.kubernetes.cri.image-name"
	criNamespace = "io.kubernetes.cri.sandbox-namespace"
	criName      = "io.kubernetes.cri.container-name"
	criPod       = "io.kubernetes.cri.sandbox-name"

	crioType      = "io.kubernetes.cri-o.ContainerType"
	crioImage     = "io.kubernetes.cri-o.ImageName"
	kubeNamespace = "io.kubernetes.pod.namespace"
	kubeName      = "io.kubernetes.container.name"
	kubePod       = "io.kubernetes.pod.name"
)

// readEngine takes an engine's word. Each sets its own keys over a pod's, and hands on what a pod has of the other's:
// with both on one container somebody says what the engine does not, and the container is refused.
func (c *Config) readEngine() error {
	a := c.Annotations
	for _, crio := range []string{crioType, crioImage} {
		for _, cri := range []string{criType, criImage, criNamespace, criName, criPod} {
			_, one := a[crio]
			if _, other := a[cri]; one && other {
				return fmt.Errorf("%w: annotations %q and %q: one is CRI-O's and one containerd's, and no engine sets both", errs.ErrInvalid, crio, cri)
			}
		}
	}
	c.Sandbox = cmp.Or(a[criType], a[crioType]) == "sandbox"
	c.Image = cmp.Or(a[criImage], a[crioImage])
	c.Namespace = cmp.Or(a[criNamespace], a[kubeNamespace])
	c.Container = cmp.Or(a[criName], a[kubeName])
	c.Pod = cmp.Or(a[criPod], a[kubePod])
	return nil
}
