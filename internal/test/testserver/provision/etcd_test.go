package provision

import (
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestEtcd_OutsideOfACheckout(t *testing.T) {
	t.Chdir(t.TempDir())
	t.Setenv(EtcdVariable, "")
	t.Setenv(IgnoreSystemVariable, "")
	bin := t.TempDir()
	t.Setenv("PATH", bin)
	t.Run("names what is missing", func(t *testing.T) {
		_, err := Etcd(t.Context(), io.Discard)
		assert.ErrorContains(t, err, "no etcd in PATH; ROTA_ETCD can name a binary instead")
	})
	installed := filepath.Join(bin, "etcd")
	require.NoError(t, os.WriteFile(installed, []byte("#!/bin/sh\n"), 0o700))
	t.Run("is that of the system", func(t *testing.T) {
		path, err := Etcd(t.Context(), io.Discard)
		require.NoError(t, err)
		assert.Equal(t, installed, path)
	})
	t.Run("is not that of the system if the system is to be ignored", func(t *testing.T) {
		t.Setenv(IgnoreSystemVariable, "1")
		_, err := Etcd(t.Context(), io.Discard)
		assert.Error(t, err)
	})
}
