package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"text/tabwriter"
)

// result is one measurement. Ratio is so that more is better for us; 0 where there is nothing to compare with.
type result struct {
	Name  string  `json:"name"`
	Unit  string  `json:"unit"`
	Ours  float64 `json:"ours"`
	Peer  float64 `json:"peer"`
	Ratio float64 `json:"ratio"`

	spread float64 // of the side that varied more, from least to most, as a part of its median
}

type results []result

// rate compares figures of which more is better.
func rate(name, unit string, ours, peer []float64) result {
	r := result{Name: name, Unit: unit, Ours: median(ours), Peer: median(peer), spread: max(spread(ours), spread(peer))}
	if r.Peer > 0 {
		r.Ratio = r.Ours / r.Peer
	}
	return r
}

// cost compares figures of which less is better.
func cost(name, unit string, ours, peer []float64) result {
	r := result{Name: name, Unit: unit, Ours: median(ours), Peer: median(peer), spread: max(spread(ours), spread(peer))}
	if r.Ours > 0 {
		r.Ratio = r.Peer / r.Ours
	}
	return r
}

func median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}

func spread(values []float64) float64 {
	if len(values) < 2 {
		return 0
	}
	return (slices.Max(values) - slices.Min(values)) / median(values)
}

// write prints a table, and replaces the results of the same names in the file, which later benches add to.
func (rs results) write(out io.Writer, path string) error {
	table := tabwriter.NewWriter(out, 0, 0, 3, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "measurement\tours\tbare tsnet\tunit\tratio\tspread\t")
	for _, r := range rs {
		peer, ratio := fmt.Sprintf("%.4g", r.Peer), fmt.Sprintf("%.2f", r.Ratio)
		if r.Ratio == 0 {
			peer, ratio = "-", "-"
		}
		spread := "-" // one look
		if r.spread > 0 {
			spread = fmt.Sprintf("%.0f %%", 100*r.spread)
		}
		fmt.Fprintf(table, "%s\t%.4g\t%s\t%s\t%s\t%s\t\n", r.Name, r.Ours, peer, r.Unit, ratio, spread)
	}
	if err := table.Flush(); err != nil {
		return fmt.Errorf("printing the results: %w", err)
	}
	var kept results
	if text, err := os.ReadFile(path); err == nil {
		if err := json.Unmarshal(text, &kept); err != nil {
			return fmt.Errorf("reading %s: %w; delete it", path, err)
		}
	}
	kept = slices.DeleteFunc(kept, func(old result) bool {
		return slices.ContainsFunc(rs, func(r result) bool { return r.Name == old.Name })
	})
	text, err := json.MarshalIndent(append(kept, rs...), "", "  ")
	if err != nil {
		return fmt.Errorf("encoding the results: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("making the results' folder: %w", err)
	}
	return os.WriteFile(path, append(text, '\n'), 0o644)
}
