package bolt

import (
	"encoding/binary"
	"hash/crc32"
	"strconv"

	"go.etcd.io/bbolt"

	"github.com/posterndev/terraform-provider-postern/internal/store"
)

// The layout of the file. Every value is sealed: a CRC-32C over key and body,
// then the body, because bbolt has checksums for its meta pages alone.
//
//	postern    magic     "postern store"
//	           format    decimal version of this layout
//	           instance  32 hexadecimal digits
//	           state     newest revision, number of documents
//	documents  <key>     created, modified, value
//
// Numbers are 64 bits, big endian.
const (
	magic         = "postern store"
	formatVersion = 1

	magicKey    = "magic"
	formatKey   = "format"
	instanceKey = "instance"
	stateKey    = "state"

	aboutName     = "postern"
	documentsName = "documents"
)

const sealSize = crc32.Size

func checksum(key string, body []byte) uint32 {
	table := crc32.MakeTable(crc32.Castagnoli)
	return crc32.Update(crc32.Checksum([]byte(key), table), table, body)
}

func seal(key string, body []byte) []byte {
	sealed := make([]byte, 0, sealSize+len(body))
	sealed = binary.BigEndian.AppendUint32(sealed, checksum(key, body))
	return append(sealed, body...)
}

// unseal returns the body, which shares memory with the sealed value.
func unseal(key string, sealed []byte) ([]byte, error) {
	if len(sealed) < sealSize || binary.BigEndian.Uint32(sealed) != checksum(key, sealed[sealSize:]) {
		return nil, damaged("%s fails its checksum", strconv.Quote(key))
	}
	return sealed[sealSize:], nil
}

func putSealed(b *bbolt.Bucket, key string, body []byte) error {
	return b.Put([]byte(key), seal(key, body))
}

// state is what changes with every commit. The count shows the loss of
// documents that leaves the tree in order.
type state struct {
	revision store.Revision
	count    uint64
}

func (s state) encode() []byte {
	b := binary.BigEndian.AppendUint64(nil, uint64(s.revision))
	return binary.BigEndian.AppendUint64(b, s.count)
}

func decodeState(body []byte) (state, error) {
	if len(body) != 16 {
		return state{}, damaged("its revision has %d bytes instead of 16", len(body))
	}
	s := state{
		revision: store.Revision(binary.BigEndian.Uint64(body)),
		count:    binary.BigEndian.Uint64(body[8:]),
	}
	if s.revision < 0 {
		return state{}, damaged("its revision is %d", s.revision)
	}
	return s, nil
}

// after returns the state that the batches lead to.
func (s state) after(batches []store.Batch) state {
	for _, b := range batches {
		s.revision = b.Revision
		for _, ev := range b.Events {
			switch {
			case ev.Deleted:
				s.count--
			case ev.Entry.Created == b.Revision:
				s.count++
			}
		}
	}
	return s
}

func encodeFormat(version int) []byte { return strconv.AppendInt(nil, int64(version), 10) }

// checkFormat accepts the version that this release writes.
func checkFormat(body []byte) error {
	version, err := strconv.Atoi(string(body))
	switch {
	case err != nil || version < 1:
		return damaged("its format version is %q", body)
	case version > formatVersion:
		return newer("it has format %d, this release knows up to %d", version, formatVersion)
	}
	return nil
}

func encodeEntry(e store.Entry) []byte {
	body := make([]byte, 0, 16+len(e.Value))
	body = binary.BigEndian.AppendUint64(body, uint64(e.Created))
	body = binary.BigEndian.AppendUint64(body, uint64(e.Modified))
	return append(body, e.Value...)
}

// decodeEntry copies what it keeps.
func decodeEntry(key string, body []byte, newest store.Revision) (store.Entry, error) {
	if len(body) < 16 {
		return store.Entry{}, damaged("document %q has %d bytes, too few", key, len(body))
	}
	e := store.Entry{
		Key:      key,
		Created:  store.Revision(binary.BigEndian.Uint64(body)),
		Modified: store.Revision(binary.BigEndian.Uint64(body[8:])),
		Value:    append([]byte{}, body[16:]...),
	}
	if e.Created < 1 || e.Modified < e.Created || newest < e.Modified {
		return store.Entry{}, damaged("document %q has revisions %d and %d in a store at %d", key, e.Created, e.Modified, newest)
	}
	return e, nil
}
