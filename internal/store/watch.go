package store

import (
	"cmp"
	"context"
	"fmt"
	"slices"
)

const (
	// maxLogBytes bounds the memory that remembered commits take.
	maxLogBytes = 32 << 20
	// feedChunk is how many commits a watch takes at a time; they stay in
	// memory for it even when the log forgets them.
	feedChunk = 16
)

// commitLog remembers the newest commits. A watch is a position in it, so a
// slow reader costs nothing but its own place.
type commitLog struct {
	limit   int
	floor   Revision // commits up to this one are forgotten
	batches []Batch  // the commits after floor, oldest first
	bytes   int
	grown   chan struct{} // closed, and replaced, when batches were added
}

func (l *commitLog) add(b Batch) {
	l.batches = append(l.batches, b)
	l.bytes += b.size()
	drop := 0
	for len(l.batches)-drop > l.limit || l.bytes > maxLogBytes {
		l.floor = l.batches[drop].Revision
		l.bytes -= l.batches[drop].size()
		l.batches[drop] = Batch{}
		drop++
	}
	l.batches = l.batches[drop:]
}

func (l *commitLog) announce() {
	close(l.grown)
	l.grown = make(chan struct{})
}

// after returns up to n of the commits after a revision.
func (l *commitLog) after(rev Revision, n int) []Batch {
	at, found := slices.BinarySearchFunc(l.batches, rev, func(b Batch, rev Revision) int {
		return cmp.Compare(b.Revision, rev)
	})
	if found {
		at++
	}
	return slices.Clone(l.batches[at:min(at+n, len(l.batches))])
}

func (b Batch) size() int {
	n := 0
	for _, ev := range b.Events {
		n += len(ev.Entry.Key) + len(ev.Entry.Value)
	}
	return n
}

func (s *journaled) Watch(ctx context.Context, prefix string, after Revision) (<-chan Batch, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.closed {
		return nil, ErrClosed
	}
	if after < s.log.floor {
		return nil, fmt.Errorf("watching after revision %d, the oldest possible is %d: %w", after, s.log.floor, ErrCompacted)
	}
	out := make(chan Batch)
	s.feeds.Add(1) // before closed is set, so before Close waits
	go s.feed(ctx, out, prefix, after)
	return out, nil
}

// feed sends the commits after a revision until the context ends, the store
// closes or the log has forgotten what comes next.
func (s *journaled) feed(ctx context.Context, out chan<- Batch, prefix string, after Revision) {
	defer s.feeds.Done()
	defer close(out)
	for {
		s.mu.RLock()
		lost, batches, grown := after < s.log.floor, s.log.after(after, feedChunk), s.log.grown
		s.mu.RUnlock()
		if lost {
			return
		}
		for _, b := range batches {
			after = b.Revision
			part, touched := b.within(prefix)
			if !touched {
				continue
			}
			select {
			case out <- part:
			case <-ctx.Done():
				return
			case <-s.closing:
				return
			}
		}
		if len(batches) > 0 {
			continue
		}
		select {
		case <-grown:
		case <-ctx.Done():
			return
		case <-s.closing:
			return
		}
	}
}
