package main

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/status"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/enforce/oci"
	"policyd.dev/policyd/internal/cli"
)

// reasonNoBinding is why policyd gives a workload no policy.
const reasonNoBinding = "NO_BINDING"

func newResolve(a *app) *cobra.Command {
	w := &apiv1.Workload{}
	var annotations, labels []string
	var uid string
	cmd := &cobra.Command{
		Use:   "resolve",
		Short: "Say which policy a container, a unit or a process would get, and why",
		Long: "resolve asks policyd which Binding decides for a workload of which these facts are known: what is not\n" +
			"said is not known, and a Binding that selects on it does not match. It lists every Binding that\n" +
			"matches, the one that decides first, and behind each other one the rule by which it lost.\n" +
			"Where none matches, policyd's configuration decides (bindings.unmatched): nothing, or one policy.\n" +
			"Bindings that one thing alone keeps from matching are told too (-o wide: in the table), and what that\n" +
			"is. Annotations policyd.dev/param.NAME count as values of the policy's parameters.\n\n" +
			"Exit code 0: it gets a policy, 1: nothing matches and it gets none, 2: no answer (wrong usage, the\n" +
			"policy that is named is not there).",
		Example: "  policyctl resolve --image docker.io/library/nginx:1.29 --namespace edge\n" +
			"  policyctl resolve --annotation policyd.dev/profile=web --label app=shop -o json\n" +
			"  policyctl resolve --unit nginx.service --uid 33",
		Args:        none,
		Annotations: map[string]string{exitRuleKey: exitAnswers},
		RunE: func(cmd *cobra.Command, _ []string) error {
			form, err := cli.ParseFormat(a.output, cli.Table, cli.Wide, cli.JSON, cli.YAML, cli.Name)
			if err != nil {
				return err
			}
			if w.Annotations, err = pairs("--annotation", annotations); err != nil {
				return err
			}
			if ref := w.Annotations[oci.AnnotationProfile]; ref != "" {
				a.note("policyd-runc and policyd-nri follow annotation %s themselves and give %s, unless their configuration says select: bindings", oci.AnnotationProfile, ref)
			}
			if w.Labels, err = pairs("--label", labels); err != nil {
				return err
			}
			if cmd.Flags().Changed("uid") {
				n, err := strconv.ParseUint(uid, 10, 32)
				if err != nil {
					return cli.Usage(fmt.Errorf("--uid %q: want the number of a user", uid))
				}
				user := uint32(n)
				w.Uid = &user
			}
			if !said(w) {
				return cli.Usage(errors.New("say what is known of the workload: --image, --annotation, --label, --namespace, --unit, --uid, --smack-label"))
			}
			ctx, c, cancel, err := a.call(cmd.Context())
			if err != nil {
				return err
			}
			defer cancel()
			res, err := c.Profiles.Resolve(ctx, &apiv1.ResolveRequest{Workload: w})
			if cli.Reason(err) == reasonNoBinding {
				for line := range strings.SplitSeq(status.Convert(err).Message(), "\n") {
					a.note("%s", line)
				}
				return &cli.Exit{Code: cli.ExitRefused}
			}
			if err != nil {
				return err
			}
			return a.resolved(form, res)
		},
	}
	f := cmd.Flags()
	f.StringVar(&w.Image, "image", "", "name of the image, as the runtime gives it")
	f.StringArrayVar(&annotations, "annotation", nil, "annotation, NAME=VALUE; may be repeated")
	f.StringArrayVar(&labels, "label", nil, "label, NAME=VALUE; may be repeated")
	f.StringVar(&w.Namespace, "namespace", "", "namespace of the cluster")
	f.StringVar(&w.Container, "container", "", "name of the container in its pod, for annotations of one container")
	f.StringVar(&w.Unit, "unit", "", "unit of systemd, with its type")
	f.StringVar(&uid, "uid", "", "number of the user")
	f.StringVar(&w.SmackLabel, "smack-label", "", "Smack label of the process")
	for _, name := range []string{"image", "annotation", "label", "namespace", "container", "unit", "uid", "smack-label"} {
		_ = cmd.RegisterFlagCompletionFunc(name, cobra.NoFileCompletions)
	}
	return cmd
}

// said tells whether there is a fact at all.
func said(w *apiv1.Workload) bool {
	return w.GetImage() != "" || len(w.GetAnnotations())+len(w.GetLabels()) > 0 || w.GetNamespace() != "" || w.GetUnit() != "" ||
		w.Uid != nil || w.GetSmackLabel() != ""
}

func (a *app) resolved(form cli.Format, res *apiv1.ResolveResponse) error {
	switch form {
	case cli.JSON, cli.YAML:
		return cli.WriteMessage(a.out, form, res)
	case cli.Name:
		_, err := fmt.Fprintln(a.out, cli.Clean(title(res.GetVersion())))
		return err
	}
	text := res.GetPolicy() + " (" + title(res.GetVersion()) + ")"
	if set := labelText(res.GetParameters()); set != "" {
		text += " with " + set
	}
	if _, err := fmt.Fprintln(a.out, cli.Clean(text)); err != nil {
		return err
	}
	if n := res.GetHidden(); n > 0 {
		a.note("%s that you may not see", count(int(n), "more Binding matches", "more Bindings match"))
	} else if len(res.GetMatches()) == 0 {
		a.note("no Binding matches: policyd's configuration (bindings.unmatched) names the policy")
	}
	nearly := func(m *apiv1.NearMiss) string { return fmt.Sprintf("%s@%d", m.GetName(), m.GetVersion()) }
	if form != cli.Wide {
		defer func() {
			for _, m := range res.GetNear() {
				a.note("nearly: binding %s (%s): %s: %s", nearly(m), m.GetPolicy(), m.GetRule(), m.GetReason())
			}
		}()
	}
	if len(res.GetMatches()) == 0 && (form != cli.Wide || len(res.GetNear()) == 0) {
		return nil
	}
	rows := cli.NewRows(a.out, "BINDING", "POLICY", "RULE", "WHY")
	for _, m := range res.GetMatches() {
		rule, why := m.GetRule(), m.GetReason()
		if rule == "" {
			why = "decides"
		}
		rows.Add(fmt.Sprintf("%s@%d", m.GetName(), m.GetVersion()), m.GetPolicy(), rule, why)
	}
	if form == cli.Wide {
		for _, m := range res.GetNear() {
			rows.Add(nearly(m), m.GetPolicy(), m.GetRule(), "does not match: "+m.GetReason())
		}
	}
	return rows.Flush()
}
