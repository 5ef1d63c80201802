package config

import (
	"net"
	"net/url"
	"regexp"
	"slices"
)

// Fleet is the channel of a fleet that this host follows.
type Fleet struct {
	// Name is the fleet's, Node this host's in it; Node is empty for the host's name.
	Name, Node string
	// Endpoints of etcd: https://host:port, or http:// of this host.
	Endpoints []string
	// Certificate, Key and CA are PEM files of a client of etcd, see [File]; all are empty without TLS.
	Certificate, Key, CA string
	// Channel is followed as long as no admin of the fleet has said another.
	Channel string
	// Channels are all that this host may follow, whatever an admin has said; none: any.
	Channels []string
	// Content and Rollout are the keys whose signatures are believed.
	Content, Rollout Signers
	// Controller makes this host one of those that may be elected to carry rollouts on; RolloutKey is the file of the
	// private key that it signs pointers with, see [File].
	Controller bool
	RolloutKey string
}

// Signers are verifier keys, of which Threshold must have signed.
type Signers struct {
	Threshold int
	Keys      []string
}

// fleetName is the name of a fleet, a node or a channel (internal/fleet.ValidName, which this package may not import).
var fleetName = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$`)

// verifierKey is what golang.org/x/mod/sumdb/note makes: a name, the key's hash, the key.
var verifierKey = regexp.MustCompile(`^[^+\s]+\+[0-9a-f]{8}\+[A-Za-z0-9+/=]+$`)

// fileFleet is the section as it is written.
type fileFleet struct {
	Name        string       `yaml:"name"`
	Node        string       `yaml:"node"`
	Endpoints   []string     `yaml:"endpoints"`
	Certificate string       `yaml:"certificate"`
	Key         string       `yaml:"key"`
	CA          string       `yaml:"ca"`
	Channel     string       `yaml:"channel"`
	Channels    []string     `yaml:"channels"`
	ContentKeys *fileSigners `yaml:"contentKeys"`
	RolloutKeys *fileSigners `yaml:"rolloutKeys"`
	Controller  bool         `yaml:"controller"`
	RolloutKey  string       `yaml:"rolloutKey"`
}

type fileSigners struct {
	Threshold *int     `yaml:"threshold"`
	Keys      []string `yaml:"keys"`
}

func (f *file) fleetInto(c *Config, v *validator) {
	s := f.Fleet
	if s == nil {
		return
	}
	c.Fleet = &Fleet{
		Name: s.Name, Node: s.Node, Endpoints: s.Endpoints, Certificate: s.Certificate, Key: s.Key, CA: s.CA, Channel: s.Channel, Channels: s.Channels,
		Controller: s.Controller, RolloutKey: s.RolloutKey,
	}
	for _, n := range []struct {
		key, value string
		needed     bool
	}{{"name", s.Name, true}, {"node", s.Node, false}, {"channel", s.Channel, false}} {
		if (n.needed || n.value != "") && !fleetName.MatchString(n.value) {
			v.bad(at("fleet", n.key), "%q is not a name of letters, digits, and - _ . within", n.value)
		}
	}
	for i, c := range s.Channels {
		if !fleetName.MatchString(c) {
			v.bad(at("fleet", "channels", i), "%q is not a name of letters, digits, and - _ . within", c)
		}
	}
	if s.Channel != "" && len(s.Channels) > 0 && !slices.Contains(s.Channels, s.Channel) {
		v.bad(at("fleet", "channel"), "%s is not among fleet.channels", s.Channel)
	}
	tls := f.endpointsInto(v)
	for _, p := range []struct {
		key, value string
		needed     bool
	}{{"certificate", s.Certificate, tls}, {"key", s.Key, tls}, {"ca", s.CA, tls}, {"rolloutKey", s.RolloutKey, s.Controller}} {
		switch {
		case p.value == "" && !p.needed:
		case p.value != "" && !p.needed && p.key != "rolloutKey":
			v.bad(at("fleet", p.key), "is given, and the endpoints are http://")
		case p.value != "" && !p.needed:
			v.bad(at("fleet", p.key), "is given, and fleet.controller is not true: a key that signs stays where it is needed")
		default:
			if err := checkFile(p.value); err != nil {
				v.bad(at("fleet", p.key), "%v", err)
			}
		}
	}
	c.Fleet.Content = s.ContentKeys.signers("contentKeys", v)
	c.Fleet.Rollout = s.RolloutKeys.signers("rolloutKeys", v)
}

// endpointsInto tells whether the endpoints speak TLS.
func (f *file) endpointsInto(v *validator) (tls bool) {
	if len(f.Fleet.Endpoints) == 0 {
		v.bad(at("fleet", "endpoints"), "no endpoint of etcd is named")
	}
	for i, e := range f.Fleet.Endpoints {
		u, err := url.Parse(e)
		switch {
		case err != nil || u.Hostname() == "" || u.Port() == "" || u.Path != "" || u.User != nil || u.Scheme != "https" && u.Scheme != "http":
			v.bad(at("fleet", "endpoints", i), "%q is not https://host:port", e)
		case u.Scheme == "http" && u.Hostname() != "localhost" && !net.ParseIP(u.Hostname()).IsLoopback():
			v.bad(at("fleet", "endpoints", i), "%q is of the network and without TLS: anybody could be this node; use https://", e)
		case i > 0 && tls != (u.Scheme == "https"):
			v.bad(at("fleet", "endpoints", i), "%q: endpoints with and without TLS", e)
		}
		if err == nil && i == 0 {
			tls = u.Scheme == "https"
		}
	}
	return tls
}

// signers reads a set of keys. What of it could not be met is refused here, but for what only the keys themselves tell.
func (s *fileSigners) signers(key string, v *validator) Signers {
	if s == nil || len(s.Keys) == 0 {
		v.bad(at("fleet", key), "no key is named, so nothing could be believed; policyctl fleet init prints them")
		return Signers{}
	}
	out := Signers{Threshold: 1, Keys: s.Keys}
	integer(v, at("fleet", key, "threshold"), s.Threshold, 1, len(s.Keys), &out.Threshold)
	for i, k := range s.Keys {
		if !verifierKey.MatchString(k) {
			v.bad(at("fleet", key, "keys", i), "%q is not a verifier key: NAME+HASH+KEY", k)
		}
	}
	return out
}
