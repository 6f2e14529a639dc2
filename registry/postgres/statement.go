package postgres

import (
	"encoding/binary"

	"github.com/jackc/pgx/v5/pgproto3"
)

// statement is a statement with its parameters. It is not prepared: a pooler may execute each one on another connection.
type statement struct {
	sql    string
	params []param
}

// param is a parameter in binary form.
type param struct {
	oid   uint32
	value []byte // nil: null
}

// The OIDs of types.
const (
	oidBool      = 16
	oidBytea     = 17
	oidInt8      = 20
	oidInt4      = 23
	oidText      = 25
	oidUUID      = 2950
	oidByteaList = 1001
	oidInt4List  = 1007
	oidTextList  = 1009
	oidInt8List  = 1016
	oidUUIDList  = 2951
)

func boolean(v bool) param {
	b := byte(0)
	if v {
		b = 1
	}
	return param{oidBool, []byte{b}}
}

func bigint(v int64) param { return param{oidInt8, binary.BigEndian.AppendUint64(nil, uint64(v))} }

func text(v string) param { return param{oidText, []byte(v)} }

// list is an array in the making.
type list struct {
	oid, element uint32
	n            int
	body         []byte
}

// textList returns an array of texts.
func textList(all ...string) list {
	l := list{oid: oidTextList, element: oidText}
	for _, v := range all {
		l.add([]byte(v))
	}
	return l
}

func (l *list) add(v []byte) {
	l.n++
	l.body = binary.BigEndian.AppendUint32(l.body, uint32(len(v)))
	l.body = append(l.body, v...)
}

func (l *list) addInt4(v int) {
	l.n++
	l.body = binary.BigEndian.AppendUint32(l.body, 4)
	l.body = binary.BigEndian.AppendUint32(l.body, uint32(v))
}

func (l *list) addInt8(v uint64) {
	l.n++
	l.body = binary.BigEndian.AppendUint32(l.body, 8)
	l.body = binary.BigEndian.AppendUint64(l.body, v)
}

func (l *list) param() param {
	dimensions := uint32(1)
	if l.n == 0 {
		dimensions = 0
	}
	b := make([]byte, 0, 20+len(l.body))
	b = binary.BigEndian.AppendUint32(b, dimensions)
	b = binary.BigEndian.AppendUint32(b, 0) // it has no nulls
	b = binary.BigEndian.AppendUint32(b, l.element)
	if l.n > 0 {
		b = binary.BigEndian.AppendUint32(b, uint32(l.n))
		b = binary.BigEndian.AppendUint32(b, 1) // the first index
	}
	return param{l.oid, append(b, l.body...)}
}

// binaryFormat is the format code of parameters and columns.
var binaryFormat = []int16{1}

// encode appends the messages of the statement. Sync ends them, so the statement is one transaction.
func (s *statement) encode(b []byte) []byte {
	parse := pgproto3.Parse{Query: s.sql}
	bind := pgproto3.Bind{ParameterFormatCodes: binaryFormat, ResultFormatCodes: binaryFormat}
	for _, p := range s.params {
		parse.ParameterOIDs = append(parse.ParameterOIDs, p.oid)
		bind.Parameters = append(bind.Parameters, p.value)
	}
	for _, m := range []pgproto3.FrontendMessage{&parse, &bind, &pgproto3.Execute{}, &pgproto3.Sync{}} {
		b, _ = m.Encode(b) // fails for a message of more than 1 GiB; no transaction is that large
	}
	return b
}

// The columns of a row. A malformed one is zero: all statements are functions of the schema, whose types are known.

func (r row) bool(i int) bool { return len(r[i]) == 1 && r[i][0] != 0 }

func (r row) int4(i int) int {
	if len(r[i]) != 4 {
		return 0
	}
	return int(int32(binary.BigEndian.Uint32(r[i])))
}

func (r row) int8(i int) int64 {
	if len(r[i]) != 8 {
		return 0
	}
	return int64(binary.BigEndian.Uint64(r[i]))
}

func (r row) text(i int) string { return string(r[i]) }
