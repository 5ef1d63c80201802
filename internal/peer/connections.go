package peer

import (
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync"
	"time"
)

// Connections bounds how many connections each peer has open: one user of this host, one certificate. Each holds
// descriptors of policyd's, which are for all. What runs in a sandbox is counted apart from its user, who can so
// not be locked out by it. The user policyd runs as is not bounded.
type Connections struct {
	log   *slog.Logger
	owner uint32

	mu     sync.Mutex
	most   int
	open   map[string]int // never 0
	told   time.Time
	untold int // refusals since told
}

// NewConnections allows each peer most connections at once. Refusals are told to log, in one line a second at most.
func NewConnections(most int, log *slog.Logger) *Connections {
	return &Connections{log: log, owner: uint32(os.Geteuid()), most: most, open: make(map[string]int)}
}

// SetMost changes the limit for connections to come.
func (c *Connections) SetMost(most int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.most = most
}

// take counts a connection; release, called once, gives it back.
func (c *Connections) take(id *Identity) (release func(), err error) {
	if id.Local && id.UID == c.owner && id.Confined == "" {
		return func() {}, nil
	}
	key := id.String()
	if id.Confined != "" {
		key += " in a sandbox"
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open[key] >= c.most {
		err := fmt.Errorf("%s has %d connections open; limits.connections allows %d", key, c.open[key], c.most)
		c.refused(err)
		return nil, err
	}
	c.open[key]++
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.open[key]--; c.open[key] == 0 {
			delete(c.open, key)
		}
	}, nil
}

// tell logs why a connection that is not counted was refused.
func (c *Connections) tell(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.refused(err)
}

// refused wants mu.
func (c *Connections) refused(err error) {
	c.untold++
	if now := time.Now(); now.Sub(c.told) >= time.Second {
		c.log.Warn("connection refused", "error", err, "refused", c.untold)
		c.told, c.untold = now, 0
	}
}

// conn gives back what belongs to a connection when it is closed.
type conn struct {
	net.Conn
	release func()
	once    sync.Once
}

func (c *conn) Close() error {
	c.once.Do(c.release)
	return c.Conn.Close()
}
