package pack_test

import (
	"archive/tar"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/validate"
	"github.com/stretchr/testify/require"

	"rota/release/internal/pack"
)

var at = time.Unix(1_700_000_000, 0).UTC()

// writeTwice calls write with two names in different directories, and requires equal bytes.
func writeTwice(t *testing.T, name string, write func(name string) error) (file string) {
	t.Helper()
	var texts [2][]byte
	for i := range texts {
		file = filepath.Join(t.TempDir(), name)
		require.NoError(t, write(file))
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		texts[i] = text
	}
	require.Equal(t, texts[0], texts[1], "two builds differ")
	return file
}

func TestWriteArchive_MakesTheSameBytesTwice(t *testing.T) {
	files := []pack.File{{Name: "rota", Data: []byte("binary"), Mode: 0o755}, {Name: "LICENSE", Data: []byte("free"), Mode: 0o644}}
	for _, name := range []string{"a.tar.gz", "a.zip"} {
		writeTwice(t, name, func(name string) error { return pack.WriteArchive(name, "rota-v0.1.0", files, at) })
	}
}

func TestWriteImage(t *testing.T) {
	im := pack.Image{
		Binaries: map[string][]byte{"amd64": []byte("x"), "arm64": []byte("y")}, ZoneInfo: []byte("z"), Version: "v0.1.0", Commit: "0123abc", Time: at,
	}
	name := writeTwice(t, "image.tar", func(name string) error { return pack.WriteImage(name, im, []string{"amd64", "arm64"}) })
	dir := t.TempDir()
	extract(t, name, dir)
	index, err := layout.ImageIndexFromPath(dir)
	require.NoError(t, err)

	t.Run("is a valid layout", func(t *testing.T) { require.NoError(t, validate.Index(index)) })
	t.Run("has an image for each architecture", func(t *testing.T) {
		manifest, err := index.IndexManifest()
		require.NoError(t, err)
		require.Len(t, manifest.Manifests, 1)
		require.Equal(t, "v0.1.0", manifest.Manifests[0].Annotations["org.opencontainers.image.ref.name"])
		images, err := index.ImageIndex(manifest.Manifests[0].Digest)
		require.NoError(t, err)
		manifest, err = images.IndexManifest()
		require.NoError(t, err)
		require.Len(t, manifest.Manifests, 2)
		img, err := images.Image(manifest.Manifests[1].Digest)
		require.NoError(t, err)
		config, err := img.ConfigFile()
		require.NoError(t, err)
		require.Equal(t, "arm64", config.Architecture)
		require.Equal(t, "65532:65532", config.Config.User)
		require.Equal(t, []string{"/usr/local/bin/rota"}, config.Config.Entrypoint)
	})
}

func extract(t *testing.T, name, dir string) {
	t.Helper()
	f, err := os.Open(name)
	require.NoError(t, err)
	defer f.Close()
	r := tar.NewReader(f)
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		require.NoError(t, err)
		data, err := io.ReadAll(r)
		require.NoError(t, err)
		file := filepath.Join(dir, h.Name)
		require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
		require.NoError(t, os.WriteFile(file, data, 0o644))
	}
}

func TestWriteDeb(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"rota", "rota.service", "copyright"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(name), 0o644))
	}
	name := writeTwice(t, "rota.deb", func(name string) error {
		return pack.WriteDeb(name, pack.Deb{
			Arch: "amd64", Version: "v0.1.0", Binary: filepath.Join(dir, "rota"), Unit: filepath.Join(dir, "rota.service"),
			Copyright: filepath.Join(dir, "copyright"), Scripts: "../../deb", Time: at,
		})
	})

	t.Run("has name, version and architecture", func(t *testing.T) {
		out, err := exec.Command("dpkg-deb", "--show", name).CombinedOutput()
		require.NoError(t, err, string(out))
		require.Equal(t, "rota\t0.1.0\n", string(out))
	})
	t.Run("has the files of root", func(t *testing.T) {
		out, err := exec.Command("dpkg-deb", "--contents", name).CombinedOutput()
		require.NoError(t, err, string(out))
		for _, line := range []string{
			`-rwxr-xr-x (root/root|0/0) .* \./usr/bin/rota`, `-rw-r--r-- (root/root|0/0) .* \./usr/lib/systemd/system/rota\.service`, `drwxr-xr-x .* \./etc/rota/`,
		} {
			require.Regexp(t, line, string(out))
		}
	})
}
