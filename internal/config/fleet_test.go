package config

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const (
	testContentKey = "content+0a1b2c3d+AQIDBAUGBwgJCgsMDQ4PEBESExQVFhcYGRobHB0eHyA="
	testRolloutKey = "rollout+4e5f6071+ASEiIyQlJicoKSorLC0uLzAxMjM0NTY3ODk6Ozw9Pj9A"
)

func TestFleet(t *testing.T) {
	got, err := Parse("c.yaml", []byte(`
fleet:
  name: prod
  node: web-1
  endpoints: ["https://etcd-1:2379", "https://[::1]:2379"]
  certificate: /c
  key: credential:fleet-key
  ca: /a
  channel: stable
  channels: [stable, canary]
  contentKeys: {threshold: 2, keys: ["`+testContentKey+`", "other+0a1b2c3d+AQ=="]}
  rolloutKeys: {keys: ["`+testRolloutKey+`"]}
  controller: true
  rolloutKey: /etc/rollout.key
`), 0)
	if err != nil {
		t.Fatal(err)
	}
	want := &Fleet{
		Name: "prod", Node: "web-1", Endpoints: []string{"https://etcd-1:2379", "https://[::1]:2379"}, Certificate: "/c", Key: "credential:fleet-key", CA: "/a",
		Channel: "stable", Channels: []string{"stable", "canary"}, Content: Signers{2, []string{testContentKey, "other+0a1b2c3d+AQ=="}}, Rollout: Signers{1, []string{testRolloutKey}},
		Controller: true, RolloutKey: "/etc/rollout.key",
	}
	if diff := cmp.Diff(want, got.Fleet); diff != "" {
		t.Error(diff)
	}
}

func TestBadFleet(t *testing.T) {
	const keys = "contentKeys: {keys: [\"" + testContentKey + "\"]}, rolloutKeys: {keys: [\"" + testRolloutKey + "\"]}"
	for text, want := range map[string]string{
		"endpoints: [\"http://127.0.0.1:2379\"], " + keys:                        "fleet.name",
		"name: \"a/b\", endpoints: [\"http://127.0.0.1:2379\"], " + keys:         "fleet.name",
		"name: p, node: \"..\", endpoints: [\"http://127.0.0.1:2379\"], " + keys: "fleet.node",
		"name: p, " + keys: "no endpoint",
		"name: p, endpoints: [\"etcd:2379\"], " + keys:                                                                                                             "not https://host:port",
		"name: p, endpoints: [\"http://etcd:2379\"], " + keys:                                                                                                      "without TLS",
		"name: p, endpoints: [\"https://etcd:2379\"], " + keys:                                                                                                     "fleet.certificate",
		"name: p, endpoints: [\"https://a:1\", \"http://localhost:1\"], " + keys:                                                                                   "with and without TLS",
		"name: p, endpoints: [\"http://localhost:1\"], ca: /a, " + keys:                                                                                            "the endpoints are http://",
		"name: p, endpoints: [\"http://localhost:1\"], controller: true, " + keys:                                                                                  "fleet.rolloutKey",
		"name: p, endpoints: [\"http://localhost:1\"], rolloutKey: /k, " + keys:                                                                                    "fleet.controller is not true",
		"name: p, endpoints: [\"http://localhost:1\"], contentKeys: {keys: [x]}, rolloutKeys: {keys: [" + testRolloutKey + "]}":                                    "not a verifier key",
		"name: p, endpoints: [\"http://localhost:1\"], contentKeys: {keys: [" + testContentKey + "]}":                                                              "fleet.rolloutKeys",
		"name: p, endpoints: [\"http://localhost:1\"], contentKeys: {threshold: 2, keys: [" + testContentKey + "]}, rolloutKeys: {keys: [" + testRolloutKey + "]}": "fleet.contentKeys.threshold",
		"name: p, endpoints: [\"http://localhost:1\"], contentKeys: {threshold: 0, keys: [" + testContentKey + "]}, rolloutKeys: {keys: [" + testRolloutKey + "]}": "fleet.contentKeys.threshold",
		"name: p, endpoints: [\"http://localhost:1\"], channels: [\"a/b\"], " + keys:                                                                               "fleet.channels[0]",
		"name: p, endpoints: [\"http://localhost:1\"], channel: edge, channels: [stable, canary], " + keys:                                                         "edge is not among",
		"name: p, endpoint: [], " + keys: "unknown key",
	} {
		if _, err := Parse("c.yaml", []byte("fleet: {"+text+"}\n"), 0); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q", text, err, want)
		}
	}
}
