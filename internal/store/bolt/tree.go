package bolt

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// maxDepth bounds the height of a tree. A full one of this height would not fit
// on any disk.
const maxDepth = 64

// pages reads the pages of a file and keeps count of them. It trusts nothing
// that it reads: neither a loop nor a number out of range gets far.
type pages struct {
	r    io.ReaderAt
	size uint64 // of one page
	used []bool // by page id, for all pages in use or free
}

// newPages expects a meta that fits the size of the file.
func newPages(r io.ReaderAt, m meta) *pages {
	p := &pages{r: r, size: uint64(m.pageSize), used: make([]bool, max(m.end, 2))}
	p.used[0], p.used[1] = true, true
	return p
}

// take marks a page as used. Each page has exactly one use.
func (p *pages) take(id uint64) error {
	switch {
	case id >= uint64(len(p.used)):
		return damaged("page %d is out of range", id)
	case p.used[id]:
		return damaged("page %d is used twice", id)
	}
	p.used[id] = true
	return nil
}

// page is a page with the further pages that belong to it.
type page struct {
	id    uint64
	flags uint16
	count int
	data  []byte // with the header
}

func (p *pages) read(id uint64) (page, error) {
	if err := p.take(id); err != nil {
		return page{}, err
	}
	var header [headerSize]byte
	if err := p.readAt(header[:], id); err != nil {
		return page{}, err
	}
	further := uint64(binary.NativeEndian.Uint32(header[12:]))
	if further >= uint64(len(p.used))-id {
		return page{}, damaged("page %d reaches beyond the end", id)
	}
	for next := id + 1; next <= id+further; next++ {
		if err := p.take(next); err != nil {
			return page{}, err
		}
	}
	data := make([]byte, (1+further)*p.size)
	if err := p.readAt(data, id); err != nil {
		return page{}, err
	}
	pg := parsePage(data)
	if pg.id != id {
		return page{}, damaged("page %d says that it is page %d", id, pg.id)
	}
	return pg, nil
}

func (p *pages) readAt(b []byte, id uint64) error {
	err := readFull(p.r, b, int64(id*p.size))
	if errors.Is(err, io.EOF) {
		return damaged("page %d is cut off", id)
	}
	return err
}

func parsePage(data []byte) page {
	num := binary.NativeEndian
	return page{id: num.Uint64(data), flags: num.Uint16(data[8:]), count: int(num.Uint16(data[10:])), data: data}
}

// element is an entry of a leaf or branch page. Key and value share the
// memory of the page.
type element struct {
	key    []byte
	value  []byte // leaf
	bucket bool   // leaf: the value is a bucket
	child  uint64 // branch
}

// elements decodes the table of a leaf or branch page: 16 bytes for each
// element, with positions relative to their own start.
func (pg page) elements() ([]element, error) {
	table := uint64(headerSize + pg.count*16)
	size := uint64(len(pg.data))
	if table > size {
		return nil, damaged("page %d has %d elements, too many", pg.id, pg.count)
	}
	num := binary.NativeEndian
	elements := make([]element, pg.count)
	for i := range elements {
		start := uint64(headerSize + i*16)
		raw := pg.data[start:]
		var e element
		var pos, keyLen, valueLen uint64
		if pg.flags == branchFlag {
			pos, keyLen = uint64(num.Uint32(raw)), uint64(num.Uint32(raw[4:]))
			e.child = num.Uint64(raw[8:])
		} else {
			if flags := num.Uint32(raw); flags > 1 {
				return nil, damaged("page %d has an element with flags %#x", pg.id, flags)
			} else if flags == 1 {
				e.bucket = true
			}
			pos, keyLen, valueLen = uint64(num.Uint32(raw[4:])), uint64(num.Uint32(raw[8:])), uint64(num.Uint32(raw[12:]))
		}
		start += pos
		if start < table || start+keyLen+valueLen > size {
			return nil, damaged("page %d has an element outside of it", pg.id)
		}
		e.key = pg.data[start : start+keyLen : start+keyLen]
		e.value = pg.data[start+keyLen : start+keyLen+valueLen : start+keyLen+valueLen]
		elements[i] = e
	}
	return elements, nil
}

// tree calls visit for every element under a root page, in order of keys.
func (p *pages) tree(root uint64, visit func(element) error) error {
	return p.subtree(root, nil, nil, 0, visit)
}

// subtree expects all keys to be at least low and, unless nil, below high.
func (p *pages) subtree(id uint64, low, high []byte, depth int, visit func(element) error) error {
	if depth > maxDepth {
		return damaged("its tree is deeper than %d pages", maxDepth)
	}
	pg, err := p.read(id)
	if err != nil {
		return err
	}
	elements, err := pg.ordered(low, high)
	if err != nil {
		return err
	}
	switch {
	case pg.flags == leafFlag:
		for _, e := range elements {
			if err := visit(e); err != nil {
				return err
			}
		}
		return nil
	case pg.flags != branchFlag, len(elements) == 0:
		return damaged("page %d is no part of a tree", id)
	}
	for i, e := range elements {
		end := high
		if i+1 < len(elements) {
			end = elements[i+1].key
		}
		if err := p.subtree(e.child, e.key, end, depth+1, visit); err != nil {
			return err
		}
	}
	return nil
}

// ordered returns the elements of a page when they are in order and between
// the bounds.
func (pg page) ordered(low, high []byte) ([]element, error) {
	elements, err := pg.elements()
	if err != nil {
		return nil, err
	}
	for i, e := range elements {
		if i > 0 && bytes.Compare(elements[i-1].key, e.key) >= 0 || bytes.Compare(e.key, low) < 0 || high != nil && bytes.Compare(e.key, high) >= 0 {
			return nil, damaged("page %d has keys out of order", pg.id)
		}
	}
	return elements, nil
}

// bucket visits the elements of a bucket. Its value is the root page (8 bytes)
// and a sequence (8); root 0 means that a leaf page follows in the value.
func (p *pages) bucket(value []byte, visit func(element) error) error {
	if len(value) < 16 {
		return damaged("a bucket has %d bytes, too few", len(value))
	}
	if root := binary.NativeEndian.Uint64(value); root != 0 {
		return p.tree(root, visit)
	}
	if len(value) < 16+headerSize {
		return damaged("a bucket has %d bytes, too few", len(value))
	}
	pg := parsePage(value[16:])
	if pg.flags != leafFlag {
		return damaged("a bucket holds a page with flags %#x", pg.flags)
	}
	elements, err := pg.ordered(nil, nil)
	if err != nil {
		return fmt.Errorf("bucket: %w", err)
	}
	for _, e := range elements {
		if err := visit(e); err != nil {
			return err
		}
	}
	return nil
}

// freelist takes the free pages, whose ids fill the freelist page. Their
// number is in the header or, when that is full, before the first id.
func (p *pages) freelist(id uint64) error {
	pg, err := p.read(id)
	if err != nil {
		return err
	}
	if pg.flags != freelistFlag {
		return damaged("page %d is not the freelist", id)
	}
	num, ids, count := binary.NativeEndian, pg.data[headerSize:], uint64(pg.count)
	if pg.count == 0xFFFF {
		count, ids = num.Uint64(ids), ids[8:]
	}
	if count > uint64(len(ids)/8) {
		return damaged("the freelist has %d pages, too many", count)
	}
	for i := range count {
		if err := p.take(num.Uint64(ids[i*8:])); err != nil {
			return err
		}
	}
	return nil
}

// complete reports a page that is neither in use nor free.
func (p *pages) complete() error {
	for id, used := range p.used {
		if !used {
			return damaged("page %d is lost", id)
		}
	}
	return nil
}
