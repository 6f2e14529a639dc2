package port

import (
	"bufio"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// pipeListener accepts one end of each pipe that is sent.
type pipeListener struct{ conns chan net.Conn }

func (l pipeListener) Accept() (net.Conn, error) {
	conn, ok := <-l.conns
	if !ok {
		return nil, net.ErrClosed
	}
	return conn, nil
}

func (l pipeListener) Close() error {
	close(l.conns)
	return nil
}

func (pipeListener) Addr() net.Addr { return &net.TCPAddr{} }

func (l pipeListener) dial() net.Conn {
	ours, theirs := net.Pipe()
	l.conns <- theirs
	return ours
}

// most is the number of connections.
const most = 64

// servePipes serves handler as a port does, over pipes.
func servePipes(t *testing.T, handler http.HandlerFunc) pipeListener {
	l := pipeListener{make(chan net.Conn)}
	server := New(handler, slog.New(slog.DiscardHandler), Timeout)
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(Limit(l, most)) }()
	t.Cleanup(func() {
		server.Close()
		<-ended
	})
	return l
}

func TestPort_EndsConnectionsThatAreSlow(t *testing.T) {
	for name, request := range map[string]string{
		"to send a header": "GET / HTTP/1.1\r\nHost: ",
		"to send a body":   "GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n",
		"to read":          "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := servePipes(t, func(w http.ResponseWriter, _ *http.Request) {
					_, _ = io.WriteString(w, strings.Repeat("x", 1<<20))
				})
				conn := l.dial()
				_, err := io.WriteString(conn, request)
				require.NoError(t, err)
				time.Sleep(3 * Timeout)
				synctest.Wait()
				_, err = conn.Write([]byte("x"))
				assert.ErrorIs(t, err, io.ErrClosedPipe)
			})
		})
	}
}

func TestPort_RefusesALongHeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := servePipes(t, func(w http.ResponseWriter, _ *http.Request) {})
		conn := l.dial()
		go func() {
			_, _ = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: a\r\nX: "+strings.Repeat("x", 64<<10)+"\r\n\r\n")
		}()
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		require.NoError(t, err)
		assert.Equal(t, http.StatusRequestHeaderFieldsTooLarge, resp.StatusCode)
		conn.Close()
		time.Sleep(time.Second) // for the end of the connection
	})
}

// Slow clients do not keep others out: the oldest of their connections ends.
func TestPort_AnswersBesideSlowClients(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := servePipes(t, func(w http.ResponseWriter, _ *http.Request) {})
		var slow []net.Conn
		begin := time.Now()
		for range 3 * most {
			conn := l.dial()
			_, _ = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n")
			slow = append(slow, conn)
		}
		conn := l.dial()
		_, err := io.WriteString(conn, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
		require.NoError(t, err)
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		require.NoError(t, err)
		assert.Equal(t, 200, resp.StatusCode)
		assert.Zero(t, time.Since(begin), "at once")
		conn.Close()
		open := 0
		for _, conn := range slow {
			if conn.SetReadDeadline(time.Now().Add(time.Millisecond)) == nil { // else it is closed
				open++
			}
			conn.Close()
		}
		assert.Less(t, open, most)
	})
}

func TestPort_LogsProblemsAsTheProcessDoes(t *testing.T) {
	var log strings.Builder
	New(nil, slog.New(slog.NewTextHandler(&log, nil)), 0).ErrorLog.Printf("http: Accept error: %v", "too many")
	assert.Contains(t, log.String(), `level=WARN msg="a port had a problem with a connection" problem="http: Accept error: too many"`)
}
