package bolt

import (
	"encoding/binary"
	"errors"
	"hash/fnv"
	"io"
)

// The file format of bbolt, version 2. Numbers have the byte order of the
// machine. Each page starts with a header: id (8 bytes), flags (2), number of
// elements (2), number of further pages that belong to it (4). Pages 0 and 1
// are meta pages, written in turn by successive transactions.
const (
	headerSize = 16

	branchFlag   = 0x01
	leafFlag     = 0x02
	metaFlag     = 0x04
	freelistFlag = 0x10

	metaMagic   = 0xED0CDAED
	metaVersion = 2
	metaSize    = 64 // after the header; the last 8 bytes are the checksum

	// noFreelist is the freelist page of a file that does without.
	noFreelist = ^uint64(0)

	minPageSize = 1 << 10
	maxPageSize = 1 << 24
)

// meta is a meta page: the root of one version of the file.
type meta struct {
	id       uint64
	flags    uint16
	magic    uint32
	version  uint32
	pageSize uint32
	root     uint64
	freelist uint64
	end      uint64 // pages from here on were never used
	txid     uint64
	intact   bool // the checksum is right
}

// readMeta returns the zero meta when the file ends before it does.
func readMeta(r io.ReaderAt, at int64) (meta, error) {
	var page [headerSize + metaSize]byte
	if err := readFull(r, page[:], at); errors.Is(err, io.EOF) {
		return meta{}, nil
	} else if err != nil {
		return meta{}, err
	}
	num, body := binary.NativeEndian, page[headerSize:]
	sum := fnv.New64a()
	sum.Write(body[:metaSize-8])
	return meta{
		id:       num.Uint64(page[0:]),
		flags:    num.Uint16(page[8:]),
		magic:    num.Uint32(body[0:]),
		version:  num.Uint32(body[4:]),
		pageSize: num.Uint32(body[8:]),
		root:     num.Uint64(body[16:]),
		freelist: num.Uint64(body[32:]),
		end:      num.Uint64(body[40:]),
		txid:     num.Uint64(body[48:]),
		intact:   sum.Sum64() == num.Uint64(body[56:]),
	}, nil
}

// currentMeta checks both meta pages against each other and the size of the
// file, and returns the newer one.
func currentMeta(r io.ReaderAt, size int64) (meta, error) {
	first, err := readMeta(r, 0)
	if err != nil {
		return meta{}, err
	}
	if first.magic != metaMagic {
		return meta{}, notBolt(r, size)
	}
	if err := first.check(0); err != nil {
		return meta{}, err
	}
	second, err := readMeta(r, int64(first.pageSize))
	if err != nil {
		return meta{}, err
	}
	if err := second.check(1); err != nil {
		return meta{}, err
	}
	current, previous := first, second
	if second.txid > first.txid {
		current, previous = second, first
	}
	pages := uint64(size) / uint64(first.pageSize)
	switch {
	case second.pageSize != first.pageSize, current.txid != previous.txid+1:
		return meta{}, damaged("its two meta pages do not belong together")
	case current.end > pages:
		return meta{}, damaged("it is cut off: %d bytes of at least %d pages of %d bytes", size, current.end, current.pageSize)
	case size%int64(current.pageSize) != 0:
		return meta{}, damaged("it is cut off: %d bytes are not whole pages of %d bytes", size, current.pageSize)
	}
	return current, nil
}

func (m meta) check(page uint64) error {
	switch {
	case !m.intact:
		return damaged("meta page %d fails its checksum", page)
	case m.version > metaVersion:
		return newer("it is a bbolt file of version %d, this release knows %d", m.version, metaVersion)
	case m.magic != metaMagic, m.version != metaVersion, m.id != page, m.flags != metaFlag, m.txid%2 != page,
		m.pageSize < minPageSize, m.pageSize > maxPageSize, m.pageSize&(m.pageSize-1) != 0:
		return damaged("meta page %d makes no sense", page)
	}
	return nil
}

// notBolt tells a bbolt file whose first page is gone from other files.
func notBolt(r io.ReaderAt, size int64) error {
	for at := int64(minPageSize); at <= maxPageSize && at < size; at *= 2 {
		m, err := readMeta(r, at)
		if err != nil {
			return err
		}
		if m.magic == metaMagic && m.intact {
			return damaged("meta page 0 is overwritten")
		}
	}
	head := make([]byte, min(size, 512))
	if err := readFull(r, head, 0); err != nil {
		return err
	}
	return foreign("%s", looksLike(head))
}

// readFull answers io.EOF or io.ErrUnexpectedEOF, both as io.EOF, when the file
// is too short.
func readFull(r io.ReaderAt, b []byte, at int64) error {
	n, err := r.ReadAt(b, at)
	if n == len(b) {
		return nil
	}
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return io.EOF
	}
	return err
}
