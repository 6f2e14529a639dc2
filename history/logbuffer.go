package history

import (
	"sync/atomic"
)

const (
	// logPieceCost is added to the text of a piece, about the size of a row without it.
	logPieceCost = 128
	// maxLogLine bounds the text of a line.
	maxLogLine = 4 << 10
	// The chunks of a buffer grow from firstChunk to mostChunk bytes.
	firstChunk, mostChunk = 256, 4 << 10
)

// logPool bounds the text that waits in memory, of all runs.
type logPool struct {
	most int64
	used atomic.Int64
}

// reserve reserves n bytes, or reports false.
func (p *logPool) reserve(n int) bool {
	if p.used.Add(int64(n)) > p.most {
		p.release(n)
		return false
	}
	return true
}

func (p *logPool) release(n int) { p.used.Add(-int64(n)) }

// chunk is successive lines.
type chunk struct {
	line, at int64 // the lines and bytes of the log before it
	lines    int
	text     []byte // its capacity is reserved
}

// logBuffer holds the lines of a run that wait to be written. It keeps the first ones, up to half of the limit together with those
// that were written, and the last ones, up to the other half; the rest is left out. It knows no clock and no lock.
type logBuffer struct {
	pool  *logPool
	limit int // of the log of the run

	lines, bytes int64 // of the log so far
	head, tail   []*chunk
	headUsed     int  // by lines and pieces of the head, also those that were written
	headFull     bool // further lines are of the tail
	tailBytes    int  // of the chunks of the tail

	pieces int // written, or being written
	heads  int // those of the head
	from   int // of those of the tail, the first that is still kept
	kept   []int
	keptBy int // the sum of kept, which are the costs of the pieces of the tail from from on
}

// half is the bound of the head, and that of the tail.
func (b *logBuffer) half() int { return b.limit / 2 }

// maxLine is the bound of the text of a line, so that several lines fit into the tail.
func (b *logBuffer) maxLine() int { return min(maxLogLine, b.limit/8) }

// add adds a line. It returns the number of lines and bytes that were dropped for lack of memory: this one, or earlier ones.
func (b *logBuffer) add(line []byte) (droppedLines, droppedBytes int64) {
	at, bytes := b.lines, b.bytes
	b.lines++
	b.bytes += int64(len(line))
	if !b.headFull && b.headUsed+len(line)+logPieceCost <= b.half() {
		if !b.append(&b.head, at, bytes, line) {
			b.headFull = true // the tail goes on after the gap
			return 1, int64(len(line))
		}
		b.headUsed += len(line)
		return 0, 0
	}
	b.headFull = true
	for !b.append(&b.tail, at, bytes, line) {
		if len(b.tail) == 0 {
			return droppedLines + 1, droppedBytes + int64(len(line))
		}
		droppedLines += int64(b.tail[0].lines)
		droppedBytes += int64(len(b.tail[0].text))
		b.dropFirst()
	}
	b.tailBytes += len(line)
	for b.tailBytes > b.half()-logPieceCost {
		b.dropFirst()
	}
	return droppedLines, droppedBytes
}

// append appends a line to the last chunk, or to a new one, if there is memory.
func (b *logBuffer) append(to *[]*chunk, at, bytes int64, line []byte) bool {
	size := firstChunk
	if n := len(*to); n > 0 {
		last := (*to)[n-1]
		if last.line+int64(last.lines) == at && len(last.text)+len(line) <= cap(last.text) {
			last.text = append(last.text, line...)
			last.lines++
			return true
		}
		size = min(2*cap(last.text), mostChunk, b.half()/4)
	}
	size = max(size, len(line))
	if !b.pool.reserve(size) {
		return false
	}
	*to = append(*to, &chunk{line: at, at: bytes, lines: 1, text: append(make([]byte, 0, size), line...)})
	return true
}

// dropFirst drops the first chunk of the tail.
func (b *logBuffer) dropFirst() {
	first := b.tail[0]
	b.tail[0] = nil
	b.tail = b.tail[1:]
	b.tailBytes -= len(first.text)
	b.pool.release(cap(first.text))
}

// size is the number of bytes that wait.
func (b *logBuffer) size() (n int) {
	for _, c := range b.head {
		n += len(c.text)
	}
	return n + b.tailBytes
}

// take removes the first lines, which follow one another, as a piece with a text of up to most bytes, and returns the number of bytes to release
// when it is written, and the cost of the pieces that it replaces. The piece is empty if no whole chunk fits, or none is left.
func (b *logBuffer) take(most int) (p Log, reserved, replaced int) {
	from := &b.tail
	if len(b.head) > 0 {
		from = &b.head
	}
	var text []byte
	n := 0
	for _, c := range *from {
		if len(text)+len(c.text) > most || n > 0 && c.line != p.Line+int64(p.Lines) {
			break
		}
		if n == 0 {
			p.Line, p.Byte = c.line, c.at
		}
		p.Lines += c.lines
		text = append(text, c.text...)
		reserved += cap(c.text)
		n++
	}
	if n == 0 {
		return Log{}, 0, 0
	}
	p.Text = string(text)
	isHead := from == &b.head
	clear((*from)[:n])
	if *from = (*from)[n:]; len(*from) == 0 {
		*from = nil
	}
	p.Piece = b.pieces
	b.pieces++
	if isHead {
		b.headUsed += logPieceCost
		b.heads = b.pieces
		b.from = b.pieces
		return p, reserved, 0
	}
	b.tailBytes -= len(text)
	b.kept = append(b.kept, len(text)+logPieceCost)
	for b.keptBy += len(text) + logPieceCost; b.keptBy > b.half(); b.from++ {
		b.keptBy -= b.kept[0]
		replaced += b.kept[0]
		b.kept = b.kept[1:]
	}
	if b.from > b.heads {
		p.Head, p.From = b.heads, b.from
	}
	return p, reserved, replaced
}

// end returns an empty piece, which is the last one.
func (b *logBuffer) end() Log {
	p := Log{Piece: b.pieces, Line: b.lines, Byte: b.bytes}
	b.pieces++
	return p
}

// drop drops the lines that wait, and returns their number.
func (b *logBuffer) drop() (lines, bytes int64) {
	for _, chunks := range [][]*chunk{b.head, b.tail} {
		for _, c := range chunks {
			lines, bytes = lines+int64(c.lines), bytes+int64(len(c.text))
			b.pool.release(cap(c.text))
		}
	}
	b.head, b.tail, b.tailBytes, b.headFull = nil, nil, 0, true
	return lines, bytes
}
