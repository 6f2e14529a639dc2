package notify

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"io"
	"mime"
	"mime/quotedprintable"
	"net"
	"net/mail"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// smtpServer is a mail server that accepts one address after another unless it refuses them.
type smtpServer struct {
	net.Listener
	tls      *tls.Config // nil: it does not offer STARTTLS
	implicit bool
	auth     string            // "user password" that it accepts; empty: it offers no AUTH
	refuse   map[string]string // answers, by the begin of a command

	mu       sync.Mutex
	commands []string
	mails    []string
}

func startSMTP(t *testing.T, s *smtpServer) *smtpServer {
	t.Helper()
	var err error
	s.Listener, err = net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var sessions sync.WaitGroup
	sessions.Go(func() {
		for {
			conn, err := s.Accept()
			if err != nil {
				return
			}
			sessions.Go(func() { s.serve(conn) })
		}
	})
	t.Cleanup(func() { _ = s.Close(); sessions.Wait() })
	return s
}

// certificates returns the TLS of a server for 127.0.0.1, and that of its clients.
func certificates(t *testing.T) (server, client *tls.Config) {
	t.Helper()
	h := newHook(t, true, nil)
	return &tls.Config{Certificates: h.TLS.Certificates, MinVersion: tls.VersionTLS12}, h.pool()
}

func (s *smtpServer) serve(conn net.Conn) {
	defer func() { conn.Close() }()
	if s.implicit {
		conn = tls.Server(conn, s.tls)
	}
	r := bufio.NewReader(conn)
	say := func(text string) { fmt.Fprintf(conn, "%s\r\n", text) }
	say("220 test")
	secure := s.implicit
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			return
		}
		line = strings.TrimRight(line, "\r\n")
		s.mu.Lock()
		s.commands = append(s.commands, line)
		s.mu.Unlock()
		refused := false
		for begin, answer := range s.refuse {
			if strings.HasPrefix(line, begin) {
				say(answer)
				refused = true
			}
		}
		if refused {
			continue
		}
		switch verb, rest, _ := strings.Cut(line, " "); verb {
		case "EHLO":
			lines := []string{"250-test"}
			if s.tls != nil && !secure {
				lines = append(lines, "250-STARTTLS")
			}
			if s.auth != "" {
				lines = append(lines, "250-AUTH PLAIN")
			}
			say(strings.Join(append(lines, "250 8BITMIME"), "\r\n"))
		case "STARTTLS":
			say("220 go on")
			conn = tls.Server(conn, s.tls)
			r = bufio.NewReader(conn)
			secure = true
		case "AUTH":
			_, text, _ := strings.Cut(rest, " ")
			plain, _ := base64.StdEncoding.DecodeString(text)
			if strings.Trim(strings.ReplaceAll(string(plain), "\x00", " "), " ") == s.auth {
				say("235 welcome")
			} else {
				say("535 not you: " + strings.ReplaceAll(string(plain), "\x00", " ") + text)
			}
		case "DATA":
			say("354 go on")
			var b strings.Builder
			for {
				line, err := r.ReadString('\n')
				if err != nil {
					return
				}
				if line == ".\r\n" {
					break
				}
				b.WriteString(strings.TrimPrefix(line, "."))
			}
			s.mu.Lock()
			s.mails = append(s.mails, b.String())
			s.mu.Unlock()
			say("250 2.0.0 Ok: queued as 4711")
		case "QUIT":
			say("221 bye")
			return
		default:
			say("250 ok")
		}
	}
}

// got returns the commands that begin with a word, and all mails.
func (s *smtpServer) got(verb string) (commands, mails []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.commands {
		if strings.HasPrefix(c, verb) {
			commands = append(commands, c)
		}
	}
	return commands, slices.Clone(s.mails)
}

func newMail(t *testing.T, s *smtpServer, change func(o *MailOptions)) Receiver {
	t.Helper()
	o := MailOptions{Server: s.Addr().String(), From: "rota <rota@example.org>", To: []string{"Ops Team <ops@example.org>", "kim@example.org"}}
	if change != nil {
		change(&o)
	}
	m, err := Mail(o)
	require.NoError(t, err)
	return m
}

func TestMail_SendsByTLSWithAPassword(t *testing.T) {
	for _, implicit := range []bool{false, true} {
		t.Run(fmt.Sprintf("implicit %v", implicit), func(t *testing.T) {
			server, client := certificates(t)
			s := startSMTP(t, &smtpServer{tls: server, implicit: implicit, auth: "rota correct-horse"})
			r := newMail(t, s, func(o *MailOptions) {
				o.ImplicitTLS, o.TLS, o.Username, o.PasswordFile = implicit, client, "rota", secretFile(t, "correct-horse\n")
			})
			m := message()
			m.Job, m.Text, m.Link = "größe", "n/g: größe is failing\nsecond line\n.hidden", "https://rota.example.org/jobs/x"
			require.NoError(t, r.Deliver(t.Context(), m))
			rcpt, mails := s.got("RCPT")
			assert.Equal(t, []string{"RCPT TO:<ops@example.org>", "RCPT TO:<kim@example.org>"}, rcpt)
			require.Len(t, mails, 1)
			got, err := mail.ReadMessage(strings.NewReader(mails[0]))
			require.NoError(t, err)
			subject, err := new(mime.WordDecoder).DecodeHeader(got.Header.Get("Subject"))
			require.NoError(t, err)
			assert.Equal(t, "[rota] n/g: größe is failing", subject)
			assert.Equal(t, []string{`"rota" <rota@example.org>`, `"Ops Team" <ops@example.org>, <kim@example.org>`, "<" + m.ID + "@example.org>", "auto-generated"},
				[]string{got.Header.Get("From"), got.Header.Get("To"), got.Header.Get("Message-ID"), got.Header.Get("Auto-Submitted")})
			body, err := io.ReadAll(quotedprintable.NewReader(got.Body))
			require.NoError(t, err)
			assert.Equal(t, "n/g: größe is failing\r\nsecond line\r\n.hidden\r\n\r\nhttps://rota.example.org/jobs/x\r\n\r\nid: "+m.ID+"\r\n", string(body))
		})
	}
}

func TestMail_Test(t *testing.T) {
	s := startSMTP(t, &smtpServer{})
	answer, err := SendTest(t.Context(), newMail(t, s, nil), "billing", "")
	require.NoError(t, err)
	assert.Equal(t, "250 2.0.0 Ok: queued as 4711", answer)
}

func TestMail_NoPasswordWithoutTLS(t *testing.T) {
	s := startSMTP(t, &smtpServer{auth: "rota correct-horse"})
	for _, insecure := range []bool{false, true} {
		r := newMail(t, s, func(o *MailOptions) {
			o.Username, o.PasswordFile, o.Insecure = "rota", secretFile(t, "correct-horse"), insecure
		})
		assert.ErrorContains(t, r.Deliver(t.Context(), message()), "a password is sent over TLS only")
	}
	auth, mails := s.got("AUTH")
	assert.Empty(t, auth)
	assert.Empty(t, mails)
}

// A server on another host must offer STARTTLS.
func TestMail_NeedsTLSBeyondThisHost(t *testing.T) {
	s := startSMTP(t, &smtpServer{})
	elsewhere := func(insecure bool) error {
		r := newMail(t, s, func(o *MailOptions) { o.Insecure = insecure })
		m := r.(*mailer)
		m.host = "mail.example.org"
		m.dial = func(ctx context.Context, network, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, network, s.Addr().String())
		}
		return r.Deliver(t.Context(), message())
	}
	assert.ErrorContains(t, elsewhere(false), "does not offer STARTTLS")
	_, mails := s.got("")
	assert.Empty(t, mails)
	require.NoError(t, elsewhere(true))
}

func TestMail_AWrongCertificateIsRefused(t *testing.T) {
	server, _ := certificates(t)
	s := startSMTP(t, &smtpServer{tls: server})
	err := newMail(t, s, nil).Deliver(t.Context(), message())
	assert.ErrorContains(t, err, "begin TLS: ")
	_, mails := s.got("")
	assert.Empty(t, mails)
}

func TestMail_ErrorsHaveNoPassword(t *testing.T) {
	server, client := certificates(t)
	s := startSMTP(t, &smtpServer{tls: server, auth: "rota correct-horse"})
	r := newMail(t, s, func(o *MailOptions) {
		o.TLS, o.Username, o.PasswordFile = client, "rota", secretFile(t, "wrong-battery")
	})
	err := r.Deliver(t.Context(), message())
	assert.ErrorContains(t, err, "535 \"not you")
	assert.NotContains(t, err.Error(), "wrong-battery")
	assert.NotContains(t, err.Error(), base64.StdEncoding.EncodeToString([]byte("\x00rota\x00wrong-battery")))
	assert.False(t, isPermanent(err), "the password may be changed")
}

func TestMail_Refusals(t *testing.T) {
	for name, c := range map[string]struct {
		refuse    map[string]string
		want      string
		permanent bool
	}{
		"the sender":           {map[string]string{"MAIL": "550 not from you"}, "sender rota@example.org: 550 \"not from you", true},
		"the sender, for now":  {map[string]string{"MAIL": "451 later"}, "451 \"later", false},
		"all addresses":        {map[string]string{"RCPT": "550 unknown"}, "address ops@example.org: 550 \"unknown", true},
		"the content":          {map[string]string{"DATA": "554 no"}, "554 \"no", true},
		"the content, for now": {map[string]string{"DATA": "452 full"}, "452 \"full", false},
	} {
		t.Run(name, func(t *testing.T) {
			s := startSMTP(t, &smtpServer{refuse: c.refuse})
			err := newMail(t, s, nil).Deliver(t.Context(), message())
			require.ErrorContains(t, err, c.want)
			assert.Equal(t, c.permanent, isPermanent(err))
			_, mails := s.got("")
			assert.Empty(t, mails)
		})
	}
	t.Run("one address", func(t *testing.T) {
		s := startSMTP(t, &smtpServer{refuse: map[string]string{"RCPT TO:<kim@": "550 unknown"}})
		err := newMail(t, s, nil).Deliver(t.Context(), message())
		var incomplete *incompleteError
		require.ErrorAs(t, err, &incomplete)
		assert.ErrorContains(t, err, "address kim@example.org: 550 \"unknown")
		_, mails := s.got("")
		assert.Len(t, mails, 1)
	})
}

// Names of jobs, errors and addresses that try to add a field or a line to the header.
func TestMail_NoTextEndsAField(t *testing.T) {
	s := startSMTP(t, &smtpServer{})
	r := newMail(t, s, nil)
	for _, evil := range []string{
		"a\r\nBcc: eve@example.org", "a\nBcc: eve@example.org", "a\rBcc: eve@example.org", "a\r\n\r\nbody", "é\r\nBcc: eve@example.org",
		strings.Repeat("é", 200) + "\r\nBcc: eve@example.org", "a\r\n.\r\nMAIL FROM:<eve@example.org>", "\x00", "\u2028Bcc: x",
	} {
		m := message()
		m.Text, m.ID = evil, "id>\r\nBcc: eve@example.org"
		require.NoError(t, r.Deliver(t.Context(), m))
	}
	_, mails := s.got("")
	require.Len(t, mails, 9)
	for _, text := range mails {
		m, err := mail.ReadMessage(strings.NewReader(text))
		require.NoError(t, err)
		assert.Empty(t, m.Header.Get("Bcc"), text)
		assert.Len(t, m.Header, 9, text)
	}
	from, _ := s.got("MAIL")
	assert.Len(t, from, 9)
}

func TestMail_RefusesWrongOptions(t *testing.T) {
	good := MailOptions{Server: "mail.example.org", From: "rota@example.org", To: []string{"ops@example.org"}}
	for want, change := range map[string]func(o *MailOptions){
		"Server: ":                      func(o *MailOptions) { o.Server = "smtp://mail.example.org" },
		"Server: \"\"":                  func(o *MailOptions) { o.Server = "" },
		"From: \"x\" is not an address": func(o *MailOptions) { o.From = "x" },
		"From: \"=?utf-8?q?a=0D":        func(o *MailOptions) { o.From = "=?utf-8?q?a=0D=0ABcc:_x?= <rota@example.org>" },
		"To: there is no address":       func(o *MailOptions) { o.To = nil },
		"To: \"a@b\\r\\nDATA\"":         func(o *MailOptions) { o.To = []string{"a@b\r\nDATA"} },
		"Username: needs PasswordFile":  func(o *MailOptions) { o.Username = "rota" },
		"Insecure: conflicts":           func(o *MailOptions) { o.Insecure, o.ImplicitTLS = true, true },
	} {
		o := good
		change(&o)
		_, err := Mail(o)
		assert.ErrorContains(t, err, want)
	}
	for server, want := range map[string]string{"mail.example.org": "mail.example.org:587", "mail:25": "mail:25", "[::1]": "[::1]:587", "::1": "[::1]:587", "[::1]:25": "[::1]:25"} {
		o := good
		o.Server = server
		m, err := Mail(o)
		require.NoError(t, err, server)
		assert.Equal(t, want, net.JoinHostPort(m.(*mailer).host, m.(*mailer).port))
	}
}
