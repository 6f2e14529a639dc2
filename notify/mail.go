package notify

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"mime"
	"mime/quotedprintable"
	"net"
	"net/mail"
	"net/netip"
	"net/smtp"
	"net/textproto"
	"os"
	"strings"
	"time"

	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/internal/secret"
)

// MailOptions are the settings of Mail. Server, From and To are required.
type MailOptions struct {
	// Server is the mail server, as HOST or HOST:PORT. The default port is 587, or 465 with ImplicitTLS.
	Server string
	// From and To are addresses, with names or without: "rota <rota@example.org>".
	From string
	To   []string
	// Username logs in by AUTH PLAIN, with the password in PasswordFile, only over TLS.
	Username, PasswordFile string
	// ImplicitTLS has the connection begin with TLS. Otherwise the server must offer STARTTLS, unless it is on a loopback address or
	// Insecure is set.
	ImplicitTLS bool
	// Insecure permits a connection without TLS to another host. Messages are readable on the network then. With a Username, TLS is
	// needed in any case.
	Insecure bool
	// TLS configures TLS. Nil means Go's default. An empty ServerName means the host of Server.
	TLS *tls.Config
	// ReadFile reads PasswordFile, for each message. Nil means os.ReadFile.
	ReadFile func(path string) ([]byte, error)
}

// Mail returns a receiver that sends each message by SMTP, as plain text. The server accepts a message for all addresses
// that it does not refuse; those that it refuses are logged. If it refuses all, or the sender, by a permanent error, the receiver refuses the message.
func Mail(o MailOptions) (Receiver, error) {
	m := &mailer{o: o, secrets: secrets{read: o.ReadFile}, dial: (&net.Dialer{}).DialContext}
	if err := m.check(); err != nil {
		return nil, fmt.Errorf("mail: %w", err)
	}
	return m, nil
}

type mailer struct {
	o          MailOptions
	secrets    secrets
	host, port string
	from       *mail.Address
	to         []*mail.Address
	dial       func(ctx context.Context, network, address string) (net.Conn, error)
}

func (m *mailer) check() error {
	var errs []error
	report := func(field string, format string, args ...any) {
		errs = append(errs, fmt.Errorf(field+": "+format, args...))
	}
	port := "587"
	if m.o.ImplicitTLS {
		port = "465"
	}
	server := m.o.Server
	if !strings.Contains(server, ":") || strings.HasSuffix(server, "]") || strings.Count(server, ":") > 1 && !strings.Contains(server, "[") {
		server = net.JoinHostPort(strings.Trim(server, "[]"), port)
	}
	var err error
	if m.host, m.port, err = net.SplitHostPort(server); err != nil || m.host == "" || m.port == "" || hasControl(server) || strings.ContainsAny(server, " /@") {
		report("Server", "%.100q is not HOST or HOST:PORT", m.o.Server)
	}
	if m.from, err = parseMailbox(m.o.From); err != nil {
		report("From", "%w", err)
	}
	if len(m.o.To) == 0 {
		report("To", "there is no address")
	}
	for _, text := range m.o.To {
		to, err := parseMailbox(text)
		if err != nil {
			report("To", "%w", err)
			continue
		}
		m.to = append(m.to, to)
	}
	if (m.o.Username == "") != (m.o.PasswordFile == "") {
		report("Username", "needs PasswordFile, and the reverse")
	}
	if m.o.ImplicitTLS && m.o.Insecure {
		report("Insecure", "conflicts with ImplicitTLS")
	}
	return errors.Join(errs...)
}

// parseMailbox parses an address. One with a control character, which package mail decodes from an encoded word, would be a line of its own.
func parseMailbox(text string) (*mail.Address, error) {
	a, err := mail.ParseAddress(text)
	if err != nil {
		return nil, fmt.Errorf("%.100q is not an address", text)
	}
	if hasControl(a.Name+a.Address) || strings.ContainsAny(a.Address, "\t<> ") {
		return nil, fmt.Errorf("%.100q has a character that addresses cannot have", text)
	}
	return a, nil
}

// Deliver sends a mail.
func (m *mailer) Deliver(ctx context.Context, msg Message) error {
	_, err := m.deliver(ctx, msg)
	return err
}

// deliver sends a mail, and returns the answer of the server.
func (m *mailer) deliver(ctx context.Context, msg Message) (answer string, err error) {
	mask := &secret.Masker{}
	password := ""
	if m.o.PasswordFile != "" {
		if password, err = m.secrets.readFile(m.o.PasswordFile); err != nil {
			return "", fmt.Errorf("read the file of the password: %w", err)
		}
		mask.Add(password)
		mask.Add(base64.StdEncoding.EncodeToString([]byte("\x00" + m.o.Username + "\x00" + password))) // as AUTH sends it
	}
	answer, err = m.send(ctx, msg, password)
	if ctx.Err() != nil && err != nil {
		err = fmt.Errorf("%w: %w", context.Cause(ctx), err)
	}
	if err != nil {
		err = fmt.Errorf("mail by %s: %w", net.JoinHostPort(m.host, m.port), err)
	}
	return mask.Mask(answer), mask.Error(err)
}

func (m *mailer) send(ctx context.Context, msg Message, password string) (answer string, err error) {
	conn, secure, err := m.connect(ctx)
	if err != nil {
		return "", err
	}
	// The connection is closed at the end of ctx, which ends each wait for the server.
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	c, err := smtp.NewClient(conn, m.host)
	if err != nil {
		_ = conn.Close()
		return "", err
	}
	defer c.Close()
	if err := c.Hello(helloName()); err != nil {
		return "", err
	}
	if !secure {
		if secure, err = m.startTLS(c); err != nil {
			return "", err
		}
	}
	if password != "" {
		if !secure {
			return "", errors.New("a password is sent over TLS only, and the server does not offer STARTTLS")
		}
		if err := c.Auth(smtp.PlainAuth("", m.o.Username, password, m.host)); err != nil {
			return "", fmt.Errorf("log in: %w", err) // tried again: the password may be changed
		}
	}
	if err := c.Mail(m.from.Address); err != nil {
		return "", fmt.Errorf("sender %s: %w", m.from.Address, refuse(err))
	}
	var refused []error
	for _, to := range m.to {
		if err := c.Rcpt(to.Address); err != nil {
			refused = append(refused, fmt.Errorf("address %s: %w", to.Address, err))
		}
	}
	if len(refused) == len(m.to) {
		return "", refuse(errors.Join(refused...))
	}
	if answer, err = m.transmit(c, msg); err != nil {
		return "", err
	}
	_ = c.Quit() // the mail is accepted
	if len(refused) > 0 {
		return answer, &incompleteError{errors.Join(refused...)}
	}
	return answer, nil
}

// helloName returns the name of this host. Some servers refuse that of package smtp, which is localhost.
func helloName() string {
	name, err := os.Hostname()
	if err != nil || name == "" || hasControl(name) || strings.Contains(name, " ") {
		return "localhost"
	}
	return name
}

// connect connects to the server. secure is set if the connection uses TLS.
func (m *mailer) connect(ctx context.Context) (conn net.Conn, secure bool, err error) {
	conn, err = m.dial(ctx, "tcp", net.JoinHostPort(m.host, m.port))
	if err != nil || !m.o.ImplicitTLS {
		return conn, false, err
	}
	secured := tls.Client(conn, m.tlsConfig())
	if err := secured.HandshakeContext(ctx); err != nil {
		_ = conn.Close()
		return nil, false, fmt.Errorf("begin TLS: %w", err)
	}
	return secured, true, nil
}

// startTLS begins TLS, if the server offers it, or reports that it has to.
func (m *mailer) startTLS(c *smtp.Client) (secure bool, err error) {
	if offered, _ := c.Extension("STARTTLS"); offered {
		if err := c.StartTLS(m.tlsConfig()); err != nil {
			return false, fmt.Errorf("begin TLS: %w", err)
		}
		return true, nil
	}
	if ip, err := netip.ParseAddr(m.host); m.o.Insecure || strings.EqualFold(m.host, "localhost") || err == nil && ip.IsLoopback() {
		return false, nil
	}
	return false, errors.New("the server does not offer STARTTLS, without which messages would be readable on the network; set Insecure to permit that")
}

func (m *mailer) tlsConfig() *tls.Config {
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if m.o.TLS != nil {
		c = m.o.TLS.Clone()
	}
	c.ServerName = cmp.Or(c.ServerName, m.host)
	return c
}

// refuse marks an error as permanent if the server's code is.
func refuse(err error) error {
	var reply *textproto.Error
	if errors.As(err, &reply) && reply.Code >= 500 {
		return executor.Permanent(err)
	}
	return err
}

// transmit sends the content, and returns the answer.
func (m *mailer) transmit(c *smtp.Client, msg Message) (answer string, err error) {
	id, err := c.Text.Cmd("DATA")
	if err != nil {
		return "", err
	}
	c.Text.StartResponse(id)
	_, _, err = c.Text.ReadResponse(354)
	c.Text.EndResponse(id)
	if err != nil {
		return "", refuse(err)
	}
	w := c.Text.DotWriter()
	if _, err := w.Write(m.content(msg)); err != nil {
		return "", err
	}
	if err := w.Close(); err != nil {
		return "", err
	}
	code, text, err := c.Text.ReadResponse(250)
	if err != nil {
		return "", refuse(err)
	}
	return cutTo(fmt.Sprintf("%d %s", code, text), maxAnswer), nil
}

// content returns a mail with its header. No text of a message can end a field: names are encoded, and the subject is one line.
func (m *mailer) content(msg Message) []byte {
	var b bytes.Buffer
	field := func(name, value string) { fmt.Fprintf(&b, "%s: %s\r\n", name, value) }
	field("From", m.from.String())
	to := make([]string, len(m.to))
	for i, a := range m.to {
		to[i] = a.String()
	}
	field("To", strings.Join(to, ",\r\n "))
	field("Subject", encodeSubject("[rota] "+cutTo(msg.Subject(), 120)))
	field("Date", msg.At.UTC().Format(time.RFC1123Z))
	_, domain, _ := strings.Cut(m.from.Address, "@")
	field("Message-ID", fmt.Sprintf("<%s@%s>", inLine(msg.ID), domain))
	field("Auto-Submitted", "auto-generated")
	field("MIME-Version", "1.0")
	field("Content-Type", "text/plain; charset=utf-8")
	field("Content-Transfer-Encoding", "quoted-printable")
	b.WriteString("\r\n")
	q := quotedprintable.NewWriter(&b)
	text := msg.Text + "\n"
	if msg.Link != "" {
		text += "\n" + msg.Link + "\n"
	}
	text += "\nid: " + msg.ID + "\n"
	_, _ = q.Write([]byte(strings.ReplaceAll(text, "\n", "\r\n"))) // to memory
	_ = q.Close()
	return b.Bytes()
}

// encodeSubject returns a subject of one line. Words that are not ASCII are encoded.
func encodeSubject(text string) string {
	return strings.ReplaceAll(mime.QEncoding.Encode("utf-8", inLine(text)), "?= =?", "?=\r\n =?")
}
