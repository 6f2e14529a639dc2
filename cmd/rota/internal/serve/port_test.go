package serve

import (
	"bufio"
	"io"
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

// servePipes serves handler as a port does, over pipes.
func servePipes(t *testing.T, handler http.HandlerFunc, log *journal) pipeListener {
	l := pipeListener{make(chan net.Conn)}
	server := newPort(handler, log.logger(), portTimeout)
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(&boundedListener{Listener: l, most: maxConnections}) }()
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
				}, &journal{})
				conn := l.dial()
				_, err := io.WriteString(conn, request)
				require.NoError(t, err)
				time.Sleep(3 * portTimeout)
				synctest.Wait()
				_, err = conn.Write([]byte("x"))
				assert.ErrorIs(t, err, io.ErrClosedPipe)
			})
		})
	}
}

func TestPort_RefusesALongHeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := servePipes(t, func(w http.ResponseWriter, _ *http.Request) {}, &journal{})
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
		l := servePipes(t, func(w http.ResponseWriter, _ *http.Request) {}, &journal{})
		var slow []net.Conn
		begin := time.Now()
		for range 3 * maxConnections {
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
		assert.Less(t, open, maxConnections)
	})
}

func TestPort_LogsProblemsAsTheProcessDoes(t *testing.T) {
	log := &journal{}
	newPort(nil, log.logger(), 0).ErrorLog.Printf("http: Accept error: %v", "too many")
	records := log.find(t, "a port had a problem with a connection")
	require.Len(t, records, 1)
	assert.Equal(t, "http: Accept error: too many", records[0]["problem"])
	assert.Equal(t, "WARN", records[0]["level"])
}
