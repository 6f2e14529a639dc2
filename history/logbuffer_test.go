package history

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func newBuffer(limit, memory int) *logBuffer {
	return &logBuffer{pool: &logPool{most: int64(memory)}, limit: limit}
}

// drain takes everything as pieces.
func (b *logBuffer) drain(most int) (pieces []Log) {
	for {
		p, reserved, _ := b.take(most)
		if p.Text == "" {
			return pieces
		}
		b.pool.release(reserved)
		pieces = append(pieces, p)
	}
}

// store is the kept pieces of a log.
type store []Log

func (s *store) add(pieces ...Log) {
	for _, p := range pieces {
		*s = append(*s, p)
		var kept store
		for _, old := range *s {
			if old.Piece < p.Head || old.Piece >= p.From {
				kept = append(kept, old)
			}
		}
		*s = kept
	}
}

func (s store) bytes() (n int) {
	for _, p := range s {
		n += len(p.Text)
	}
	return n
}

func line(n int) []byte { return fmt.Appendf(nil, "2026-03-01T12:00:00.000Z stdout %06d\n", n) }

// Of a log of any length the begin and the end are kept, within the limit, however it is cut into pieces.
func TestLogBuffer_KeepsHeadAndTail(t *testing.T) {
	const limit = 4 << 10
	size := len(line(0))
	for _, lines := range []int{1, (limit/2 - logPieceCost) / size, (limit/2-logPieceCost)/size + 1, limit / size, limit/size + 1, 1000, 5000} {
		for _, perPiece := range []int{1, 3, 40, 1000, 10_000} {
			t.Run(fmt.Sprintf("%d lines, %d for a piece", lines, perPiece), func(t *testing.T) {
				b := newBuffer(limit, 1<<20)
				var s store
				for n := range lines {
					dropped, _ := b.add(line(n))
					require.Zero(t, dropped)
					require.LessOrEqual(t, b.size(), limit)
					if n%perPiece == perPiece-1 {
						s.add(b.drain(MaxLogText)...)
						require.LessOrEqual(t, s.bytes(), limit)
						require.LessOrEqual(t, len(s), limit/logPieceCost)
					}
				}
				s.add(b.drain(MaxLogText)...)
				s.add(b.end())
				require.Zero(t, b.pool.used.Load())
				got := LogLines(s)
				require.Equal(t, "000000", got[0].Text)
				if lines > 100 && perPiece < 40 { // rows count too
					require.Greater(t, s.bytes(), limit/8)
				} else if lines > 100 {
					require.Greater(t, s.bytes(), limit/2)
				}
				last := got[len(got)-1]
				require.Equal(t, fmt.Sprintf("%06d", lines-1), last.Text)
				missing, next := 0, 0
				for _, l := range got {
					if l.Kind == LogMissing {
						var bytes int
						_, err := fmt.Sscanf(l.Text, "%d lines (%d bytes) are missing", &missing, &bytes)
						require.NoError(t, err)
						require.Equal(t, missing*size, bytes)
						next += missing
						continue
					}
					require.Equal(t, fmt.Sprintf("%06d", next), l.Text)
					next++
				}
				require.Equal(t, lines, next, "a line is there, or counted as missing")
				if lines <= (limit/2-logPieceCost)/size && perPiece >= 40 {
					require.Zero(t, missing)
				}
			})
		}
	}
}

func TestLogBuffer_BoundsMemory(t *testing.T) {
	for _, memory := range []int{0, firstChunk - 1, firstChunk, 2 * firstChunk, 8 << 10} {
		pool := &logPool{most: int64(memory)}
		var dropped int64
		var buffers []*logBuffer
		for range 50 {
			b := &logBuffer{pool: pool, limit: 64 << 10}
			for n := range 100 {
				lines, bytes := b.add(line(n))
				require.Equal(t, lines*int64(len(line(0))), bytes)
				dropped += lines
				require.LessOrEqual(t, pool.used.Load(), int64(memory))
			}
			buffers = append(buffers, b)
		}
		var kept int64
		for _, b := range buffers {
			for _, p := range b.drain(MaxLogText) {
				kept += int64(p.Lines)
			}
		}
		require.Zero(t, pool.used.Load())
		require.EqualValues(t, 5000, kept+dropped)
		require.Equal(t, memory >= firstChunk, kept > 0)
	}
}

func TestLogBuffer_TakesOnlyWhatFits(t *testing.T) {
	b := newBuffer(64<<10, 1<<20)
	for n := range 100 {
		b.add(line(n))
	}
	size := b.size()
	for _, most := range []int{0, 1, len(line(0)) - 1} {
		p, reserved, _ := b.take(most)
		require.Zero(t, p)
		require.Zero(t, reserved)
	}
	require.Equal(t, size, b.size())
	for b.size() > 0 {
		p, reserved, _ := b.take(1024)
		b.pool.release(reserved)
		if p.Text == "" { // a chunk is larger
			p, reserved, _ = b.take(4096)
			b.pool.release(reserved)
		}
		require.NotEmpty(t, p.Text)
		require.Equal(t, p.Lines, strings.Count(p.Text, "\n"))
		require.True(t, bytes.HasPrefix([]byte(p.Text), line(int(p.Line))))
		require.Equal(t, p.Line*int64(len(line(0))), p.Byte)
	}
}

func TestLogCursor_ReadsAPieceOnce(t *testing.T) {
	piece := func(n int, first int64, lines int) Log {
		p := Log{Piece: n, Line: first, Byte: first * int64(len(line(0))), Lines: lines}
		for i := range lines {
			p.Text += string(line(int(first) + i))
		}
		return p
	}
	a, b, c := piece(0, 0, 2), piece(1, 2, 1), piece(5, 10, 1)
	end := Log{Piece: 6, Line: 12, Outcome: Failed, Written: start, Byte: 12 * int64(len(line(0)))}
	var cursor LogCursor
	require.Len(t, cursor.Read(&a), 2)
	require.Empty(t, cursor.Read(&a))
	require.Len(t, cursor.Read(&b), 1)
	require.Empty(t, cursor.Read(&a))
	got := cursor.Read(&c)
	require.Equal(t, LogLine{Kind: LogMissing, Text: "7 lines (273 bytes) are missing"}, got[0])
	require.Equal(t, "000010", got[1].Text)
	require.Equal(t, []LogLine{{Kind: LogMissing, Text: "1 line (39 bytes) is missing"}, {At: start, Kind: LogEnd, Text: "failed"}}, cursor.Read(&end))
	require.Empty(t, cursor.Read(&end))
	require.Equal(t, append(got[:0:0], LogLine{Text: "no line of this version"}), (&LogCursor{}).Read(&Log{Lines: 1, Text: "no line of this version\n"}))
}
