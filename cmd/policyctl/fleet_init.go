package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	clientv3 "go.etcd.io/etcd/client/v3"

	"policyd.dev/policyd/internal/cli"
	"policyd.dev/policyd/internal/errs"
	"policyd.dev/policyd/internal/fleet"
	"policyd.dev/policyd/internal/fleet/kv"
)

// initOptions are the flags of fleet init.
type initOptions struct {
	channel, keysDir string
	content, rollout keyOptions
	withoutRBAC      bool
	enableAuth       bool
}

// keyOptions are the keys of one role: names of new ones, and public ones of others.
type keyOptions struct {
	keys      []string
	threshold int
}

func newFleetInit(f *fleetApp) *cobra.Command {
	o := &initOptions{}
	cmd := &cobra.Command{
		Use:   "init",
		Short: "Begin a fleet: keys, users and roles of etcd, settings",
		Long: "init makes a content key and a rollout key, the users and roles of etcd for those who work with the\n" +
			"fleet, and writes the settings. Private keys stay in files that only you can read; keep the content\n" +
			"key away from etcd and from nodes (docs/fleet.md tells what each key can do to you).\n\n" +
			"--content-key and --rollout-key take the name of a key to make, or the public key of somebody else;\n" +
			"with thresholds above 1, several must sign.\n\n" +
			"An etcd before 3.6.14 or 3.7.1 is refused: there a user who may read one key could watch all keys\n" +
			"behind it (GHSA-xg4h-6gfc-h4m8). --without-rbac makes no users and roles and takes any etcd.",
		Example: "  policyctl fleet init --name prod --endpoints https://etcd1:2379,https://etcd2:2379 --ca ca.pem --cert root.pem --key root-key.pem\n" +
			"  policyctl fleet init --name lab --endpoints http://127.0.0.1:2379 --without-rbac\n" +
			"  policyctl fleet init --name prod --content-key alice --content-key bob+0f3c9a11+AdGh... --content-threshold 2",
		Args: none,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if _, err := cli.ParseFormat(f.output, cli.Table); err != nil {
				return err
			}
			return f.init(cmd, o)
		},
	}
	fl := cmd.Flags()
	fl.StringVar(&o.channel, "channel", "stable", "the first channel")
	fl.StringVar(&o.keysDir, "keys", "", "folder for private keys (default a folder of the fleet's name beside the settings)")
	fl.StringArrayVar(&o.content.keys, "content-key", []string{"content"}, "name of a key to make, or a public key; may be repeated")
	fl.IntVar(&o.content.threshold, "content-threshold", 1, "how many content keys must sign a bundle")
	fl.StringArrayVar(&o.rollout.keys, "rollout-key", []string{"rollout"}, "name of a key to make, or a public key; may be repeated")
	fl.IntVar(&o.rollout.threshold, "rollout-threshold", 1, "how many rollout keys must sign a pointer")
	fl.BoolVar(&o.withoutRBAC, "without-rbac", false, "make no users and roles of etcd, and take one that could not keep users apart")
	fl.BoolVar(&o.enableAuth, "enable-auth", false, "turn on etcd's authentication; this client's certificate must be root's")
	_ = cmd.MarkFlagDirname("keys")
	return cmd
}

func (f *fleetApp) init(cmd *cobra.Command, o *initOptions) error {
	if err := fleet.ValidName(o.channel); err != nil {
		return cli.Usage(fmt.Errorf("--channel: %w", err))
	}
	if o.withoutRBAC && o.enableAuth {
		return cli.Usage(errors.New("--enable-auth needs the users and roles that --without-rbac leaves out"))
	}
	path := f.path()
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s: %w: this host has settings of a fleet; give another --fleet-config, or remove it", path, errs.ErrExists)
	}
	// The file is written below; until then nothing but the command line counts.
	f.file = path
	s := f.flags
	for _, p := range []*string{&s.CA, &s.Certificate, &s.Key} {
		if *p != "" {
			abs, err := filepath.Abs(*p)
			if err != nil {
				return err
			}
			*p = abs
		}
	}
	f.settings.fleetSettings = s
	if err := fleet.ValidName(s.Name); err != nil {
		return cli.Usage(fmt.Errorf("--name: %w", err))
	}
	dir := o.keysDir
	if dir == "" {
		dir = filepath.Join(filepath.Dir(path), s.Name)
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	made, err := makeKeys(dir, o, &s)
	if err != nil {
		return err
	}
	ctx, cancel, err := f.openLoaded(cmd.Context())
	if err != nil {
		return err
	}
	defer cancel()
	l := f.stored.Layout
	res, err := f.stored.Client.Get(ctx, l.Prefix(), clientv3.WithPrefix(), clientv3.WithLimit(1), clientv3.WithKeysOnly())
	if err != nil {
		return kv.Error(err)
	}
	if len(res.Kvs) > 0 {
		return fmt.Errorf("fleet %s: %w in this etcd; copy its settings and keys from who made it", s.Name, errs.ErrExists)
	}
	if !o.withoutRBAC {
		if _, err := f.stored.CheckServer(ctx); err != nil {
			return err
		}
		if err := f.stored.InitRoles(ctx); err != nil {
			return err
		}
		if o.enableAuth {
			if err := f.stored.EnableAuth(ctx); err != nil {
				return err
			}
		}
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	for _, k := range made {
		if err := fleet.WriteKey(k.path, k.private); err != nil {
			return err
		}
	}
	s.Channel, s.WithoutRBAC = o.channel, o.withoutRBAC
	if err := f.save(s); err != nil {
		return err
	}
	f.told(s, made, o)
	return nil
}

// newKey is a key that init makes.
type newKey struct{ role, path, private, public string }

// makeKeys makes the keys and puts them into the settings. Nothing is written yet.
func makeKeys(dir string, o *initOptions, s *fleetSettings) ([]newKey, error) {
	var made []newKey
	for _, r := range []struct {
		role string
		o    keyOptions
		into *keyRole
	}{{"content", o.content, &s.ContentKeys}, {"rollout", o.rollout, &s.RolloutKeys}} {
		r.into.Threshold = r.o.threshold
		for _, key := range r.o.keys {
			if strings.Contains(key, "+") {
				r.into.Keys = append(r.into.Keys, key)
				continue
			}
			private, public, err := fleet.NewKey(key)
			if err != nil {
				return nil, cli.Usage(fmt.Errorf("--%s-key: %w", r.role, err))
			}
			k := newKey{r.role, filepath.Join(dir, key+".key"), private, public}
			if _, err := os.Lstat(k.path); err == nil {
				return nil, fmt.Errorf("%s: %w; keys are never written over. An init that ended before it wrote the settings leaves one that nobody trusts: remove it then", k.path, errs.ErrExists)
			}
			made = append(made, k)
			r.into.Keys = append(r.into.Keys, public)
			r.into.SignWith = append(r.into.SignWith, k.path)
		}
	}
	t := fleet.Trust{Content: s.ContentKeys.signers(), Rollout: s.RolloutKeys.signers()}
	if err := t.Check(); err != nil {
		return nil, cli.Usage(err)
	}
	return made, nil
}

// told says what was made and what comes next.
func (f *fleetApp) told(s fleetSettings, made []newKey, o *initOptions) {
	f.say("fleet %s has begun", s.Name)
	for _, k := range made {
		f.say("  %s key %s: %s", k.role, fleet.KeyName(k.public), k.path)
		f.say("    public: %s", k.public)
	}
	f.say("  settings: %s", f.path())
	if o.withoutRBAC {
		f.say("  no users and roles in etcd: whoever reaches it can change what it holds (nodes verify signatures all the same)")
	} else {
		f.say("  users of etcd: %s, %s, %s, %s (a client certificate's common name)", kv.UserAdmin, kv.UserControl, kv.UserPublisher, kv.UserAuditor)
		if !o.enableAuth {
			f.say("  etcd does not ask yet who comes: give everybody a certificate, then `etcdctl auth enable`")
		}
	}
	f.note("move the content key to where bundles are signed, and keep a copy of both keys apart from this machine")
	f.note("next: policyctl fleet enroll NODE; policyctl fleet publish %s -f FOLDER -m WHY", o.channel)
}
