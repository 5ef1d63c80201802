package metrics

import (
	"fmt"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
)

// Kind is the type of a metric in Prometheus' terms.
type Kind string

// Kinds of metrics.
const (
	Counter   Kind = "counter"
	Gauge     Kind = "gauge"
	Histogram Kind = "histogram"
)

// Definition is a metric.
type Definition struct {
	Name string
	Kind Kind
	Help string
	// Labels in order.
	Labels []Label
	// Buckets are the upper bounds of a histogram, seconds.
	Buckets []float64
}

// Label is a label and what its values are, which is a bounded set.
type Label struct{ Name, Values string }

// Names of metrics, as code here refers to them.
const (
	buildInfo      = "policyd_build_info"
	ready          = "policyd_ready"
	rpcs           = "policyd_rpcs_total"
	rpcDuration    = "policyd_rpc_duration_seconds"
	starts         = "policyd_sandbox_starts_total"
	startFailures  = "policyd_sandbox_start_failures_total"
	startsDegraded = "policyd_sandbox_starts_degraded_total"
	startDuration  = "policyd_sandbox_start_duration_seconds"
	sandboxes      = "policyd_sandboxes"
	degraded       = "policyd_sandboxes_degraded"
	outdated       = "policyd_sandboxes_outdated"
	profileAsked   = "policyd_profile_requests_total"
	profileFrom    = "policyd_profiles_total"
	compileTime    = "policyd_compile_duration_seconds"
	documents      = "policyd_store_documents"
	versions       = "policyd_store_versions"
	logEntries     = "policyd_store_log_entries"
	storeSize      = "policyd_store_size_bytes"
	storeFree      = "policyd_store_free_bytes"
	storeCommits   = "policyd_store_commits_total"
	landlockABI    = "policyd_landlock_abi"
	smackAvailable = "policyd_smack_available"
	smackLoaded    = "policyd_smack_loaded"
	smackFailed    = "policyd_smack_assigned_not_in_force"
	smackDrift     = "policyd_smack_drift"
	smackRules     = "policyd_smack_rules"
	smackLabels    = "policyd_smack_labels"
	smackBudget    = "policyd_smack_label_budget"
	fleetState     = "policyd_fleet_state"
	fleetConnected = "policyd_fleet_connected"
	fleetDesired   = "policyd_fleet_desired_sequence"
	fleetLoaded    = "policyd_fleet_loaded_sequence"
	fleetExpiry    = "policyd_fleet_expiry_timestamp_seconds"
	fleetHalts     = "policyd_fleet_rollout_halts_total"
	readable       = "policyd_state_readable"
	reloads        = "policyd_config_reloads_total"
	reloadOK       = "policyd_config_last_reload_successful"
	reloadTime     = "policyd_config_last_load_timestamp_seconds"
)

// Answers of GetProfile.
const (
	answerProfile     = "profile"
	answerDegraded    = "degraded"
	answerNotModified = "not_modified"
	answerNoBinding   = "no_binding"
	answerRefused     = "refused"
)

// Where a profile came from.
const (
	FromMemory   = "memory"
	FromStore    = "store"
	FromCompiler = "compiler"
	FromNowhere  = "failed"
)

// Parts of the state that a scrape reads.
const (
	partStore     = "store"
	partSandboxes = "sandboxes"
	partSmack     = "smack"
)

const (
	byPolicyd = "policyd"
	byOthers  = "others"
)

var fast = []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 10}

var table = []Definition{
	{Name: buildInfo, Kind: Gauge, Help: "Always 1; the labels say which policyd this is.", Labels: []Label{{"version", "of policyd"}, {"go_version", "it was built with"}}},
	{Name: ready, Kind: Gauge, Help: "1 when the stored policies are compiled and the assigned SmackPolicy is in force: what health says."},

	{Name: rpcs, Kind: Counter, Help: "Calls that have ended.", Labels: []Label{{"method", "service and method, as `PolicyService/Apply`"}, {"code", "canonical code of gRPC, as `OK`"}}},
	{Name: rpcDuration, Kind: Histogram, Buckets: fast, Help: "How long calls took. Calls that stream are not here: they take as long as somebody watches.", Labels: []Label{{"method", "as above"}}},

	{Name: starts, Kind: Counter, Help: "Sandboxes started by policyd. A start repeated by its request id counts again.", Labels: []Label{{"how", "`attached` or `detached`"}}},
	{Name: startFailures, Kind: Counter, Help: "Starts that were refused or failed; no process ran.", Labels: []Label{{"reason", "of the [errors of the API](errors.md), as `UNSUPPORTED_BY_KERNEL`"}}},
	{Name: startsDegraded, Kind: Counter, Help: "Of the starts those with something not enforced, as their policies' `enforcement: degrade` allows."},
	{Name: startDuration, Kind: Histogram, Buckets: fast, Help: "From the request to the answer that the program runs."},
	{Name: sandboxes, Kind: Gauge, Help: "Sandboxes alive."},
	{Name: degraded, Kind: Gauge, Help: "Of them those with something not enforced."},
	{Name: outdated, Kind: Gauge, Help: "Of them those on an older version than the newest."},

	{Name: profileAsked, Kind: Counter, Help: "Calls of GetProfile: container runtimes, units, `policyctl exec`.", Labels: []Label{{
		"answer",
		"`profile`, `degraded` (a profile that this kernel enforces in part), `not_modified`, `no_binding` (nothing matches the workload; it is not started), `refused` (anything else)",
	}}},
	{Name: profileFrom, Kind: Counter, Help: "Profiles that were needed, by where they came from.", Labels: []Label{{"from", "`memory`, `store` (kept compiled), `compiler`, `failed` (does not compile)"}}},
	{Name: compileTime, Kind: Histogram, Buckets: fast, Help: "How long compiling a policy took, where neither memory nor store had its profile."},

	{Name: documents, Kind: Gauge, Help: "Documents in the store that are not deleted.", Labels: []Label{{"kind", "`LandlockPolicy`, `SmackPolicy`, `Fragment`, `Binding`"}}},
	{Name: versions, Kind: Gauge, Help: "Versions in the store, of all documents."},
	{Name: logEntries, Kind: Gauge, Help: "Entries of the chained log."},
	{Name: storeSize, Kind: Gauge, Help: "Size of the store's file."},
	{Name: storeFree, Kind: Gauge, Help: "Of it what `policyctl db compact` would give back."},
	{Name: storeCommits, Kind: Counter, Help: "Transactions written since the store's file was made; a compacted or restored file goes on from its own number."},

	{Name: landlockABI, Kind: Gauge, Help: "Landlock ABI of the kernel; 0 without Landlock."},
	{Name: smackAvailable, Kind: Gauge, Help: "1 when policyd can load Smack rules on this host."},
	{Name: smackLoaded, Kind: Gauge, Help: "1 when a SmackPolicy is in force."},
	{Name: smackFailed, Kind: Gauge, Help: "1 when a SmackPolicy is assigned to this host and is not in force."},
	{Name: smackDrift, Kind: Gauge, Help: "Differences between the policy in force and the kernel's rules and settings."},
	{Name: smackRules, Kind: Gauge, Help: "Rules in the kernel.", Labels: []Label{{"owner", "`policyd` or `others`"}}},
	{Name: smackLabels, Kind: Gauge, Help: "Labels the kernel knows, which it never frees."},
	{Name: smackBudget, Kind: Gauge, Help: "From how many labels on policyd warns."},

	{Name: fleetState, Kind: Gauge, Help: "1 for the state of this node in its fleet, 0 for the others; none of a host that follows no fleet.", Labels: []Label{{"state", "`Pending`, `Compiling`, `Loaded`, `Degraded`, `Failed`, `Stale`, `Skipped`, `Halted`"}}},
	{Name: fleetConnected, Kind: Gauge, Help: "1 while etcd answers. What is in force stays without it."},
	{Name: fleetDesired, Kind: Gauge, Help: "Sequence number of the newest pointer of the channel that was accepted."},
	{Name: fleetLoaded, Kind: Gauge, Help: "The newest one whose bundle for this node is in force."},
	{Name: fleetExpiry, Kind: Gauge, Help: "When the pointer's time is up, Unix time; then the node calls itself Stale and goes on."},
	{Name: fleetHalts, Kind: Counter, Help: "Rollouts that this host, elected to carry them on, has halted: more nodes failed than may. Only a person takes a halt away."},

	{Name: readable, Kind: Gauge, Help: "0 when a part of the state could not be read for this scrape; its metrics are then left out.", Labels: []Label{{"part", "`store`, `sandboxes`, `smack`"}}},
	{Name: reloads, Kind: Counter, Help: "Reloads of the configuration.", Labels: []Label{{"result", "`ok`, or `error`: nothing was changed"}}},
	{Name: reloadOK, Kind: Gauge, Help: "0 when the last reload found a mistake, and the configuration in force is older than the file."},
	{Name: reloadTime, Kind: Gauge, Help: "When the configuration in force was read, Unix time."},
}

// Table is every metric of policyd's own, in the order of the documentation. The metrics of the Go runtime (go_...) and
// of the process (process_...) come beside them.
func Table() []Definition { return slices.Clone(table) }

// defined finds a metric of the table; that it is there is the promise of this package.
func defined(name string) Definition {
	i := slices.IndexFunc(table, func(d Definition) bool { return d.Name == name })
	if i < 0 {
		panic(fmt.Sprintf("metric %s is not in the table", name))
	}
	return table[i]
}

func (d Definition) labelNames() []string {
	names := make([]string, 0, len(d.Labels))
	for _, l := range d.Labels {
		names = append(names, l.Name)
	}
	return names
}

func (d Definition) desc() *prometheus.Desc {
	return prometheus.NewDesc(d.Name, d.Help, d.labelNames(), nil)
}
