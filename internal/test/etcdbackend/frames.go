package etcdbackend

import (
	"encoding/binary"

	"golang.org/x/net/http2/hpack"

	"github.com/rota-dev/rota/conformance/tcpproxy"
)

// parser recognizes the frames of a connection, which are those of HTTP/2.
type parser struct {
	prefaced bool           // the client's preface has passed
	headers  *hpack.Decoder // of requests
	path     string         // of the stream whose headers are being parsed
}

const clientPreface = len("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")

func newParser() tcpproxy.Parser {
	p := &parser{}
	p.headers = hpack.NewDecoder(4096, func(h hpack.HeaderField) {
		if h.Name == ":path" {
			p.path = h.Value
		}
	})
	return p
}

const transaction = "/etcdserverpb.KV/Txn"

const (
	frameHeaderLen = 9

	typeData         = 0x0
	typeHeaders      = 0x1
	typeContinuation = 0x9

	flagEndStream  = 0x1
	flagEndHeaders = 0x4
	flagPadded     = 0x8
	flagPriority   = 0x20
)

// Parse implements tcpproxy.Parser. The ID of a frame is its stream.
func (p *parser) Parse(d tcpproxy.Direction, b []byte) (n int, f tcpproxy.Frame, err error) {
	if d == tcpproxy.ToServer && !p.prefaced {
		p.prefaced = len(b) >= clientPreface
		if !p.prefaced {
			return 0, f, nil
		}
		return clientPreface, f, nil
	}
	if len(b) < frameHeaderLen {
		return 0, f, nil
	}
	n = frameHeaderLen + (int(b[0])<<16 | int(b[1])<<8 | int(b[2]))
	if len(b) < n {
		return 0, f, nil
	}
	f.ID = uint64(binary.BigEndian.Uint32(b[5:]) & (1<<31 - 1))
	if d == tcpproxy.ToServer {
		err = p.parseRequest(&f, b[3], b[4], b[frameHeaderLen:n])
	}
	return n, f, err
}

func (p *parser) parseRequest(f *tcpproxy.Frame, kind, flags byte, payload []byte) error {
	if flags&flagPadded != 0 && (kind == typeData || kind == typeHeaders) {
		payload = payload[1 : len(payload)-int(payload[0])]
	}
	f.More = true
	switch {
	case kind == typeData:
		f.Data, f.More = payload, flags&flagEndStream == 0
		return nil
	case kind != typeHeaders && kind != typeContinuation:
		return nil
	case kind == typeHeaders && flags&flagPriority != 0:
		payload = payload[5:]
	}
	if _, err := p.headers.Write(payload); err != nil {
		return err
	}
	if flags&flagEndHeaders != 0 {
		if p.path == transaction {
			f.Kind = tcpproxy.Transaction
		}
		p.path = ""
	}
	return nil
}
