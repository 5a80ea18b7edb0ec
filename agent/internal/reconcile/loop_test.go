package reconcile

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

func silent() *slog.Logger { return slog.New(slog.NewTextHandler(io.Discard, nil)) }

// recorder counts passes and answers with what it is told to.
type recorder struct {
	start   time.Time
	at      []time.Duration
	answers []error
}

func (r *recorder) pass(context.Context) error {
	r.at = append(r.at, time.Since(r.start))
	if len(r.answers) == 0 {
		return nil
	}
	err := r.answers[0]
	r.answers = r.answers[1:]
	return err
}

func TestLoopBacksOffAndResyncs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		r := &recorder{start: time.Now(), answers: []error{errors.New("one"), errors.New("two"), &Again{After: 3 * time.Second}}}
		l := New(r.pass, time.Minute, silent())
		l.Base, l.Limit = time.Second, 10*time.Second
		done := make(chan struct{})
		go func() { defer close(done); l.Run(ctx) }()
		time.Sleep(100 * time.Second)
		synctest.Wait()
		cancel()
		<-done
		// 0 s; after 1 to 1.25 s; after 2 to 2.5 s more; after 3 s; after a minute.
		if len(r.at) != 5 {
			t.Fatalf("passes at %v", r.at)
		}
		for i, bounds := range [][2]int{{0, 0}, {1000, 1250}, {2000, 2500}, {3000, 3000}, {60000, 60000}} {
			gap := r.at[i]
			if i > 0 {
				gap -= r.at[i-1]
			}
			if ms := int(gap.Milliseconds()); ms < bounds[0] || ms > bounds[1] {
				t.Errorf("pass %d after %v, want within %v ms", i, gap, bounds)
			}
		}
	})
}

func TestPokesDuringAPassBecomeOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		passes := 0
		release := make(chan struct{})
		l := New(func(context.Context) error { passes++; <-release; return nil }, time.Hour, silent())
		done := make(chan struct{})
		go func() { defer close(done); l.Run(ctx) }()
		synctest.Wait()
		for range 100 {
			l.Poke()
		}
		close(release)
		synctest.Wait()
		if passes != 2 {
			t.Fatalf("%d passes, want the first and one for all pokes", passes)
		}
		cancel()
		<-done
	})
}

func TestLoopEndsWhenDone(t *testing.T) {
	l := New(func(context.Context) error { return ErrDone }, time.Hour, silent())
	l.Run(t.Context()) // returns, or the test times out
}

func TestPlan(t *testing.T) {
	start, stop := Plan(map[string]int{"a": 1, "b": 2}, map[string]bool{"b": true, "z": true})
	if !slices.Equal(start, []string{"a"}) || !slices.Equal(stop, []string{"z"}) {
		t.Fatalf("start %v, stop %v", start, stop)
	}
}
