package main

import (
	"encoding/json"
	"os"
	"path/filepath"
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
	checkPage(t, filepath.Join(root, "docs", "index.md"), provider.Provider.Block.Attributes)
	for name, b := range provider.Resources {
		checkPage(t, filepath.Join(root, "docs", "resources", strings.TrimPrefix(name, "postern_")+".md"), b.Block.Attributes)
	}
	for name, b := range provider.DataSources {
		checkPage(t, filepath.Join(root, "docs", "data-sources", strings.TrimPrefix(name, "postern_")+".md"), b.Block.Attributes)
	}
	if len(provider.Resources) == 0 || len(provider.DataSources) == 0 {
		t.Fatalf("the schema has %d resources and %d data sources", len(provider.Resources), len(provider.DataSources))
	}
}

func checkPage(t *testing.T, path string, attributes map[string]attribute) {
	t.Helper()
	page, err := os.ReadFile(path)
	if err != nil {
		t.Errorf("%v; run make generate", err)
		return
	}
	for name, a := range attributes {
		if a.Description == "" && name != "timeouts" && !strings.Contains(path, "timeouts") {
			t.Errorf("%s: %s has no description", path, name)
		}
		if !strings.Contains(string(page), "`"+name+"`") || !strings.Contains(string(page), strings.TrimSpace(a.Description)) {
			t.Errorf("%s does not say what the schema says of %s; run make generate", path, name)
		}
		checkPage(t, path, a.Nested.Attributes)
	}
}
