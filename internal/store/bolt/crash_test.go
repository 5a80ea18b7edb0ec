package bolt

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/posterndev/terraform-provider-postern/internal/store"
)

// crashPathEnv makes the test binary a writer to the store at this path, to be
// killed.
const crashPathEnv = "POSTERN_TEST_CRASH_STORE"

const crashWriters = 4

// crashChild opens the store and commits from several goroutines for ever. It
// prints a line when it begins and after each commit, when that is durable.
func crashChild(path string) int {
	fmt.Println("begin")
	s, err := Open(path, LockTimeout(10*time.Second))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	fmt.Println("open")
	failed := make(chan error)
	for w := range crashWriters {
		go func() {
			for i := 0; ; i++ {
				key := fmt.Sprintf("w%d/%d/%d", w, os.Getpid(), i)
				rev, err := s.Commit(context.Background(),
					store.Put(key, make([]byte, i*37%5000)),
					store.Put(fmt.Sprintf("last/%d", w), []byte(key)),
					store.Delete(fmt.Sprintf("w%d/%d/%d", w, os.Getpid(), i-20)))
				if err != nil {
					failed <- err
					return
				}
				fmt.Printf("%s %d %d\n", key, rev, i)
			}
		}()
	}
	fmt.Fprintln(os.Stderr, <-failed)
	return 1
}

// crashed runs the child until it printed a line that starts with sign, then
// kills it after a random time, and returns all whole lines.
func crashed(t *testing.T, path, sign string, upTo time.Duration) []string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	child := exec.Command(self)
	child.Env = append(os.Environ(), crashPathEnv+"="+path)
	var stderr strings.Builder
	child.Stderr = &stderr
	stdout, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	var lines []string
	for out := bufio.NewReader(stdout); ; {
		line, err := out.ReadString('\n')
		if err == io.EOF {
			break // a line that is not whole was not acknowledged
		}
		if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, strings.TrimSpace(line))
		if strings.HasPrefix(line, sign) {
			time.AfterFunc(rand.N(upTo), func() { child.Process.Kill() })
		}
	}
	child.Wait() // killed, so always an error
	if stderr.Len() > 0 {
		t.Fatalf("child: %s", stderr.String())
	}
	return lines
}

// TestKilledWhileWriting: whatever a commit returned for is there after kill
// -9 (A2).
func TestKilledWhileWriting(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	var newest store.Revision
	total := 0
	for range 20 {
		lines := crashed(t, path, "open", 150*time.Millisecond)
		s := open(t, path)
		entries, rev, err := s.List(t.Context(), "")
		if err != nil {
			t.Fatal(err)
		}
		found := make(map[string]store.Entry)
		for _, e := range entries {
			found[e.Key] = e
		}
		lastOf := make(map[string]int)
		for _, line := range lines[2:] {
			var key string
			var at store.Revision
			var i int
			if _, err := fmt.Sscan(line, &key, &at, &i); err != nil {
				t.Fatalf("line %q: %v", line, err)
			}
			total++
			lastOf[key[:2]] = i
			newest = max(newest, at)
		}
		for _, line := range lines[2:] {
			checkAcknowledged(t, line, found, lastOf)
		}
		if rev < newest {
			t.Errorf("revision %d, %d was acknowledged", rev, newest)
		}
		newest = rev
		s.Close()
	}
	if total == 0 {
		t.Error("no commit was acknowledged")
	}
	t.Logf("%d acknowledged commits survived", total)
}

// checkAcknowledged expects the document of a commit, until a later commit of
// the same writer, perhaps one that was not acknowledged, deleted it.
func checkAcknowledged(t *testing.T, line string, found map[string]store.Entry, lastOf map[string]int) {
	t.Helper()
	var key string
	var at store.Revision
	var i int
	fmt.Sscan(line, &key, &at, &i)
	e, present := found[key]
	switch last := lastOf[key[:2]]; {
	case i > last-19 && !present:
		t.Errorf("%s of revision %d is lost", key, at)
	case i <= last-20 && present:
		t.Errorf("%s is back from deletion", key)
	case present && e.Created != at:
		t.Errorf("%s was made by revision %d, not %d", key, e.Created, at)
	}
}

// TestKilledWhileCreating: there is either no store or a whole one.
func TestKilledWhileCreating(t *testing.T) {
	dir := t.TempDir()
	absent := 0
	for i := range 30 {
		path := filepath.Join(dir, fmt.Sprintf("%d.db", i))
		crashed(t, path, "begin", 8*time.Millisecond)
		if _, err := os.Stat(path); os.IsNotExist(err) {
			absent++
		}
		open(t, path).Close()
	}
	t.Logf("killed %d times of 30 before the file was there", absent)
}
