package postgres_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/registry/postgres"
	"github.com/rota-dev/rota/registry/postgres/internal/pgserver"
)

// newCertificate writes a certificate for localhost that signs itself, and its key, into a directory.
func newCertificate(t *testing.T, dir string) (roots *x509.CertPool, certFile, keyFile string) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), DNSNames: []string{"localhost"},
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	require.NoError(t, err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	certFile, keyFile = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	require.NoError(t, os.WriteFile(certFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600))
	require.NoError(t, os.WriteFile(keyFile, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}), 0o600))
	cert, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	roots = x509.NewCertPool()
	roots.AddCert(cert)
	return roots, certFile, keyFile
}

func TestOpen_WithTLS(t *testing.T) {
	roots, certFile, keyFile := newCertificate(t, t.TempDir())
	s, err := pgserver.Start("ssl=on", "ssl_cert_file="+certFile, "ssl_key_file="+keyFile)
	require.NoError(t, err)
	t.Cleanup(s.Remove)
	o := optionsOf(s)
	o.TLS = &tls.Config{RootCAs: roots, ServerName: "localhost"}
	require.NoError(t, postgres.Migrate(t.Context(), o))
	c := open(t, o)
	next := watch(t, c, "d")
	next()
	create(t, c, "d/k")
	next()
	rows := exec(t, s, o, fmt.Sprintf("SELECT count(*) > 0 AND bool_and(l.ssl) FROM pg_stat_ssl l JOIN pg_stat_activity a USING (pid) WHERE a.application_name = 'rota' AND a.usename = '%s'", o.Username))
	require.Equal(t, [][]string{{"t"}}, rows, "each connection uses TLS")

	o.TLS = &tls.Config{ServerName: "localhost"}
	_, err = postgres.Open(t.Context(), o)
	require.ErrorIs(t, err, registry.ErrUnavailable)
	require.ErrorContains(t, err, "certificate", "another server is not trusted")
}
