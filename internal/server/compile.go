package server

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/enforce/profile"
	"policyd.dev/policyd/internal/errs"
	"policyd.dev/policyd/internal/metrics"
	"policyd.dev/policyd/internal/policy"
	"policyd.dev/policyd/store"
)

const (
	// compiledMost bounds the memory of compiled profiles, bytes of their encodings and origins.
	compiledMost = 64 << 20
	// versionsMost bounds the stored versions kept by reference.
	versionsMost = 32 << 20
	// persistFrom is the size of an encoded profile from which reading it back from the store
	// beats compiling again, bytes.
	persistFrom = 64 << 10
)

// compiled is a version's profile before it is reduced to what a kernel knows. It is shared and never changed.
type compiled struct {
	profile *profile.Profile
	encoded []byte
	digest  string
	origins []*apiv1.Origin
	// layerPlaces are of the profile's layers, one each.
	layerPlaces []*apiv1.LayerPlace
	// unsupported is why this host's kernel cannot enforce it, nil when it can or the policy says degrade.
	unsupported error
}

// place adds to the error of a start the rules whose paths it is about.
func (c *compiled) place(err error) error { return policy.PlacePaths(err, c.profile, c.origins) }

// resolve finds the version a reference names now. The memory of references is dropped whole with every change
// made through this server, and nobody else can change the store while this process holds it.
func (s *Server) resolve(ref string) (*apiv1.Version, error) {
	if v, ok := s.versions.get(ref); ok {
		return v, nil
	}
	generation := s.generation.Load()
	v, err := s.store.Get(store.KindLandlockPolicy, ref)
	if err == nil && v.GetInfo().GetDeleted() {
		// The store still reads it by number; nothing is started under what was taken away.
		err = fmt.Errorf("policy %s: %w", ref, errs.ErrDeleted)
	}
	if err != nil {
		return nil, withResource(err, store.KindLandlockPolicy, ref)
	}
	s.remember(generation, func() { s.versions.put(ref, v, proto.Size(v)) })
	return v, nil
}

// remember runs put unless something changed since the generation, under the lock that changed takes.
func (s *Server) remember(generation uint64, put func()) {
	s.cacheMu.RLock()
	defer s.cacheMu.RUnlock()
	if s.generation.Load() == generation {
		put()
	}
}

// changed forgets what references named. It is called after every change, before it is acknowledged.
func (s *Server) changed() {
	s.cacheMu.Lock()
	defer s.cacheMu.Unlock()
	s.generation.Add(1)
	s.versions.clear()
	s.answers.clear()
}

// compile gives the profile of a version from memory, from the store, or by compiling, once for all who wait.
func (s *Server) compile(ctx context.Context, v *apiv1.Version, parameters map[string]string) (*compiled, error) {
	key := compileKey(v, parameters)
	if c, ok := s.compiled.get(key); ok {
		s.metrics.Profile(metrics.FromMemory, 0)
		return c, nil
	}
	// DoChan: a caller that gives up must not take the others with it.
	result := s.compiling.DoChan(key, func() (any, error) {
		c, err := s.compileNow(key, v, parameters)
		if err == nil {
			_, _, c.unsupported = enforceable(c.profile, s.support)
			s.compiled.put(key, c, len(c.encoded)+len(c.origins)*originCost)
		}
		return c, err
	})
	select {
	case r := <-result:
		if r.Err != nil {
			return nil, r.Err
		}
		return r.Val.(*compiled), nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// originCost is about what an origin takes in memory, bytes.
const originCost = 192

func (s *Server) compileNow(key string, v *apiv1.Version, parameters map[string]string) (*compiled, error) {
	if c := s.readCompiled(key); c != nil {
		s.metrics.Profile(metrics.FromStore, 0)
		return c, nil
	}
	begun := time.Now()
	spec := v.GetResource().GetLandlockPolicy()
	o := policy.CompileOptions{
		Parameters: parameters,
		Fragments:  policy.Pinned(v.GetInfo().GetPins(), s.store.FragmentByDigest),
	}
	if v.GetSource() != "" {
		// The stored text gives places for messages and origins; without it the field paths do.
		// The empty lines put it where it stood in its file.
		text := strings.Repeat("\n", max(int(v.GetSourceLine()), 1)-1) + v.GetSource()
		if docs, err := policy.Parse(v.GetSourceName(), []byte(text)); err == nil && len(docs) == 1 {
			o.Document = docs[0]
		}
	}
	got, err := policy.Compile(spec, o)
	if err != nil {
		s.metrics.Profile(metrics.FromNowhere, 0)
		return nil, fmt.Errorf("policy %s@%d: %w", v.GetInfo().GetName(), v.GetInfo().GetNumber(), err)
	}
	c := &compiled{profile: got.Profile, encoded: got.Profile.Encode(), origins: got.Origins, layerPlaces: got.LayerPlaces}
	c.digest = profile.Digest(c.encoded)
	s.metrics.Profile(metrics.FromCompiler, time.Since(begun))
	if len(c.encoded) >= persistFrom {
		s.writeCompiled(key, c)
	}
	return c, nil
}

// compileKey is over all a compilation depends on. A parameter's name and value are told apart by their lengths.
// The ABI compiled for is the policy's own and so part of the digest; it stands here for people.
func compileKey(v *apiv1.Version, parameters map[string]string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n%d\n%d\n", v.GetInfo().GetDigest(), policy.CompilerVersion, v.GetResource().GetLandlockPolicy().GetSpec().GetAbi())
	for _, name := range sortedKeys(parameters) {
		fmt.Fprintf(&b, "%d:%s=%d:%s\n", len(name), name, len(parameters[name]), parameters[name])
	}
	sum := sha256.Sum256([]byte(b.String()))
	return hex.EncodeToString(sum[:])
}

// readCompiled reads a kept profile. One that is not exactly what was written is compiled anew.
func (s *Server) readCompiled(key string) *compiled {
	raw, ok := s.store.CachedProfile(key)
	if !ok {
		return nil
	}
	var kept apiv1.GetProfileResponse
	if proto.Unmarshal(raw, &kept) != nil || kept.GetVersion().GetName() != key || profile.Digest(kept.GetProfile()) != kept.GetProfileDigest() {
		return nil
	}
	p, err := profile.Decode(kept.GetProfile())
	if err != nil || len(kept.GetLayerPlaces()) != len(p.Layers) { // a former policyd kept no places
		return nil
	}
	return &compiled{
		profile: p, encoded: kept.GetProfile(), digest: kept.GetProfileDigest(),
		origins: kept.GetOrigins(), layerPlaces: kept.GetLayerPlaces(),
	}
}

// writeCompiled keeps a profile in the store, after the answer: losing it costs a compilation.
func (s *Server) writeCompiled(key string, c *compiled) {
	raw, err := proto.Marshal(&apiv1.GetProfileResponse{
		// The key goes with the value: a damaged store must not give one policy the profile of another.
		Version: &apiv1.VersionInfo{Name: key}, Profile: c.encoded, ProfileDigest: c.digest,
		Origins: c.origins, LayerPlaces: c.layerPlaces,
	})
	if err != nil {
		return
	}
	s.background.Go(func() {
		if err := s.store.CacheProfile(key, raw); err != nil {
			s.log.Warn("compiled profile was not kept", "error", err)
		}
	})
}

// answerKey tells answers of GetProfile apart.
func answerKey(req *apiv1.GetProfileRequest) string {
	if len(req.GetParameters()) == 0 {
		return req.GetRef() + "\x00" + strconv.FormatUint(uint64(req.GetAbi()), 10)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s\x00%d", req.GetRef(), req.GetAbi())
	for _, name := range sortedKeys(req.GetParameters()) {
		value := req.GetParameters()[name]
		fmt.Fprintf(&b, "\x00%d:%s=%d:%s", len(name), name, len(value), value)
	}
	return b.String()
}

// sortedKeys is the keys of a map in order.
func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
