// Package reconcile runs level-triggered loops: a pass reads all that is wanted and all that is there, and acts on the
// difference. A wake-up carries no data, so a lost or doubled one changes nothing.
package reconcile

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"
)

// ErrDone is what a pass answers with when nothing is left for its loop to do, ever.
var ErrDone = errors.New("nothing is left to do")

// Again is an error that says that nothing is wrong, but that the pass wants to look again soon.
type Again struct {
	After time.Duration
	Why   string
}

func (e *Again) Error() string { return fmt.Sprintf("looking again in %s: %s", e.After, e.Why) }

// Loop runs Pass when it is poked, when Resync has passed since the last one, and when a pass that failed is due again.
type Loop struct {
	// Pass is one pass. Required.
	Pass func(context.Context) error
	// Resync is the longest time between two passes. Required.
	Resync time.Duration
	// Base and Limit bound the back-off after failures: Base, twice Base, and so on to Limit, each with jitter.
	Base, Limit time.Duration
	// Log gets a line for each pass that failed. Required.
	Log *slog.Logger

	poke chan struct{}
}

// New makes a loop with the usual back-off. Its fields may be changed before Run.
func New(pass func(context.Context) error, resync time.Duration, log *slog.Logger) *Loop {
	return &Loop{Pass: pass, Resync: resync, Base: 250 * time.Millisecond, Limit: 30 * time.Second, Log: log, poke: make(chan struct{}, 1)}
}

// Poke asks for a pass. It never blocks; pokes during a pass become one pass after it.
func (l *Loop) Poke() {
	select {
	case l.poke <- struct{}{}:
	default:
	}
}

// Run runs passes until ctx ends or one answers ErrDone; the first at once.
func (l *Loop) Run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	failures := 0
	for {
		select {
		case <-ctx.Done():
			return
		case <-l.poke:
		case <-timer.C:
		}
		err := l.Pass(ctx)
		if ctx.Err() != nil || errors.Is(err, ErrDone) {
			return
		}
		var wait time.Duration
		failures, wait = l.next(err, failures)
		timer.Reset(wait)
	}
}

// next decides by the kind of error when to look again. The count of failures starts anew after a pass that succeeded.
func (l *Loop) next(err error, failures int) (int, time.Duration) {
	var again *Again
	switch {
	case err == nil:
		return 0, l.Resync
	case errors.As(err, &again):
		return 0, min(again.After, l.Resync)
	}
	failures++
	wait := min(l.backoff(failures), l.Resync)
	l.Log.Warn("pass failed", "failures", failures, "next_in", wait.Round(time.Millisecond), "err", err)
	return failures, wait
}

// backoff doubles from Base to Limit and adds up to a quarter, so that many loops do not come back at once.
func (l *Loop) backoff(failures int) time.Duration {
	d := l.Base
	for ; failures > 1 && d < l.Limit; failures-- {
		d *= 2
	}
	d = min(d, l.Limit)
	return d + rand.N(d/4+1)
}
