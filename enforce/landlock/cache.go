package landlock

import (
	"container/list"
	"sync"

	"golang.org/x/sys/unix"

	"policyd.dev/policyd/enforce/profile"
)

// Cache keeps the rulesets of the profiles used last. It belongs to the mount
// namespace of the process. All methods are safe for concurrent use.
//
// Before kept rulesets are given out every path of theirs is looked at again;
// one that now leads elsewhere, is gone or has come makes them be built anew.
type Cache struct {
	mu      sync.Mutex
	max     int
	entries map[cacheKey]*entry
	used    *list.List // of *entry, the one used last in front
}

type cacheKey struct {
	digest string
	mnt    uint64 // mount namespace: a path means something in one only
	abi    int
}

type entry struct {
	key     cacheKey
	elem    *list.Element
	current *Rulesets // guarded by Cache.mu; the cache's own reference

	build sync.Mutex // held by the one caller who builds
}

// NewCache makes a cache that keeps the rulesets of at most max profiles.
func NewCache(max int) *Cache {
	return &Cache{max: max, entries: make(map[cacheKey]*entry), used: list.New()}
}

// mountNamespace identifies the calling process's mount namespace.
var mountNamespace = sync.OnceValue(func() uint64 {
	var st unix.Stat_t
	if err := unix.Stat("/proc/self/ns/mnt", &st); err != nil {
		return 0
	}
	return st.Ino
})

// Get gives the rulesets of the profile with this digest, built now when they
// are not kept or not right any more. The caller calls release once it has no
// more use for them; until then they stay open whatever the cache does. Callers
// that want the same at once share one build. Errors are those of [Build].
func (c *Cache) Get(p *profile.Profile, digest string, sup Support) (rs *Rulesets, release func(), err error) {
	e := c.entry(cacheKey{digest, mountNamespace(), sup.ABI})
	if rs := c.usable(e); rs != nil {
		return rs, rs.Release, nil
	}
	e.build.Lock()
	defer e.build.Unlock()
	if rs := c.usable(e); rs != nil {
		return rs, rs.Release, nil
	}
	rs, err = Build(p, sup)
	c.put(e, rs)
	if err != nil {
		return nil, nil, err
	}
	return rs, rs.Release, nil
}

// entry gives the entry of a key, as the one used last.
func (c *Cache) entry(key cacheKey) *entry {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, ok := c.entries[key]
	if !ok {
		e = &entry{key: key}
		e.elem = c.used.PushFront(e)
		c.entries[key] = e
		c.evict(e)
		return e
	}
	c.used.MoveToFront(e.elem)
	return e
}

// usable gives the entry's rulesets, with a reference, if every path still
// leads to what the rules were made for.
func (c *Cache) usable(e *entry) *Rulesets {
	c.mu.Lock()
	rs := e.current
	if rs != nil && !rs.retain() {
		rs = nil
	}
	c.mu.Unlock()
	if rs == nil {
		return nil
	}
	for i := range rs.looks {
		if !rs.looks[i].again() {
			rs.Release()
			return nil
		}
	}
	return rs
}

// put keeps rs in place of what the entry had; nil drops the entry.
func (c *Cache) put(e *entry, rs *Rulesets) {
	c.mu.Lock()
	old := e.current
	e.current = nil
	switch {
	case rs == nil:
		c.forget(e)
	case c.entries[e.key] == e:
		rs.retain()
		e.current = rs
	}
	c.mu.Unlock()
	if old != nil {
		old.Release()
	}
}

// evict drops the entries used longest ago until max are left, keep among them.
func (c *Cache) evict(keep *entry) {
	for len(c.entries) > max(c.max, 1) {
		e := c.used.Back().Value.(*entry)
		if e == keep {
			return
		}
		c.forget(e)
		if e.current != nil {
			e.current.Release()
			e.current = nil
		}
	}
}

func (c *Cache) forget(e *entry) {
	if c.entries[e.key] == e {
		delete(c.entries, e.key)
		c.used.Remove(e.elem)
	}
}

// Len is the number of profiles kept.
func (c *Cache) Len() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.entries)
}

// Close drops everything kept. Rulesets given out stay open until released.
func (c *Cache) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, e := range c.entries {
		if e.current != nil {
			e.current.Release()
			e.current = nil
		}
		c.forget(e)
	}
}
