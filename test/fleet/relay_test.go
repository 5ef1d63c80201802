package fleettest

import (
	"net"
	"sync"
	"sync/atomic"
	"testing"
)

// relay is the line between an agent and etcd.
type relay struct {
	addr string
	l    net.Listener

	mu     sync.Mutex
	cond   *sync.Cond
	to     string
	closed bool // new connections are refused, old ones ended
	frozen bool // nothing is carried
	open   map[net.Conn]bool

	up, down atomic.Int64 // bytes carried, to and from etcd
}

func newRelay(t testing.TB, to string) *relay {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &relay{addr: l.Addr().String(), l: l, to: to, open: map[net.Conn]bool{}}
	r.cond = sync.NewCond(&r.mu)
	go r.accept()
	t.Cleanup(func() {
		l.Close()
		r.mend()
		r.cut()
	})
	return r
}

func (r *relay) accept() {
	for {
		c, err := r.l.Accept()
		if err != nil {
			return
		}
		go r.carry(c)
	}
}

func (r *relay) carry(c net.Conn) {
	defer c.Close()
	r.mu.Lock()
	to, closed := r.to, r.closed
	r.mu.Unlock()
	if closed {
		return
	}
	far, err := net.Dial("tcp", to)
	if err != nil {
		return
	}
	defer far.Close()
	r.mu.Lock()
	r.open[c], r.open[far] = true, true
	r.mu.Unlock()
	go r.copy(far, c, &r.up)
	r.copy(c, far, &r.down)
	r.mu.Lock()
	delete(r.open, c)
	delete(r.open, far)
	r.mu.Unlock()
}

func (r *relay) copy(to, from net.Conn, carried *atomic.Int64) {
	b := make([]byte, 32<<10)
	for {
		n, err := from.Read(b)
		r.mu.Lock()
		for r.frozen {
			r.cond.Wait()
		}
		r.mu.Unlock()
		if n > 0 {
			carried.Add(int64(n))
			if _, werr := to.Write(b[:n]); werr != nil {
				err = werr
			}
		}
		if err != nil {
			to.Close()
			from.Close()
			return
		}
	}
}

// end closes every connection.
func (r *relay) end() {
	for c := range r.open {
		c.Close()
	}
}

func (r *relay) cut() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	r.end()
}

func (r *relay) freeze() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.frozen = true
}

func (r *relay) mend() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed, r.frozen = false, false
	r.cond.Broadcast()
}

func (r *relay) redirect(to string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.to = to
	r.end()
}
