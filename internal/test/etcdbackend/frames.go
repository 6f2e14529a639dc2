package etcdbackend

import (
	"encoding/binary"

	"golang.org/x/net/http2/hpack"
)

// frame is the part of an HTTP/2 frame that the fault controls need.
type frame struct {
	stream uint32
	path   string // path of the stream; set in the frame that ends its headers
	data   []byte
	last   bool // the last frame of the stream
}

// frames parses one direction of a connection from arbitrary portions.
type frames struct {
	preface int // bytes of the preface still to come
	buf     []byte
	headers *hpack.Decoder // nil for replies, whose headers are ignored
	path    string
}

const clientPreface = len("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")

func newFrames(ofClient bool) *frames {
	f := &frames{}
	if ofClient {
		f.preface = clientPreface
		f.headers = hpack.NewDecoder(4096, func(h hpack.HeaderField) {
			if h.Name == ":path" {
				f.path = h.Value
			}
		})
	}
	return f
}

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

// feed calls f for each frame that b completes.
func (s *frames) feed(b []byte, f func(frame) error) error {
	n := min(s.preface, len(b))
	s.preface -= n
	s.buf = append(s.buf, b[n:]...)
	for len(s.buf) >= frameHeaderLen {
		length := int(s.buf[0])<<16 | int(s.buf[1])<<8 | int(s.buf[2])
		if len(s.buf) < frameHeaderLen+length {
			break
		}
		head, payload := s.buf[:frameHeaderLen], s.buf[frameHeaderLen:frameHeaderLen+length]
		s.buf = s.buf[frameHeaderLen+length:]
		read, err := s.parseFrame(head[3], head[4], binary.BigEndian.Uint32(head[5:])&(1<<31-1), payload)
		if err != nil {
			return err
		}
		if err := f(read); err != nil {
			return err
		}
	}
	return nil
}

func (s *frames) parseFrame(kind, flags byte, stream uint32, payload []byte) (frame, error) {
	f := frame{stream: stream}
	if flags&flagPadded != 0 && (kind == typeData || kind == typeHeaders) {
		payload = payload[1 : len(payload)-int(payload[0])]
	}
	switch {
	case kind == typeData:
		f.data, f.last = payload, flags&flagEndStream != 0
		return f, nil
	case s.headers == nil || kind != typeHeaders && kind != typeContinuation:
		return f, nil
	case kind == typeHeaders && flags&flagPriority != 0:
		payload = payload[5:]
	}
	if _, err := s.headers.Write(payload); err != nil {
		return f, err
	}
	if flags&flagEndHeaders != 0 {
		f.path, s.path = s.path, ""
	}
	return f, nil
}
