package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/posterndev/terraform-provider-postern/internal/testbed"
)

// attribute is what a schema says of one, and of those within it.
type attribute struct {
	Description string `json:"description"`
	Nested      struct {
		Attributes map[string]attribute `json:"attributes"`
	} `json:"nested_type"`
}

type block struct {
	Block struct {
		Attributes map[string]attribute `json:"attributes"`
	} `json:"block"`
}

// The reference in docs/ says of every attribute what its schema says now (T6).
func TestReferenceIsUpToDate(t *testing.T) {
	root, err := testbed.Root()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	built, err := testbed.Build(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	text, err := providerSchema(t.Context(), built.Provider, dir)
	if err != nil {
		t.Fatal(err)
	}
	var shown struct {
		Schemas map[string]struct {
			Provider    block            `json:"provider"`
			Resources   map[string]block `json:"resource_schemas"`
			DataSources map[string]block `json:"data_source_schemas"`
		} `json:"provider_schemas"`
	}
	if err := json.Unmarshal(text, &shown); err != nil {
		t.Fatal(err)
	}
	provider := shown.Schemas[generated]
	if len(provider.Resources) == 0 || len(provider.DataSources) == 0 {
		t.Fatalf("the schema has %d resources and %d data sources", len(provider.Resources), len(provider.DataSources))
	}
	pages := []string{filepath.Join(root, "docs", "index.md")}
	checkPage(t, pages[0], provider.Provider.Block.Attributes, filepath.Join(root, "examples", "provider"))
	for folder, blocks := range map[string]map[string]block{"resources": provider.Resources, "data-sources": provider.DataSources} {
		for name, b := range blocks {
			page := filepath.Join(root, "docs", folder, strings.TrimPrefix(name, "postern_")+".md")
			pages = append(pages, page)
			checkPage(t, page, b.Block.Attributes, filepath.Join(root, "examples", folder, name))
		}
	}
	found, err := filepath.Glob(filepath.Join(root, "docs", "*", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, page := range found {
		if !slices.Contains(pages, page) {
			t.Errorf("%s describes what the provider does not have; run make generate", page)
		}
	}
}

// checkPage compares a page with a schema, both ways, and with the examples that it shows.
func checkPage(t *testing.T, path string, attributes map[string]attribute, examples string) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Errorf("%v; run make generate", err)
		return
	}
	page := string(text)
	want := map[string]string{}
	flatten(want, "", attributes)
	got := entries(page)
	for name, description := range want {
		if description == "" {
			t.Errorf("%s: %s has no description", path, name)
		}
		if entry, ok := got[name]; !ok || !strings.Contains(entry, ") "+description) {
			t.Errorf("%s says %q of %s, and the schema %q; run make generate", path, entry, name, description)
		}
	}
	for name := range got {
		if _, ok := want[name]; !ok {
			t.Errorf("%s has %s, which the schema has not; run make generate", path, name)
		}
	}
	files, err := filepath.Glob(filepath.Join(examples, "*"))
	if err != nil || len(files) == 0 {
		t.Errorf("%s has no examples (%v)", examples, err)
	}
	for _, file := range files {
		example, err := os.ReadFile(file)
		if err != nil {
			t.Error(err)
		} else if !strings.Contains(page, strings.TrimSpace(string(example))) {
			t.Errorf("%s does not show %s as it is; run make generate", path, file)
		}
	}
}

// flatten gives the description of each attribute by its path, such as "tls.issuer".
func flatten(out map[string]string, prefix string, attributes map[string]attribute) {
	for name, a := range attributes {
		out[prefix+name] = strings.TrimSpace(a.Description)
		flatten(out, prefix+name+".", a.Nested.Attributes)
	}
}

var (
	sectionLine   = regexp.MustCompile("^### Nested Schema for `(.+)`$")
	attributeLine = regexp.MustCompile("^- `([^`]+)` (\\(.*)$")
)

// entries gives what a page's schema says of each attribute, by its path.
func entries(page string) map[string]string {
	out := map[string]string{}
	_, schema, _ := strings.Cut(page, "\n## Schema\n")
	schema, _, _ = strings.Cut(schema, "\n## ")
	prefix := ""
	for line := range strings.Lines(schema) {
		line = strings.TrimSpace(line)
		if m := sectionLine.FindStringSubmatch(line); m != nil {
			prefix = m[1] + "."
		} else if m := attributeLine.FindStringSubmatch(line); m != nil {
			out[prefix+m[1]] = m[2]
		}
	}
	return out
}
