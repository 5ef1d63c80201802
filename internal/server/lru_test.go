package server

import "testing"

func TestLRU(t *testing.T) {
	c := newLRU[string, int](10)
	c.put("a", 1, 4)
	c.put("b", 2, 4)
	if _, ok := c.get("a"); !ok {
		t.Fatal("a is gone")
	}
	c.put("c", 3, 4) // b was asked for longest ago
	if _, ok := c.get("b"); ok {
		t.Error("b is kept")
	}
	if v, ok := c.get("a"); !ok || v != 1 {
		t.Error("a is gone")
	}
	c.put("a", 9, 1)
	if v, _ := c.get("a"); v != 9 || c.cost != 5 || c.order.Len() != 2 {
		t.Errorf("a is %d, cost %d, %d entries", v, c.cost, c.order.Len())
	}
	c.put("huge", 1, 11)
	if _, ok := c.get("huge"); ok || c.order.Len() != 2 {
		t.Error("a value beyond everything was kept or drove others out")
	}
	c.clear()
	if _, ok := c.get("a"); ok || c.cost != 0 || c.order.Len() != 0 {
		t.Error("clear leaves something")
	}
}
