package store

import (
	"context"
	"fmt"
	"sync"
)

// Journal makes the commits of a Journaled store durable.
type Journal interface {
	// Append writes batches in order, all or none, and returns when they are
	// durable. After an error the store goes on with the state before them, so
	// a journal that cannot tell whether it wrote them must refuse every later
	// Append. Calls never overlap. The batches must be neither kept nor changed.
	Append(batches []Batch) error
	// Close releases the journal. Nothing is called after it.
	Close() error
}

// Memory returns an empty store that forgets everything when it is closed.
func Memory() Store { return Journaled(nil, nil, 0, 0) }

// DefaultHistory is the number of commits that a Journaled store remembers for
// its watches when it is told 0.
const DefaultHistory = 4096

// Limits of one Append: a bigger one makes all its commits wait longer.
const (
	maxGroup      = 256     // commits
	maxGroupBytes = 8 << 20 // bytes of keys and values
)

// Journaled returns a store that answers reads from memory and appends every
// commit to a journal, or to nothing when the journal is nil, before anyone can
// see it. Commits that arrive while an Append runs go into the next one
// together.
//
// It starts with the entries at revision rev, which it owns from then on, and
// remembers the newest history commits, though at most 32 MiB of them.
func Journaled(journal Journal, entries []Entry, rev Revision, history int) Store {
	if history <= 0 {
		history = DefaultHistory
	}
	return &journaled{
		journal: journal,
		turn:    make(chan struct{}, 1),
		docs:    newDocuments(entries, rev),
		log:     commitLog{limit: history, floor: rev, grown: make(chan struct{})},
		closing: make(chan struct{}),
	}
}

type journaled struct {
	journal Journal // or nil

	// turn has room for one: who put something in is the only writer.
	turn chan struct{}

	queueMu sync.Mutex // guards following
	queue   []*request // not yet taken by a writer
	shut    bool       // the queue takes no more

	mu     sync.RWMutex // guards following; only the writer changes them
	docs   documents
	log    commitLog
	closed bool

	closing chan struct{} // closed by Close
	feeds   sync.WaitGroup
}

// request is a commit on its way. rev and err are set before done is closed.
type request struct {
	ops  []Op
	done chan struct{}
	rev  Revision
	err  error
}

func (r *request) answered() bool {
	select {
	case <-r.done:
		return true
	default:
		return false
	}
}

func (s *journaled) Get(ctx context.Context, key string) (Entry, error) {
	if err := ctx.Err(); err != nil {
		return Entry{}, err
	}
	if err := ValidateKey(key); err != nil {
		return Entry{}, err
	}
	s.mu.RLock()
	closed := s.closed
	entry, ok := s.docs.byKey[key]
	s.mu.RUnlock()
	switch {
	case closed:
		return Entry{}, ErrClosed
	case !ok:
		return Entry{}, fmt.Errorf("%s: %w", key, ErrNotFound)
	}
	return entry.clone(), nil
}

func (s *journaled) List(ctx context.Context, prefix string) ([]Entry, Revision, error) {
	if err := ctx.Err(); err != nil {
		return nil, 0, err
	}
	s.mu.RLock()
	closed := s.closed
	entries, rev := s.docs.under(prefix), s.docs.revision
	s.mu.RUnlock()
	if closed {
		return nil, 0, ErrClosed
	}
	// Stored values never change, so they can be copied without the lock.
	for i := range entries {
		entries[i] = entries[i].clone()
	}
	return entries, rev, nil
}

func (s *journaled) Commit(ctx context.Context, ops ...Op) (Revision, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	if err := Validate(ops...); err != nil {
		return 0, err
	}
	r := &request{ops: ops, done: make(chan struct{})}
	if !s.enqueue(r) {
		return 0, ErrClosed
	}
	select {
	case s.turn <- struct{}{}:
		for !r.answered() {
			s.write(s.take())
		}
		<-s.turn
	case <-r.done:
	case <-ctx.Done():
		if s.withdraw(r) {
			return 0, ctx.Err()
		}
		<-r.done // a writer has it, the answer is near
	}
	return r.rev, r.err
}

func (s *journaled) enqueue(r *request) bool {
	s.queueMu.Lock()
	defer s.queueMu.Unlock()
	if s.shut {
		return false
	}
	s.queue = append(s.queue, r)
	return true
}

// withdraw reports whether it took the request back before a writer had it.
func (s *journaled) withdraw(r *request) bool {
	s.queueMu.Lock()
	defer s.queueMu.Unlock()
	for i, queued := range s.queue {
		if queued == r {
			s.queue = append(s.queue[:i:i], s.queue[i+1:]...)
			return true
		}
	}
	return false
}

// take removes from the queue what fits into one Append, at least one request
// if there is any.
func (s *journaled) take() []*request {
	s.queueMu.Lock()
	defer s.queueMu.Unlock()
	n, bytes := 0, 0
	for n < len(s.queue) && n < maxGroup {
		bytes += size(s.queue[n].ops)
		if n > 0 && bytes > maxGroupBytes {
			break
		}
		n++
	}
	group := s.queue[:n:n]
	s.queue = s.queue[n:]
	return group
}

// write carries out a group of requests and answers them. The caller holds the
// turn. Also a conflict is answered only after the Append: it may be with a
// commit of the same group.
func (s *journaled) write(group []*request) {
	p := s.docs.pend()
	for _, r := range group {
		r.rev, r.err = p.commit(r.ops)
	}
	if err := s.publish(p.batches); err != nil {
		for _, r := range group {
			r.rev, r.err = 0, fmt.Errorf("writing commit: %w", err)
		}
	}
	for _, r := range group {
		close(r.done)
	}
}

// publish makes batches durable, then visible.
func (s *journaled) publish(batches []Batch) error {
	if len(batches) == 0 {
		return nil
	}
	if s.journal != nil {
		if err := s.journal.Append(batches); err != nil {
			return err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, b := range batches {
		s.docs.apply(b)
		s.log.add(b)
	}
	s.log.announce()
	return nil
}

func (s *journaled) Close() error {
	s.turn <- struct{}{}
	defer func() { <-s.turn }()

	s.queueMu.Lock()
	again, waiting := s.shut, s.queue
	s.shut, s.queue = true, nil
	s.queueMu.Unlock()
	if again {
		return nil
	}
	for _, r := range waiting {
		r.err = ErrClosed
		close(r.done)
	}

	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	close(s.closing)
	s.feeds.Wait()
	if s.journal == nil {
		return nil
	}
	return s.journal.Close()
}
