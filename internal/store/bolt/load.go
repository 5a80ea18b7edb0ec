package bolt

import (
	"io"

	"github.com/posterndev/terraform-provider-postern/internal/store"
)

// contents is what a sound file holds.
type contents struct {
	instance string
	state    state
	entries  []store.Entry // in order of keys
}

// load reads a whole file and checks it so far that bbolt can be trusted with
// it. It does not write. Anything wrong with the content comes as a *finding.
//
// The check covers what bbolt's own does, which cannot be used here: it follows
// page numbers through the mapped file without looking where they lead, so
// damage can end the process.
func load(r io.ReaderAt, size int64) (contents, error) {
	m, err := currentMeta(r, size)
	if err != nil {
		return contents{}, err
	}
	p := newPages(r, m)
	top, err := buckets(p, m.root)
	if err != nil {
		return contents{}, err
	}
	c, err := readAbout(p, top.about)
	switch {
	case err != nil:
		return contents{}, err
	case top.documents == nil:
		return contents{}, damaged("bucket %q is missing", documentsName)
	case top.other != "":
		return contents{}, damaged("it holds %q, which does not belong there", top.other)
	}
	if err := c.readDocuments(p, top.documents); err != nil {
		return contents{}, err
	}
	if m.freelist == noFreelist {
		return c, nil // bbolt makes one
	}
	if err := p.freelist(m.freelist); err != nil {
		return contents{}, err
	}
	return c, p.complete()
}

// topLevel is what lies at the top of a bbolt file.
type topLevel struct {
	about, documents []byte // our buckets, nil for one that is not there
	other            string // the name of something else, or ""
}

// buckets refuses a file without the bucket that says what it is.
func buckets(p *pages, root uint64) (topLevel, error) {
	var top topLevel
	err := p.tree(root, func(e element) error {
		switch name := string(e.key); {
		case name == aboutName && e.bucket:
			top.about = e.value
		case name == documentsName && e.bucket:
			top.documents = e.value
		default:
			top.other = name
		}
		return nil
	})
	switch {
	case err != nil:
		return topLevel{}, err
	case top.about == nil && top.other != "":
		return topLevel{}, foreign("it is a bbolt file of another program, with %q", top.other)
	case top.about == nil:
		return topLevel{}, foreign("it is a bbolt file of another program")
	}
	return top, nil
}

// readAbout checks magic and format before anything that depends on them.
func readAbout(p *pages, bucket []byte) (contents, error) {
	sealed := make(map[string][]byte)
	if err := p.bucket(bucket, func(e element) error {
		if e.bucket {
			return damaged("%q is a bucket", e.key)
		}
		sealed[string(e.key)] = e.value
		return nil
	}); err != nil {
		return contents{}, err
	}
	if sealed[magicKey] == nil {
		return contents{}, foreign("it is a bbolt file of another program, with %q", aboutName)
	}
	body := make(map[string][]byte)
	for _, key := range []string{magicKey, formatKey, instanceKey, stateKey} {
		b, err := unseal(key, sealed[key])
		if err != nil {
			return contents{}, err
		}
		body[key] = b
		switch {
		case key == magicKey && string(b) != magic:
			return contents{}, foreign("it is a bbolt file for %q", b)
		case key == formatKey:
			if err := checkFormat(b); err != nil {
				return contents{}, err
			}
		}
	}
	st, err := decodeState(body[stateKey])
	return contents{instance: string(body[instanceKey]), state: st}, err
}

func (c *contents) readDocuments(p *pages, bucket []byte) error {
	err := p.bucket(bucket, func(e element) error {
		key := string(e.key)
		if e.bucket {
			return damaged("%q is a bucket", key)
		}
		body, err := unseal(key, e.value)
		if err != nil {
			return err
		}
		entry, err := decodeEntry(key, body, c.state.revision)
		c.entries = append(c.entries, entry)
		return err
	})
	if err != nil {
		return err
	}
	if n := uint64(len(c.entries)); n != c.state.count {
		return damaged("it holds %d documents instead of %d", n, c.state.count)
	}
	return nil
}
