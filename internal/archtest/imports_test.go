package archtest

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/posterndev/terraform-provider-postern"

type pkg struct {
	ImportPath   string
	Name         string
	Dir          string
	Standard     bool
	GoFiles      []string
	TestGoFiles  []string
	XTestGoFiles []string
	Imports      []string
	Deps         []string
}

// load lists the module's packages and all that they reach.
func load(t *testing.T) map[string]pkg {
	t.Helper()
	out, err := exec.Command("go", "list", "-json=ImportPath,Name,Dir,Standard,GoFiles,TestGoFiles,XTestGoFiles,Imports,Deps", "-deps", module+"/...").Output()
	if err != nil {
		t.Fatal(err)
	}
	packages := map[string]pkg{}
	decoder := json.NewDecoder(strings.NewReader(string(out)))
	for {
		var p pkg
		err := decoder.Decode(&p)
		if errors.Is(err, io.EOF) {
			return packages
		}
		if err != nil {
			t.Fatal(err)
		}
		packages[p.ImportPath] = p
	}
}

func ours(packages map[string]pkg) []pkg {
	var out []pkg
	for path, p := range packages {
		if path == module || strings.HasPrefix(path, module+"/") {
			out = append(out, p)
		}
	}
	return out
}

// within reports whether a package is, or lies below, one of the folders.
func within(path string, folders ...string) bool {
	return slices.ContainsFunc(folders, func(f string) bool {
		return path == module+"/"+f || strings.HasPrefix(path, module+"/"+f+"/")
	})
}

func TestContractAndHeartAreAlone(t *testing.T) {
	packages := load(t)
	allowed := map[string][]string{
		"internal/desired":   {"golang.org/x/net/idna"},
		"internal/blueprint": {module + "/internal/desired"},
	}
	for folder, extra := range allowed {
		p, ok := packages[module+"/"+folder]
		if !ok {
			t.Fatalf("%s is gone; take it out of this test", folder)
		}
		for _, path := range p.Imports {
			if !packages[path].Standard && !slices.Contains(extra, path) {
				t.Errorf("%s imports %s: whoever reads the contract must get nothing else with it", folder, path)
			}
		}
	}
}

func TestPureCodeReachesNothingOutside(t *testing.T) {
	packages := load(t)
	for _, folder := range []string{"internal/blueprint", "internal/desired", "agent/internal/policy"} {
		p, ok := packages[module+"/"+folder]
		if !ok {
			t.Fatalf("%s is gone; take it out of this test", folder)
		}
		for _, path := range p.Imports {
			if slices.Contains([]string{"os", "os/exec", "net/http", "syscall", "math/rand", "math/rand/v2", "crypto/rand"}, path) {
				t.Errorf("%s imports %s: the same input must give the same output, wherever it runs", folder, path)
			}
		}
	}
}

func TestAgentHasNoTerraform(t *testing.T) {
	packages := load(t)
	for _, p := range ours(packages) {
		if !within(p.ImportPath, "agent", "internal/server", "internal/registry", "internal/store", "internal/api") {
			continue
		}
		for _, path := range p.Deps {
			if strings.HasPrefix(path, "github.com/hashicorp/terraform-") {
				t.Errorf("%s reaches %s: the agent is small, and knows nothing of who declares", p.ImportPath, path)
			}
		}
	}
}

func TestProviderHasNoTailnet(t *testing.T) {
	packages := load(t)
	for _, p := range ours(packages) {
		if !within(p.ImportPath, "provider") {
			continue
		}
		for _, path := range p.Deps {
			if strings.HasPrefix(path, "tailscale.com/") {
				t.Errorf("%s reaches %s: a Terraform runner holds no credential and joins no tailnet", p.ImportPath, path)
			}
		}
	}
}

func TestPartsDoNotImportEachOther(t *testing.T) {
	packages := load(t)
	parts := []string{"agent/internal/node", "agent/internal/edge", "agent/internal/certs", "agent/internal/vault", "agent/internal/policy"}
	for _, part := range parts {
		p, ok := packages[module+"/"+part]
		if !ok {
			t.Fatalf("%s is gone; take it out of this test", part)
		}
		for _, path := range p.Deps {
			for _, other := range parts {
				if other != part && path == module+"/"+other {
					t.Errorf("%s reaches %s: parts are put together by the workers, and tested alone", part, other)
				}
			}
		}
	}
}

func TestSharedCodeDoesNotReachBack(t *testing.T) {
	packages := load(t)
	for _, p := range ours(packages) {
		if !within(p.ImportPath, "internal") {
			continue
		}
		for _, path := range p.Imports {
			if within(path, "agent", "provider") {
				t.Errorf("%s imports %s: what both share depends on neither", p.ImportPath, path)
			}
		}
	}
}
