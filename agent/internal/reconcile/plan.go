package reconcile

import (
	"cmp"
	"maps"
	"slices"
)

// Plan says what leads from what is there to what is wanted: which keys to start, and which to stop, each in order. It looks
// at nothing but its arguments.
func Plan[K cmp.Ordered, W, H any](want map[K]W, have map[K]H) (start, stop []K) {
	for _, k := range slices.Sorted(maps.Keys(want)) {
		if _, there := have[k]; !there {
			start = append(start, k)
		}
	}
	for _, k := range slices.Sorted(maps.Keys(have)) {
		if _, wanted := want[k]; !wanted {
			stop = append(stop, k)
		}
	}
	return start, stop
}
