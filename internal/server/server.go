package server

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/singleflight"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/enforce/landlock"
	"policyd.dev/policyd/internal/binding"
	"policyd.dev/policyd/internal/config"
	"policyd.dev/policyd/internal/metrics"
	"policyd.dev/policyd/internal/peer"
	"policyd.dev/policyd/internal/sandbox"
	"policyd.dev/policyd/internal/smackhost"
	"policyd.dev/policyd/store"
)

// Config of [New]. Store, Sandboxes, Grants or nil, and Limits must be given.
type Config struct {
	Store     *store.Store
	Sandboxes *sandbox.Manager
	Support   landlock.Support
	// Containment is the name of how descendants are ended, for Status.
	Containment string
	// Smack owns the host's smackfs. nil: one that has not looked yet whether a policy is assigned.
	Smack *smackhost.Manager
	// Unmatched is a reference to the policy of workloads that no Binding matches; empty: they get none.
	Unmatched string
	// Records is the folder with the records of containers (internal/containers); empty: there are none.
	Records string
	// LabelPool is how many labels a pool of labels for sandboxes has; 0: 64.
	LabelPool int
	// Grants are those of the configuration; nil: the defaults.
	Grants []config.Grant
	Limits config.Limits
	// TLS, when set, allows TCP listeners; it must verify client certificates.
	TLS *tls.Config
	Log *slog.Logger
	// UID is who policyd runs as.
	UID int
	// Metrics counts calls and starts; nil: nobody does.
	Metrics *metrics.Metrics
	// Now is the clock of limits. nil: time.Now.
	Now func() time.Time
}

// Server is all services.
type Server struct {
	apiv1.UnimplementedPolicyServiceServer
	apiv1.UnimplementedProfileServiceServer
	apiv1.UnimplementedSandboxServiceServer
	apiv1.UnimplementedContainerServiceServer
	apiv1.UnimplementedAdminServiceServer
	apiv1.UnimplementedSmackServiceServer

	store       *store.Store
	sandboxes   *sandbox.Manager
	support     landlock.Support
	containment string
	host        *smackhost.Manager
	labelPool   int
	records     string
	log         *slog.Logger
	metrics     *metrics.Metrics
	usage       usage
	uid         int
	started     time.Time
	now         func() time.Time

	configuration atomic.Pointer[apiv1.ConfigurationStatus]
	authority     atomic.Pointer[authority]
	limits        atomic.Pointer[config.Limits]
	starts        startRates
	open          *peer.Connections

	bindingsMu sync.Mutex                    // who reads the Bindings, to put them into
	bindings   atomic.Pointer[binding.Index] // nil: not read yet
	unmatched  atomic.Pointer[string]

	fleet atomic.Pointer[func() *apiv1.FleetStatus] // nil: this host follows none

	cacheMu    sync.RWMutex
	generation atomic.Uint64
	versions   *lru[string, *apiv1.Version]
	answers    *lru[string, *answer]
	compiled   *lru[string, *compiled]
	compiling  singleflight.Group

	grpc       *grpc.Server
	health     *health.Server
	warmed     atomic.Bool
	stopping   context.Context
	stop       context.CancelFunc
	cutting    context.Context // ends when streams of sandboxes must
	cut        context.CancelFunc
	background sync.WaitGroup // work that ends by itself
	ticking    sync.WaitGroup // work that ends with stopping
}

// Keepalive of the transport: a client may ask as often as minPing; one that does not answer is gone
// after pingAfter and pingTimeout, so that its attached sandboxes are hung up.
const (
	minPing          = 10 * time.Second
	pingAfter        = 2 * time.Minute
	pingTimeout      = 20 * time.Second
	handshakeTimeout = 10 * time.Second
	// maxStreams bounds the calls under way on one connection.
	maxStreams = 4096
	// window is how much a client may send before it is read, bytes. Fixed, so that a connection's memory is
	// bounded and gRPC does not measure it by pings with every message, which disturb what a call starts.
	window = 256 << 10
)

// New makes a server and begins to compile the stored policies; until that is done its health is NOT_SERVING,
// though calls are answered. So it is while an assigned SmackPolicy is not in force.
func New(cfg Config) (*Server, error) {
	log := cfg.Log
	if log == nil {
		log = slog.Default()
	}
	open := peer.NewConnections(cfg.Limits.Connections, log)
	creds, err := peer.Credentials(cfg.TLS, open)
	if err != nil {
		return nil, err
	}
	s := &Server{
		store: cfg.Store, sandboxes: cfg.Sandboxes, support: cfg.Support, containment: cfg.Containment,
		host: cfg.Smack, labelPool: cfg.LabelPool, records: cfg.Records, log: log, metrics: cfg.Metrics, open: open, uid: cfg.UID, started: time.Now(), now: cfg.Now,
		versions: newLRU[string, *apiv1.Version](versionsMost),
		answers:  newLRU[string, *answer](answersMost),
		compiled: newLRU[string, *compiled](compiledMost),
		health:   health.NewServer(),
	}
	if s.now == nil {
		s.now = time.Now
	}
	if s.host == nil {
		s.host = smackhost.New(smackhost.Config{Store: cfg.Store, Log: log})
	}
	if s.labelPool == 0 {
		s.labelPool = config.DefaultLabelPool
	}
	s.stopping, s.stop = context.WithCancel(context.Background())
	s.cutting, s.cut = context.WithCancel(context.Background())
	s.Reload(cfg.Grants, cfg.Limits)
	s.SetUnmatched(cfg.Unmatched)
	s.grpc = grpc.NewServer(
		grpc.Creds(creds),
		grpc.ChainUnaryInterceptor(cfg.Metrics.Unary, s.unary),
		grpc.ChainStreamInterceptor(cfg.Metrics.Stream, s.stream),
		grpc.MaxRecvMsgSize(cfg.Limits.MessageBytes),
		grpc.MaxConcurrentStreams(maxStreams),
		grpc.ConnectionTimeout(handshakeTimeout),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: minPing, PermitWithoutStream: true}),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: pingAfter, Timeout: pingTimeout}),
		grpc.WaitForHandlers(true),
		// Goroutines that have grown their stacks take calls in turn; a call that finds them all busy gets its own.
		grpc.NumStreamWorkers(uint32(4*runtime.GOMAXPROCS(0))),
		grpc.StaticStreamWindowSize(window),
		grpc.StaticConnWindowSize(window),
	)
	apiv1.RegisterPolicyServiceServer(s.grpc, s)
	apiv1.RegisterProfileServiceServer(s.grpc, s)
	apiv1.RegisterSandboxServiceServer(s.grpc, s)
	apiv1.RegisterContainerServiceServer(s.grpc, s)
	apiv1.RegisterAdminServiceServer(s.grpc, s)
	apiv1.RegisterSmackServiceServer(s.grpc, s)
	healthv1.RegisterHealthServer(s.grpc, s.health)
	reflection.Register(s.grpc)
	cfg.Metrics.Read(s.state)
	s.setHealth(healthv1.HealthCheckResponse_NOT_SERVING)
	s.background.Go(s.warm)
	s.ticking.Go(func() { s.collect(collectEvery) })
	s.ticking.Go(func() { s.loadAgain(againAfter) })
	if s.records != "" {
		s.ticking.Go(func() { s.pruneRecords(pruneEvery) })
	}
	return s, nil
}

// cutGrace is how long clients may take to be told that their streams end.
const cutGrace = 500 * time.Millisecond

// services are the names health is told for; "" is the whole.
func (s *Server) services() []string {
	return []string{
		"", apiv1.PolicyService_ServiceDesc.ServiceName, apiv1.ProfileService_ServiceDesc.ServiceName,
		apiv1.SandboxService_ServiceDesc.ServiceName, apiv1.ContainerService_ServiceDesc.ServiceName, apiv1.AdminService_ServiceDesc.ServiceName,
		apiv1.SmackService_ServiceDesc.ServiceName,
	}
}

func (s *Server) setHealth(status healthv1.HealthCheckResponse_ServingStatus) {
	for _, name := range s.services() {
		s.health.SetServingStatus(name, status)
	}
}

// warm compiles what is stored. A policy that no longer compiles is told and stops nothing else: it cannot be
// started, and that is what its start will say.
func (s *Server) warm() {
	bad, err := s.compileStored(s.stopping)
	if s.stopping.Err() != nil {
		return
	}
	if err != nil {
		s.log.Error("stored policies could not be read", "error", err)
		return // NOT_SERVING
	}
	for _, name := range sortedKeys(bad) {
		s.log.Error("stored policy does not compile and cannot be started", "policy", name, "error", bad[name])
	}
	if _, err := s.index(); err != nil {
		s.log.Error("bindings could not be read; nobody gets a policy by one until they can", "error", err)
		return // NOT_SERVING
	}
	s.tellUnmatched()
	s.warmed.Store(true)
	s.tellHealth()
}

// tellHealth says SERVING when the stored policies are compiled and the assigned SmackPolicy is in force.
func (s *Server) tellHealth() {
	if s.warmed.Load() && s.host.Failed() == nil {
		s.setHealth(healthv1.HealthCheckResponse_SERVING)
		return
	}
	s.setHealth(healthv1.HealthCheckResponse_NOT_SERVING)
}

// collectEvery is the pause between two removals of versions beyond store.keepVersions.
const collectEvery = 24 * time.Hour

// collect removes old versions that nothing refers to, time and again until the server stops.
func (s *Server) collect(every time.Duration) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-s.stopping.Done():
			return
		case <-tick.C:
		}
		switch removed, err := s.store.GC(s.stopping, store.Actor{Name: "policyd"}); {
		case err != nil && s.stopping.Err() == nil:
			s.log.Error("old versions could not be removed", "error", err)
		case removed > 0:
			s.changed()
			s.log.Info("old versions removed", "versions", removed)
		}
	}
}

// Ready says whether the stored policies are compiled and the assigned SmackPolicy is in force.
func (s *Server) Ready() bool {
	r, err := s.health.Check(context.Background(), &healthv1.HealthCheckRequest{})
	return err == nil && r.GetStatus() == healthv1.HealthCheckResponse_SERVING
}

// Reload takes new roles and limits; the size of messages stays as it was. Calls under way keep the old ones.
func (s *Server) Reload(grants []config.Grant, limits config.Limits) {
	s.authority.Store(newAuthority(s.uid, grants))
	s.limits.Store(&limits)
	s.starts.set(limits)
	s.open.SetMost(limits.Connections)
}

// SetUnmatched changes which policy workloads get that no Binding matches.
func (s *Server) SetUnmatched(ref string) {
	s.unmatched.Store(&ref)
	if s.warmed.Load() {
		s.tellUnmatched()
	}
}

// tellUnmatched warns of a policy that the configuration names and that is not there: who asks is refused.
func (s *Server) tellUnmatched() {
	ref := *s.unmatched.Load()
	if ref == "" {
		return
	}
	if _, err := s.resolve(ref); err != nil {
		s.log.Warn("the policy of workloads that no Binding matches is not there; they are refused", "key", "bindings.unmatched", "policy", ref, "error", err)
	}
}

// Serve answers on the listeners until Stop; it closes them. An error of one of them stops all.
func (s *Server) Serve(listeners ...net.Listener) error {
	if len(listeners) == 0 {
		return errors.New("no listener")
	}
	results := make(chan error, len(listeners))
	for _, l := range listeners {
		go func() {
			err := s.grpc.Serve(l)
			if err != nil {
				err = fmt.Errorf("listener %s: %w", l.Addr(), err)
			}
			results <- err
		}()
	}
	var failed error
	for range listeners {
		if err := <-results; err != nil && failed == nil && s.stopping.Err() == nil {
			failed = err
			s.stop()
			go s.grpc.Stop()
		}
	}
	return failed
}

// Stop takes no more calls, ends those that wait for something to happen, lets the others finish until the deadline,
// and then ends them too. A deadline of 0 is for callers that know, and is not remarked on. It returns when no handler
// runs any more.
func (s *Server) Stop(deadline time.Duration) {
	s.health.Shutdown()
	s.stop()
	done := make(chan struct{})
	go func() {
		s.grpc.GracefulStop()
		close(done)
	}()
	timer := time.NewTimer(deadline)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
		if deadline > 0 {
			s.log.Warn("requests did not end in time and are broken off", "deadline", deadline.String())
		}
		// Who sees a connection break would look whether the next policyd has his sandbox, and start one by that.
		s.cut()
		select {
		case <-done:
		case <-time.After(cutGrace):
		}
		s.grpc.Stop()
		<-done
	}
	s.cut()
	s.background.Wait()
	s.ticking.Wait()
}

// Outdated tells whether the store has a newer version of a policy, for [sandbox.Config].
func Outdated(st *store.Store) func(policy string, version uint64) bool {
	return func(policy string, version uint64) bool {
		info, err := st.Info(store.KindLandlockPolicy, policy)
		return err == nil && info.GetNumber() > version
	}
}
