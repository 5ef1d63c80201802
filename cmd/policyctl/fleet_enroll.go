package main

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"go.yaml.in/yaml/v4"

	"policyd.dev/policyd/internal/cli"
	"policyd.dev/policyd/internal/errs"
	"policyd.dev/policyd/internal/fleet"
	"policyd.dev/policyd/internal/fleet/kv"
)

// nodeSection is what a node has in its policyd.yaml.
type nodeSection struct {
	Fleet struct {
		Name        string   `yaml:"name"`
		Node        string   `yaml:"node"`
		Endpoints   []string `yaml:"endpoints,flow"`
		Certificate string   `yaml:"certificate,omitempty"`
		Key         string   `yaml:"key,omitempty"`
		CA          string   `yaml:"ca,omitempty"`
		Channel     string   `yaml:"channel"`
		ContentKeys keyRole  `yaml:"contentKeys"`
		RolloutKeys keyRole  `yaml:"rolloutKeys"`
		Controller  bool     `yaml:"controller,omitempty"`
		RolloutKey  string   `yaml:"rolloutKey,omitempty"`
	} `yaml:"fleet"`
}

func newFleetEnroll(f *fleetApp) *cobra.Command {
	var channel string
	var labels []string
	var remove, controller bool
	cmd := &cobra.Command{
		Use:   "enroll NODE",
		Short: "Add a node to the fleet, or change its channel and labels",
		Long: "enroll writes which channel a node follows and its labels, which the node itself cannot change, and\n" +
			"makes its user and role in etcd: it may read what is public and its own records, and write its own\n" +
			"status. Making users is work for etcd's root; channel and labels are for policyd-admin, too.\n" +
			"It prints what belongs into the node's policyd.yaml. The node's client certificate has the\n" +
			"node's name as its common name; your authority makes it.\n\n" +
			"For a node that is enrolled, it changes what is given, and without options prints that section again.\n" +
			"-l NAME- takes a label away. --controller lets the node carry rollouts on: its user in etcd may then\n" +
			"move pointers and hold; what it signs them with, the private rollout key, you bring there yourself.\n" +
			"--controller=false takes that away.",
		Example: "  policyctl fleet enroll web-1 --channel stable -l zone=eu -l tier=edge\n" +
			"  policyctl fleet enroll web-1 -l tier-\n" +
			"  policyctl fleet enroll ctl-1 --controller\n" +
			"  policyctl fleet enroll web-1 --remove",
		Args:              exactly("NODE"),
		ValidArgsFunction: f.completeNodes,
		RunE: func(cmd *cobra.Command, args []string) error {
			if _, err := cli.ParseFormat(f.output, cli.Table, cli.Name); err != nil {
				return err
			}
			node := args[0]
			if err := fleet.ValidName(node); err != nil {
				return cli.Usage(fmt.Errorf("NODE: %w", err))
			}
			control := cmd.Flags().Changed("controller")
			if remove && (channel != "" || len(labels) > 0 || control) {
				return cli.Usage(errors.New("--remove takes neither --channel, -l nor --controller"))
			}
			ctx, cancel, err := f.open(cmd.Context())
			if err != nil {
				return err
			}
			defer cancel()
			if remove {
				if !f.WithoutRBAC { // first: who may not do it has then changed nothing
					if err := f.stored.RemoveUser(ctx, node); err != nil {
						return needsRoot(err)
					}
				}
				if err := f.stored.RemoveNode(ctx, node); err != nil {
					return err
				}
				f.say("node %s removed", node)
				f.note("it keeps the policies it has; revoke its certificate, since etcd ends open watches only when it notices")
				return nil
			}
			old, err := f.stored.Spec(ctx, node)
			if errors.Is(err, errs.ErrInvalid) || errors.Is(err, errs.ErrTooLarge) {
				f.note("what was kept of node %s cannot be read and is replaced: %v", node, err)
				old, err = nil, nil
			}
			if err != nil {
				return err
			}
			spec, err := changedSpec(old, channel, f.Channel, labels)
			if err != nil {
				return err
			}
			if !f.WithoutRBAC {
				err := f.stored.EnrollUser(ctx, node)
				if err != nil && (old == nil || !errors.Is(err, errs.ErrNotAllowed)) {
					return needsRoot(err) // a node that is there has its user
				}
				if control {
					if err := f.stored.LetControl(ctx, node, controller); err != nil {
						return needsRoot(err)
					}
				}
			}
			if err := f.stored.PutSpec(ctx, node, spec); err != nil {
				return err
			}
			if f.output == string(cli.Name) {
				f.say("%s", node)
				return nil
			}
			if old != nil && (channel != "" || len(labels) > 0 || control && !controller) {
				f.say("node %s: channel %s, labels %s", node, spec.Channel, dashed(labelText(spec.Labels)))
				return nil
			}
			return f.printNode(node, spec, controller)
		},
	}
	cmd.Flags().StringVar(&channel, "channel", "", "channel that the node follows (default the one of the settings)")
	cmd.Flags().StringArrayVarP(&labels, "label", "l", nil, "label NAME=VALUE, or NAME- to take it away; may be repeated")
	cmd.Flags().BoolVar(&controller, "controller", false, "let the node carry rollouts on")
	cmd.Flags().BoolVar(&remove, "remove", false, "take the node out of the fleet")
	_ = cmd.RegisterFlagCompletionFunc("channel", f.completeChannelFlag)
	return cmd
}

// needsRoot says whose work it is to make users of etcd and to take them away.
func needsRoot(err error) error {
	if errors.Is(err, errs.ErrNotAllowed) {
		return fmt.Errorf("%w; users and roles of etcd are its root's: use root's certificate", err)
	}
	return err
}

// changedSpec is the Spec of a node after what the command line says.
func changedSpec(old *fleet.Spec, channel, fallback string, labels []string) (*fleet.Spec, error) {
	spec := &fleet.Spec{Channel: fallback, Enrolled: time.Now().UTC().Truncate(time.Second)}
	if old != nil {
		spec = old
	}
	if channel != "" {
		spec.Channel = channel
	}
	if spec.Labels == nil {
		spec.Labels = map[string]string{}
	}
	var set []string
	for _, l := range labels {
		if name, ok := strings.CutSuffix(l, "-"); ok && !strings.Contains(l, "=") {
			delete(spec.Labels, name)
			continue
		}
		set = append(set, l)
	}
	given, err := pairs("-l", set)
	if err != nil {
		return nil, err
	}
	for k, v := range given {
		spec.Labels[k] = v
	}
	spec.By = whoAmI()
	if err := spec.Check(); err != nil {
		if errors.Is(err, errs.ErrInvalid) {
			return nil, cli.Usage(err)
		}
		return nil, err
	}
	return spec, nil
}

// printNode says what belongs on a node.
func (f *fleetApp) printNode(node string, spec *fleet.Spec, controller bool) error {
	var s nodeSection
	s.Fleet.Name, s.Fleet.Node, s.Fleet.Endpoints, s.Fleet.Channel = f.Name, node, f.Endpoints, spec.Channel
	if f.CA != "" {
		s.Fleet.CA, s.Fleet.Certificate, s.Fleet.Key = "/etc/policyd/fleet/etcd-ca.pem", "/etc/policyd/fleet/node.pem", "credential:fleet-key"
	}
	s.Fleet.ContentKeys, s.Fleet.RolloutKeys = f.ContentKeys, f.RolloutKeys
	s.Fleet.ContentKeys.SignWith, s.Fleet.RolloutKeys.SignWith = nil, nil
	if controller {
		s.Fleet.Controller, s.Fleet.RolloutKey = true, "credential:rollout-key"
	}
	body, err := yaml.Dump(s, yaml.WithIndent(2))
	if err != nil {
		return err
	}
	f.note("node %s is enrolled; this belongs into its /etc/policyd/policyd.yaml:", node)
	if _, err := f.out.Write(body); err != nil {
		return err
	}
	if f.CA != "" && !f.WithoutRBAC {
		f.note("its client certificate needs the common name %s", kv.NodeUser(node))
	}
	return nil
}
