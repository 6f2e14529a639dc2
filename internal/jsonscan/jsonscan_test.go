package jsonscan_test

import (
	"bytes"
	"encoding/json"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/jsonscan"
)

// value reads any value as package json would, with numbers as uint64.
func value(s *jsonscan.Scanner, next byte) any {
	switch next {
	case '{':
		m := map[string]any{}
		for s.Begin('{'); s.More('}'); {
			k := string(s.Key())
			m[k] = member(s)
		}
		return m
	case '[':
		l := []any{}
		for s.Begin('['); s.More(']'); {
			l = append(l, member(s))
		}
		return l
	case '"':
		return string(s.Text())
	case 't', 'f':
		return s.Bool()
	case 'n':
		s.Null()
		return nil
	}
	return s.Uint()
}

// member reads a value that it does not know the kind of: raw first, to look at.
func member(s *jsonscan.Scanner) any {
	raw := s.Raw()
	if s.Odd() || len(raw) == 0 {
		s.Reject()
		return nil
	}
	return value(jsonscan.New(raw), raw[0])
}

func scan(b []byte) (any, bool) {
	s := jsonscan.New(b)
	v := member(s)
	return v, s.Done()
}

// plain turns numbers into what scan makes of them.
func plain(v any) any {
	switch v := v.(type) {
	case json.Number:
		n, _ := strconv.ParseUint(string(v), 10, 64)
		return n
	case []any:
		for i := range v {
			v[i] = plain(v[i])
		}
	case map[string]any:
		for k := range v {
			v[k] = plain(v[k])
		}
	}
	return v
}

func FuzzScanner_ReadsNothingThatPackageJSONReadsOtherwise(f *testing.F) {
	for _, text := range []string{
		`{}`, `[]`, `""`, `0`, `1`, `01`, `-1`, `1.5`, `1e3`, `9223372036854775807`, `9223372036854775808`, `18446744073709551616`,
		`true`, `tru`, `false`, `null`, `nul`, `{"a":1,"b":[true,null,"x"]}`, `{"a":1,}`, `{,}`, `[,1]`, `[1,]`, `[1 ,2]`, ` 1`,
		`{"a"}`, `{"a":}`, `{"a" :1}`, `"a\nb"`, "\"a\x00b\"", "\"日\"", "\"\xff\"", `{"a":1}x`, `[[[[]]]]`, `{"a":1,"a":2}`, ``, `"`, `{`, `[`,
		`[1]]`, `{"a":1]`, `[1}`, `[{},{}]`, `[[],[]]`, `[1,[2,3],4]`, `{"a":{"b":{}},"c":0}`,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		got, ok := scan(b)
		if !ok {
			return
		}
		d := json.NewDecoder(bytes.NewReader(b))
		d.UseNumber()
		var want any
		require.True(t, json.Valid(b), "%q", b)
		require.NoError(t, d.Decode(&want), "%q", b)
		require.Equal(t, plain(want), got, "%q", b)
	})
}

func TestScanner_ReadsWhatThisModuleWrites(t *testing.T) {
	for _, text := range []string{
		`{}`, `[]`, `{"job":"settle","marks":[{"shards":"0-3,7","gen":1}],"ok":true,"no":false,"none":null}`,
		`"日次"`, `9223372036854775807`, `[[1,2],[],{"a":{}}]`,
	} {
		_, ok := scan([]byte(text))
		require.True(t, ok, text)
	}
}

func TestScanner_SaysWhatIsOdd(t *testing.T) {
	for _, text := range []string{
		``, ` {}`, `{} `, `{"a": 1}`, `"\n"`, `-1`, `1.0`, `1e1`, `01`, `9223372036854775808`, `99999999999999999999`,
		`[1,]`, `[,]`, `{"a":1,}`, `{a:1}`, "\"\xff\"", "\"\t\"", `"open`, `[1`, `nulll`, `truth`,
		string(bytes.Repeat([]byte("["), 100)),
	} {
		_, ok := scan([]byte(text))
		require.False(t, ok, text)
	}
}
