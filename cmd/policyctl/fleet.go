package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"os/user"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"golang.org/x/mod/sumdb/note"

	"policyd.dev/policyd/internal/cli"
	"policyd.dev/policyd/internal/errs"
	"policyd.dev/policyd/internal/fleet"
	"policyd.dev/policyd/internal/fleet/controller"
	"policyd.dev/policyd/internal/fleet/kv"
)

// reachTimeout is how long etcd may take to answer at all.
const reachTimeout = 5 * time.Second

// fleetApp is what the fleet's commands share: where etcd is, whom to believe
// and what to sign with.
type fleetApp struct {
	*app
	file    string        // --fleet-config
	flags   fleetSettings // given on the command line
	stored  *kv.Store
	alerted bool // that no controller is elected
	settings
}

// settings are those of the file under those of the command line.
type settings struct{ fleetSettings }

func newFleet(a *app) *cobra.Command {
	f := &fleetApp{app: a}
	cmd := &cobra.Command{
		Use:   "fleet",
		Short: "Give many hosts their policies through etcd, signed and in stages",
		Long: "fleet publishes bundles of policies, signed by content keys, and moves the pointers of channels to\n" +
			"them, signed by rollout keys. Every node verifies both itself; etcd only carries them.\n\n" +
			"Where etcd is, whom to believe and what to sign with stands in fleet.yaml beside policyd's\n" +
			"configuration (/etc/policyd of root, ~/.config/policyd of others), which fleet init writes.",
		Example: "  policyctl fleet init --name prod --endpoints https://etcd1:2379 --ca ca.pem --cert admin.pem --key admin-key.pem\n" +
			"  policyctl fleet enroll web-1 -l zone=eu\n" +
			"  policyctl fleet publish stable -f policies/ -m 'open port 8080'\n" +
			"  policyctl fleet rollout stable --to sha256:0f3c --stages 1,5,25,100 --soak 10m\n" +
			"  policyctl fleet watch stable",
		Args: unknownCommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	p := cmd.PersistentFlags()
	p.StringVar(&f.file, "fleet-config", "", "file of settings (default fleet.yaml beside policyd's configuration)")
	p.StringVar(&f.flags.Name, "name", "", "name of the fleet")
	p.StringSliceVar(&f.flags.Endpoints, "endpoints", nil, "of etcd, https://host:2379, separated by commas")
	p.StringVar(&f.flags.CA, "ca", "", "PEM file of authorities of etcd's certificate")
	p.StringVar(&f.flags.Certificate, "cert", "", "PEM file of the client's certificate")
	p.StringVar(&f.flags.Key, "key", "", "PEM file of its key")
	_ = cmd.MarkPersistentFlagFilename("fleet-config", "yaml", "yml")
	for _, name := range []string{"ca", "cert", "key"} {
		_ = cmd.MarkPersistentFlagFilename(name)
	}
	cmd.AddCommand(newFleetInit(f), newFleetEnroll(f), newFleetNodes(f), newFleetStatus(f), newFleetPublish(f), newFleetSign(f), newFleetRollout(f),
		newFleetWatch(f), newFleetHold(f, fleet.Paused), newFleetResume(f), newFleetHold(f, fleet.HaltedAll), newFleetRollback(f), newFleetAdvance(f),
		newFleetVerify(f), newFleetDiff(f))
	return cmd
}

// open reads the settings and connects. The context ends with --timeout (or what
// answers at once may take); cancel closes the connection too.
func (f *fleetApp) open(ctx context.Context) (context.Context, context.CancelFunc, error) {
	if err := f.load(); err != nil {
		return nil, nil, err
	}
	return f.openLoaded(ctx)
}

// openLoaded is open when the settings are there already.
func (f *fleetApp) openLoaded(ctx context.Context) (context.Context, context.CancelFunc, error) {
	d := f.timeout
	if d == 0 {
		d = unaryTimeout
	}
	ctx, cancel := context.WithTimeout(ctx, d)
	closing, err := f.connect(ctx)
	if err != nil {
		cancel()
		return nil, nil, err
	}
	return ctx, func() { cancel(); closing() }, nil
}

// openStreaming is open for what goes on until it is left.
func (f *fleetApp) openStreaming(ctx context.Context) (context.Context, context.CancelFunc, error) {
	if err := f.load(); err != nil {
		return nil, nil, err
	}
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	if f.timeout > 0 {
		within, cancel := context.WithTimeout(ctx, f.timeout)
		ctx, stop = within, func(before context.CancelFunc) context.CancelFunc { return func() { cancel(); before() } }(stop)
	}
	closing, err := f.connect(ctx)
	if err != nil {
		stop()
		return nil, nil, err
	}
	return ctx, func() { stop(); closing() }, nil
}

func (f *fleetApp) connect(ctx context.Context) (func(), error) {
	e := kv.Endpoint{URLs: f.Endpoints, CA: f.CA, Cert: f.Certificate, Key: f.settings.Key, User: f.User}
	if f.PasswordFile != "" {
		raw, err := os.ReadFile(f.PasswordFile)
		if err != nil {
			return nil, err
		}
		e.Password = trimLine(string(raw))
	}
	if len(e.URLs) == 0 {
		return nil, cli.Usage(fmt.Errorf("where etcd is, is not known: give --endpoints, or write it into %s (policyctl fleet init does)", f.path()))
	}
	client, err := kv.Dial(e)
	if errors.Is(err, errs.ErrInvalid) {
		return nil, cli.Usage(err)
	}
	if err != nil {
		return nil, err
	}
	within, cancel := context.WithTimeout(ctx, reachTimeout)
	defer cancel()
	if err := kv.Reach(within, client, e); err != nil {
		client.Close()
		return nil, err
	}
	if f.stored, err = kv.New(client, f.Name); err != nil {
		client.Close()
		return nil, cli.Usage(fmt.Errorf("%w; give --name", err))
	}
	return func() { client.Close() }, nil
}

// trust is whom to believe; an error says what is missing.
func (f *fleetApp) trust() (fleet.Trust, error) {
	t := fleet.Trust{Content: f.ContentKeys.signers(), Rollout: f.RolloutKeys.signers()}
	if err := t.Check(); err != nil {
		return t, fmt.Errorf("%s: %w", f.path(), err)
	}
	return t, nil
}

// member is this person as one who moves rollouts.
func (f *fleetApp) member() (*controller.Member, error) {
	t, err := f.trust()
	if err != nil {
		return nil, err
	}
	return &controller.Member{
		Store: f.stored, Trust: t, Name: whoAmI(), Now: time.Now,
		Signers: func() ([]note.Signer, error) { return signersOf(f.RolloutKeys.SignWith, "rollout", f.path()) },
	}, nil
}

// signersOf reads private keys.
func signersOf(places []string, role, file string) ([]note.Signer, error) {
	if len(places) == 0 {
		return nil, fmt.Errorf("no %s key to sign with: give --sign-with FILE, or name it in %s", role, file)
	}
	var out []note.Signer
	for _, p := range places {
		s, err := fleet.ReadSigner(p)
		if err != nil {
			return nil, err
		}
		out = append(out, s)
	}
	return out, nil
}

// whoAmI is a name for records: who did it, from where.
func whoAmI() string {
	name := "uid-" + fmt.Sprint(os.Getuid())
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	if host, err := os.Hostname(); err == nil {
		name += "@" + host
	}
	return name
}

// channelArg is the channel named, or the one of the settings.
func (f *fleetApp) channelArg(args []string) (string, error) {
	if len(args) > 0 {
		if err := fleet.ValidName(args[0]); err != nil {
			return "", cli.Usage(fmt.Errorf("channel: %w", err))
		}
		return args[0], nil
	}
	if f.Channel == "" {
		return "", cli.Usage(fmt.Errorf("say which channel, or name one in %s", f.path()))
	}
	return f.Channel, nil
}

// atMost checks that there are not more arguments than names.
func atMost(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) > len(names) {
			return exactly(names...)(cmd, args)
		}
		return nil
	}
}
