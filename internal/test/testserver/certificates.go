package testserver

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// TLS selects the security of a server's client port.
type TLS int

const (
	// NoTLS is plain TCP.
	NoTLS TLS = iota
	// ServerTLS authenticates the server.
	ServerTLS
	// MutualTLS authenticates the server and the client.
	MutualTLS
)

// certificates are created per cluster and valid for a day.
type certificates struct {
	authority, server, serverKey string // files in PEM
	serverBoth                   string // server and serverKey in one file
	client                       *tls.Config
}

func newCertificates(dir string) (*certificates, error) {
	c, err := makeCertificates(dir)
	if err != nil {
		return nil, fmt.Errorf("create certificates: %w", err)
	}
	return c, nil
}

func makeCertificates(dir string) (*certificates, error) {
	authority, err := issue(nil, "authority", func(t *x509.Certificate) {
		t.IsCA, t.BasicConstraintsValid, t.KeyUsage = true, true, x509.KeyUsageCertSign
	})
	if err != nil {
		return nil, err
	}
	server, err := issue(authority, "server", func(t *x509.Certificate) {
		t.IPAddresses, t.DNSNames = []net.IP{net.IPv4(127, 0, 0, 1)}, []string{"localhost"}
		t.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	})
	if err != nil {
		return nil, err
	}
	client, err := issue(authority, "client", func(t *x509.Certificate) {
		t.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	})
	if err != nil {
		return nil, err
	}
	c := &certificates{
		authority: filepath.Join(dir, "authority.pem"),
		server:    filepath.Join(dir, "server.pem"), serverKey: filepath.Join(dir, "server-key.pem"),
		serverBoth: filepath.Join(dir, "server-both.pem"),
	}
	for path, content := range map[string][]byte{
		c.authority: authority.pem(), c.server: server.pem(), c.serverKey: server.keyPEM(),
		c.serverBoth: slices.Concat(server.keyPEM(), server.pem()),
	} {
		if err := os.WriteFile(path, content, 0o600); err != nil {
			return nil, err
		}
	}
	roots := x509.NewCertPool()
	roots.AddCert(authority.cert)
	c.client = &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{{
		Certificate: [][]byte{client.cert.Raw}, PrivateKey: client.key,
	}}}
	return c, nil
}

type identity struct {
	cert    *x509.Certificate
	key     *ecdsa.PrivateKey
	encoded []byte // PKCS 8 encoding of the key
}

// issue creates an identity signed by the authority, or self-signed if that is nil.
func issue(authority *identity, name string, change func(*x509.Certificate)) (*identity, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	id := &identity{key: key}
	if id.encoded, err = x509.MarshalPKCS8PrivateKey(key); err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()),
		Subject:      pkix.Name{CommonName: name},
		NotBefore:    time.Now().Add(-time.Hour),
		NotAfter:     time.Now().Add(24 * time.Hour),
		KeyUsage:     x509.KeyUsageDigitalSignature,
	}
	change(template)
	parent, parentKey := template, key
	if authority != nil {
		parent, parentKey = authority.cert, authority.key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), parentKey)
	if err != nil {
		return nil, err
	}
	id.cert, err = x509.ParseCertificate(der)
	return id, err
}

func (id *identity) pem() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: id.cert.Raw})
}

func (id *identity) keyPEM() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: id.encoded})
}
