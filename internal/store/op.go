package store

import "fmt"

// Op is one operation of a commit. Make it with Put, Delete or Check.
type Op struct {
	Key    string
	Value  []byte
	Delete bool
	Check  bool // only the guard counts, nothing is written
	Guard  Guard
}

// Put writes a document. At most one guard may be given.
func Put(key string, value []byte, g ...Guard) Op {
	return Op{Key: key, Value: value, Guard: only(g)}
}

// Delete removes a document. A key that is absent stays absent: without a
// guard that is no error. At most one guard may be given.
func Delete(key string, g ...Guard) Op {
	return Op{Key: key, Delete: true, Guard: only(g)}
}

// Check makes the commit depend on a document that it does not write.
func Check(key string, g Guard) Op {
	return Op{Key: key, Check: true, Guard: g}
}

// Guard is a condition on a document, tested before the commit. The zero Guard
// always holds.
type Guard struct {
	set      bool
	several  bool
	revision Revision
}

// IfAbsent holds when there is no document.
func IfAbsent() Guard { return IfRevision(0) }

// IfRevision holds when the Modified revision of the document equals rev. An
// absent document has revision 0.
func IfRevision(rev Revision) Guard { return Guard{set: true, revision: rev} }

// Wanted returns the Modified revision that the guard asks for, 0 for absence,
// and whether it asks for any.
func (g Guard) Wanted() (rev Revision, ok bool) { return g.revision, g.set }

func only(guards []Guard) Guard {
	switch len(guards) {
	case 0:
		return Guard{}
	case 1:
		return guards[0]
	}
	return Guard{several: true}
}

// Validate reports what makes a commit unacceptable to every store, whatever
// is stored: ErrTooLarge for a limit, ErrInvalid for anything else.
func Validate(ops ...Op) error {
	if len(ops) > MaxOps {
		return fmt.Errorf("%d operations, at most %d are allowed: %w", len(ops), MaxOps, ErrTooLarge)
	}
	seen := make(map[string]bool, len(ops))
	for _, op := range ops {
		if err := op.validate(); err != nil {
			return err
		}
		if seen[op.Key] {
			return fmt.Errorf("%s occurs twice in one commit: %w", op.Key, ErrInvalid)
		}
		seen[op.Key] = true
	}
	if n := size(ops); n > MaxCommit {
		return fmt.Errorf("commit of %d bytes, at most %d are allowed: %w", n, MaxCommit, ErrTooLarge)
	}
	return nil
}

func (op Op) validate() error {
	if err := ValidateKey(op.Key); err != nil {
		return err
	}
	switch {
	case op.Guard.several:
		return fmt.Errorf("%s has several guards: %w", op.Key, ErrInvalid)
	case op.Check && op.Delete:
		return fmt.Errorf("%s is both checked and deleted: %w", op.Key, ErrInvalid)
	case (op.Check || op.Delete) && len(op.Value) > 0:
		return fmt.Errorf("%s has a value although none is written: %w", op.Key, ErrInvalid)
	case len(op.Value) > MaxValue:
		return fmt.Errorf("%s has a value of %d bytes, at most %d are allowed: %w", op.Key, len(op.Value), MaxValue, ErrTooLarge)
	}
	return nil
}

// size counts the bytes of keys and values.
func size(ops []Op) int {
	n := 0
	for _, op := range ops {
		n += len(op.Key) + len(op.Value)
	}
	return n
}
