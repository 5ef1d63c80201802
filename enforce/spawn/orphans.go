package spawn

import (
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// orphanage takes what a killed supervisor leaves. This process is a child
// subreaper and all children it starts are supervisors, so any other child is an
// orphan of one. An orphan that ends stays visible until it is waited for here,
// so those it has started cannot pass unseen while /proc is read.
type orphanage struct {
	// entering is held for reading while a supervisor is forked and not known yet.
	entering sync.RWMutex
	turn     sync.Mutex // held by the one that buries: a pid it waits for is nobody else's

	mu    sync.Mutex
	known map[process]bool
}

func newOrphanage() (*orphanage, error) {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return nil, fmt.Errorf("become a subreaper: %w", err)
	}
	return &orphanage{known: make(map[process]bool)}, nil
}

// enter starts a supervisor, which is none of the orphans then.
func (o *orphanage) enter(fork func() (*Child, error)) (*Child, error) {
	o.entering.RLock()
	defer o.entering.RUnlock()
	sup, err := fork()
	if err != nil {
		return nil, err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.known[process{sup.PID, sup.StartTicks()}] = true
	return sup, nil
}

// leave is called once a supervisor was waited for.
func (o *orphanage) leave(sup *Child) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.known, process{sup.PID, sup.StartTicks()})
}

// end kills all orphans with all their descendants and returns when none is left.
func (o *orphanage) end() {
	for pause := time.Millisecond; !o.bury(); pause = min(2*pause, time.Second) {
		time.Sleep(pause)
	}
}

// bury kills the orphans there are and waits for those that have ended. It tells
// whether there was none.
func (o *orphanage) bury() bool {
	o.turn.Lock()
	defer o.turn.Unlock()
	killListed(func() ([]process, error) {
		orphans, tree, err := o.list()
		return below(tree, orphans), err
	})
	orphans, _, err := o.list()
	for _, n := range orphans {
		_, _ = syscall.Wait4(n.pid, nil, unix.WALL|syscall.WNOHANG, nil)
	}
	return err == nil && len(orphans) == 0
}

// list gives this process's children that are no supervisors, and the tree.
func (o *orphanage) list() ([]node, map[int][]node, error) {
	o.entering.Lock()
	defer o.entering.Unlock()
	tree, err := processTree()
	if err != nil {
		return nil, nil, err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	var orphans []node
	for _, n := range tree[os.Getpid()] {
		if !o.known[n.process] {
			orphans = append(orphans, n)
		}
	}
	return orphans, tree, nil
}
