package provision

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha512"
	"encoding/base64"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestUnpackFile(t *testing.T) {
	var packed bytes.Buffer
	zip := gzip.NewWriter(&packed)
	files := tar.NewWriter(zip)
	for _, name := range []string{"package/a.js", "package/b.js"} {
		require.NoError(t, files.WriteHeader(&tar.Header{Name: name, Mode: 0o600, Size: int64(len(name))}))
		_, err := files.Write([]byte(name))
		require.NoError(t, err)
	}
	require.NoError(t, files.Close())
	require.NoError(t, zip.Close())
	sum := sha512.Sum512(packed.Bytes())
	integrity := "sha512-" + base64.StdEncoding.EncodeToString(sum[:])

	content, err := unpackFile(packed.Bytes(), integrity, "package/b.js")
	require.NoError(t, err)
	assert.Equal(t, "package/b.js", string(content))

	_, err = unpackFile(packed.Bytes(), integrity, "package/c.js")
	require.ErrorContains(t, err, "no file package/c.js")

	_, err = unpackFile(append(packed.Bytes(), 0), integrity, "package/b.js")
	require.ErrorContains(t, err, "the hash of the package is")
}
