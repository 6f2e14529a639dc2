package registry

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
)

// Txn is an atomic change: conditions, and operations that each imply one of their own.
//
// There is no unconditional write, so a transaction that arrives late or twice can never
// overwrite anything: the first time it is applied it makes its own conditions false.
type Txn struct {
	// ID is stored with every value the transaction writes, so that its outcome can be
	// found out later. The zero ID makes the backend draw one.
	ID   TxnID
	If   []Cond
	Then []Op // each key at most once
}

// TxnID names a transaction.
type TxnID [16]byte

// NewTxnID draws a random id.
func NewTxnID() TxnID {
	var id TxnID
	rand.Read(id[:]) // never fails
	return id
}

// OrNew returns id, or a new one if id is zero.
func (id TxnID) OrNew() TxnID {
	if id == (TxnID{}) {
		return NewTxnID()
	}
	return id
}

func (id TxnID) String() string { return hex.EncodeToString(id[:]) }

// CondKind is the kind of a Cond.
type CondKind int

// The kinds of conditions.
const (
	CondAbsent CondKind = iota + 1
	CondAt
	CondAlive
	CondDead
)

// Cond is a condition of a Txn, made by Absent, At, Alive or Dead.
type Cond struct {
	Kind    CondKind
	Key     Key
	Rev     Rev
	Session SessionID
}

// Absent holds while key does not exist.
func Absent(key Key) Cond { return Cond{Kind: CondAbsent, Key: key} }

// At holds while key exists and was last written at rev. It never holds again once the
// key has been written or deleted, nor for the zero Rev.
func At(key Key, rev Rev) Cond { return Cond{Kind: CondAt, Key: key, Rev: rev} }

// Alive holds from the opening of a session until the commit that ends it.
func Alive(s SessionID) Cond { return Cond{Kind: CondAlive, Session: s} }

// Dead holds once a session has ended, and for one that never was.
func Dead(s SessionID) Cond { return Cond{Kind: CondDead, Session: s} }

func (c Cond) String() string {
	switch c.Kind {
	case CondAbsent:
		return fmt.Sprintf("absent %s", c.Key)
	case CondAt:
		return fmt.Sprintf("%s at %d", c.Key, c.Rev.Seq)
	case CondAlive:
		return fmt.Sprintf("alive %s", c.Session)
	case CondDead:
		return fmt.Sprintf("dead %s", c.Session)
	}
	return "unknown condition"
}

// OpKind is the kind of an Op.
type OpKind int

// The kinds of operations.
const (
	OpCreate OpKind = iota + 1
	OpCreateOwned
	OpSet
	OpDelete
)

// Op is a change of one key, made by Create, CreateOwned, Set or Delete.
type Op struct {
	Kind    OpKind
	Key     Key
	Value   []byte
	Rev     Rev
	Session SessionID
}

// Create makes key, which must not exist.
func Create(key Key, value []byte) Op { return Op{Kind: OpCreate, Key: key, Value: value} }

// CreateOwned makes an owned key, which must not exist, of a session, which must live. A
// backend may refuse, with ErrInvalidTxn, a transaction that names a session of another
// handle, or more than one session, in its CreateOwned.
func CreateOwned(key Key, value []byte, s SessionID) Op {
	return Op{Kind: OpCreateOwned, Key: key, Value: value, Session: s}
}

// Set writes key, which must be At rev, also if the value is the one that it has. An owned
// key stays with its owner.
func Set(key Key, rev Rev, value []byte) Op {
	return Op{Kind: OpSet, Key: key, Rev: rev, Value: value}
}

// Delete removes key, which must be At rev. Keys below it stay.
func Delete(key Key, rev Rev) Op { return Op{Kind: OpDelete, Key: key, Rev: rev} }

func (o Op) String() string {
	switch o.Kind {
	case OpCreate:
		return fmt.Sprintf("create %s", o.Key)
	case OpCreateOwned:
		return fmt.Sprintf("create %s of %s", o.Key, o.Session)
	case OpSet:
		return fmt.Sprintf("set %s at %d", o.Key, o.Rev.Seq)
	case OpDelete:
		return fmt.Sprintf("delete %s at %d", o.Key, o.Rev.Seq)
	}
	return "unknown operation"
}

// Limits are sizes that a backend accepts.
type Limits struct {
	ValueBytes int // of one value
	TxnItems   int // conditions and operations of a Txn together; CreateOwned counts twice
	TxnBytes   int // keys, session ids and values of a Txn together

	// ListByKey: a List makes a request to the store for each key, so that a part of a large directory is cheaper to Get.
	ListByKey bool
}

// PortableLimits hold on every backend.
var PortableLimits = Limits{ValueBytes: 128 << 10, TxnItems: 128, TxnBytes: 256 << 10}

// Items returns what t counts towards Limits.TxnItems.
func (t Txn) Items() int {
	n := len(t.If)
	for i := range t.Then {
		n += t.Then[i].Items()
	}
	return n
}

// Items returns what o counts towards Limits.TxnItems. CreateOwned has two conditions of its own.
func (o Op) Items() int {
	if o.Kind == OpCreateOwned {
		return 2
	}
	return 1
}

// Size returns what t counts towards Limits.TxnBytes.
func (t Txn) Size() int {
	n := 0
	for i := range t.If {
		n += t.If[i].Size()
	}
	for i := range t.Then {
		n += t.Then[i].Size()
	}
	return n
}

// Size returns what c counts towards Limits.TxnBytes.
func (c Cond) Size() int { return len(c.Key) + len(c.Session) }

// Size returns what o counts towards Limits.TxnBytes.
func (o Op) Size() int { return len(o.Key) + len(o.Session) + len(o.Value) }

// CheckTxn returns the first rule that t breaks: ErrInvalidKey, ErrInvalidTxn or
// ErrTooLarge with the item named, or nil. Backends call it before they send anything.
func CheckTxn(t Txn, l Limits) error {
	if n := t.Items(); n > l.TxnItems {
		return fmt.Errorf("%w: %d conditions and operations, at most %d", ErrTooLarge, n, l.TxnItems)
	}
	for i := range t.If {
		if err := t.If[i].check(); err != nil {
			return fmt.Errorf("condition %d: %w", i, err)
		}
	}
	for i := range t.Then {
		o := &t.Then[i]
		if err := o.check(l); err != nil {
			return fmt.Errorf("operation %d: %w", i, err)
		}
		for j := range i { // a map would cost more for at most TxnItems
			if t.Then[j].Key == o.Key {
				return fmt.Errorf("operation %d: %w: %s is also the key of operation %d", i, ErrInvalidTxn, o.Key, j)
			}
		}
	}
	if n := t.Size(); n > l.TxnBytes {
		return fmt.Errorf("%w: %d bytes, at most %d", ErrTooLarge, n, l.TxnBytes)
	}
	return nil
}

func (c *Cond) check() error {
	switch c.Kind {
	case CondAbsent, CondAt:
		return CheckKey(c.Key)
	case CondAlive, CondDead:
		return checkSession(c.Session)
	}
	return fmt.Errorf("%w: unknown kind %d", ErrInvalidTxn, c.Kind)
}

func (o *Op) check(l Limits) error {
	if err := CheckKey(o.Key); err != nil {
		return err
	}
	switch o.Kind {
	case OpCreate:
		if o.Key.Owned() {
			return fmt.Errorf("%w: %s: only CreateOwned makes a key with a tilde", ErrInvalidKey, o.Key)
		}
	case OpCreateOwned:
		if !o.Key.Owned() {
			return fmt.Errorf("%w: %s: the name of an owned key begins with a tilde", ErrInvalidKey, o.Key)
		}
		if err := checkSession(o.Session); err != nil {
			return err
		}
	case OpSet, OpDelete:
	default:
		return fmt.Errorf("%w: unknown kind %d", ErrInvalidTxn, o.Kind)
	}
	if len(o.Value) > l.ValueBytes {
		return fmt.Errorf("%w: value of %s has %d bytes, at most %d", ErrTooLarge, o.Key, len(o.Value), l.ValueBytes)
	}
	return nil
}

func checkSession(s SessionID) error {
	if s == "" {
		return fmt.Errorf("%w: empty session id", ErrInvalidTxn)
	}
	return nil
}
