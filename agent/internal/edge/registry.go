package edge

import "sync"

// tracked is something open: a stream, a flow, an HTTP connection.
type tracked interface {
	// hasten is called when the drain starts: end soon if nothing is under way.
	hasten()
	// cut ends it at once.
	cut()
}

// registry knows everything that is open, so that Shutdown can wait for it and
// cut what is left. It is touched when something opens and closes, never per
// request or byte.
type registry struct {
	mu       sync.Mutex // guards following
	open     map[tracked]struct{}
	draining bool
	empty    chan struct{} // closed once draining and nothing is open
}

func newRegistry() registry {
	return registry{open: make(map[tracked]struct{}), empty: make(chan struct{})}
}

// add reports whether t may go on; false once the drain has started.
func (r *registry) add(t tracked) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.draining {
		return false
	}
	r.open[t] = struct{}{}
	return true
}

// remove is the last act of what was added.
func (r *registry) remove(t tracked) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.open, t)
	r.signal()
}

func (r *registry) signal() {
	if !r.draining || len(r.open) > 0 {
		return
	}
	select {
	case <-r.empty:
	default:
		close(r.empty)
	}
}

// drain refuses what is new and returns a channel that is closed when nothing is open any more.
func (r *registry) drain() <-chan struct{} {
	r.mu.Lock()
	r.draining = true
	r.signal()
	r.mu.Unlock()
	for _, t := range r.all() {
		t.hasten()
	}
	return r.empty
}

// cut ends everything and returns how much it was.
func (r *registry) cut() int {
	all := r.all()
	for _, t := range all {
		t.cut()
	}
	return len(all)
}

func (r *registry) all() []tracked {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := make([]tracked, 0, len(r.open))
	for t := range r.open {
		all = append(all, t)
	}
	return all
}

func (r *registry) len() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.open)
}
