package server

import (
	"container/list"
	"sync"
)

// lru keeps values by key up to a total cost; those not asked for longest go first.
type lru[K comparable, V any] struct {
	mu    sync.Mutex
	most  int
	cost  int
	order *list.List
	at    map[K]*list.Element
}

type lruItem[K comparable, V any] struct {
	key   K
	value V
	cost  int
}

func newLRU[K comparable, V any](most int) *lru[K, V] {
	return &lru[K, V]{most: most, order: list.New(), at: map[K]*list.Element{}}
}

func (c *lru[K, V]) get(key K) (value V, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, ok := c.at[key]
	if !ok {
		return value, false
	}
	c.order.MoveToFront(e)
	return e.Value.(*lruItem[K, V]).value, true
}

// put keeps a value unless it alone costs more than everything may.
func (c *lru[K, V]) put(key K, value V, cost int) {
	if cost > c.most {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if old, ok := c.at[key]; ok {
		c.drop(old)
	}
	c.at[key] = c.order.PushFront(&lruItem[K, V]{key, value, cost})
	c.cost += cost
	for c.cost > c.most {
		c.drop(c.order.Back())
	}
}

func (c *lru[K, V]) drop(e *list.Element) {
	item := c.order.Remove(e).(*lruItem[K, V])
	delete(c.at, item.key)
	c.cost -= item.cost
}

func (c *lru[K, V]) clear() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.order.Init()
	clear(c.at)
	c.cost = 0
}
