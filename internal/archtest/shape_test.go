package archtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/posterndev/terraform-provider-postern/internal/desired"
)

// The budget of a reader's patience.
const (
	maxFileLines     = 400
	maxTestLines     = 700
	maxFunctionLines = 60
	maxPackageFiles  = 16
)

func TestEveryPackageSaysOnceWhatItIs(t *testing.T) {
	for _, p := range ours(load(t)) {
		var documented []string
		for _, name := range p.GoFiles {
			file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(p.Dir, name), nil, parser.ParseComments|parser.PackageClauseOnly)
			if err != nil {
				t.Fatal(err)
			}
			if file.Doc != nil && !strings.HasPrefix(file.Doc.Text(), "Code generated") {
				documented = append(documented, name)
			}
		}
		if len(p.GoFiles) > 0 && len(documented) != 1 {
			t.Errorf("%s has a package comment in %v; one is needed", p.ImportPath, documented)
		}
	}
}

func TestNamesOfPackagesSayWhatIsInside(t *testing.T) {
	for _, p := range ours(load(t)) {
		if slices.Contains([]string{"util", "utils", "common", "helpers", "types", "models", "constants", "errors", "testutil"}, path.Base(p.ImportPath)) {
			t.Errorf("%s: a reader finds nothing by this name", p.ImportPath)
		}
	}
}

func TestFilesAndFunctionsAreShort(t *testing.T) {
	for _, p := range ours(load(t)) {
		if len(p.GoFiles) > maxPackageFiles {
			t.Errorf("%s has %d files, at most %d: which part wants a package of its own?", p.ImportPath, len(p.GoFiles), maxPackageFiles)
		}
		for _, name := range slices.Concat(p.GoFiles, p.TestGoFiles, p.XTestGoFiles) {
			checkFile(t, filepath.Join(p.Dir, name))
		}
	}
}

func checkFile(t *testing.T, name string) {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	test := strings.HasSuffix(name, "_test.go")
	limit := maxFileLines
	if test {
		limit = maxTestLines
	}
	if lines := strings.Count(string(text), "\n"); lines > limit {
		t.Errorf("%s has %d lines, at most %d: which job in it wants a file of its own?", name, lines, limit)
	}
	if test {
		return
	}
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, name, text, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, decl := range file.Decls {
		f, ok := decl.(*ast.FuncDecl)
		if !ok {
			continue
		}
		if lines := set.Position(f.End()).Line - set.Position(f.Pos()).Line + 1; lines > maxFunctionLines {
			t.Errorf("%s: %s has %d lines, at most %d", name, f.Name.Name, lines, maxFunctionLines)
		}
	}
}

// A kind that exists is known everywhere: by the provider, by its golden pair, and by an example that a test applies.
func TestEveryKindIsWhole(t *testing.T) {
	root := moduleRoot(t)
	for _, info := range desired.Kinds() {
		kind := string(info.Kind)
		for what, file := range map[string]string{
			"a resource":    "provider/internal/provider/resource_" + kind + ".go",
			"a golden pair": "internal/desired/testdata/" + kind + ".json",
			"an example":    "examples/resources/postern_" + kind + "/resource.tf",
			"an import":     "examples/resources/postern_" + kind + "/import.sh",
			"a docs page":   "docs/resources/" + kind + ".md",
		} {
			if _, err := os.Stat(filepath.Join(root, file)); err != nil {
				t.Errorf("kind %s has not got %s: %v", kind, what, err)
			}
		}
	}
}

// What is committed works on every machine: no home folder, no registry's host.
func TestNothingNamesAMachine(t *testing.T) {
	forbidden := regexp.MustCompile(`/(root|home)/[a-z]|proxy\.golang\.` + `org|registry\.npmjs\.` + `org|deb\.debian\.` + `org`)
	root := moduleRoot(t)
	out, err := exec.Command("git", "-C", root, "ls-files", "-z").Output()
	if err != nil {
		t.Fatal(err)
	}
	for name := range strings.SplitSeq(strings.TrimRight(string(out), "\x00"), "\x00") {
		if strings.HasSuffix(name, ".sum") || strings.HasPrefix(name, "internal/archtest/") {
			continue
		}
		text, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			continue // deleted, and not committed yet
		}
		if found := forbidden.Find(text); found != nil {
			t.Errorf("%s names %q", name, found)
		}
	}
}

func moduleRoot(t *testing.T) string {
	t.Helper()
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}").Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}
