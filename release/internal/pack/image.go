package pack

import (
	"bytes"
	"encoding/pem"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// Image describes a container image. It has what deploy/Dockerfile puts into one, and is made without a daemon.
type Image struct {
	Binaries   map[string][]byte // by architecture
	Copyrights map[string][]byte // of the binaries
	ZoneInfo   []byte            // Go's zoneinfo.zip
	Version    string
	Commit     string
	Source     string // address of the source
	Time       time.Time
}

// WriteImage writes an OCI layout as a tar file: an index with an image for each architecture.
func WriteImage(name string, im Image, architectures []string) error {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, arch := range architectures {
		img, err := buildImage(im, arch)
		if err != nil {
			return err
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add: img, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: arch}},
		})
	}
	dir, err := os.MkdirTemp("", "image")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	// The file index.json of a layout lists images. The one that it lists is the index, with the version as the tag of its reference.
	p, err := layout.Write(dir, mutate.IndexMediaType(empty.Index, types.OCIImageIndex))
	if err != nil {
		return err
	}
	tag := map[string]string{"org.opencontainers.image.ref.name": im.Version}
	if err := p.AppendIndex(index, layout.WithAnnotations(tag)); err != nil {
		return err
	}
	return tarDirectory(name, dir, im.Time)
}

// buildImage returns the image for one architecture.
func buildImage(im Image, arch string) (v1.Image, error) {
	files := []File{
		{"etc/ssl/certs/ca-certificates.crt", certificates(), 0o644},
		{"usr/share/rota/zoneinfo.zip", im.ZoneInfo, 0o644},
		{"usr/share/doc/rota/copyright", im.Copyrights[arch], 0o644},
		{"usr/local/bin/rota", im.Binaries[arch], 0o755},
	}
	var text bytes.Buffer
	if err := writeTar(&text, files, im.Time); err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(text.Bytes())), nil },
		tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, err
	}
	img, err := mutate.Append(mutate.MediaType(mutate.ConfigMediaType(empty.Image, types.OCIConfigJSON), types.OCIManifestSchema1),
		mutate.Addendum{Layer: layer, MediaType: types.OCILayer, History: v1.History{Created: v1.Time{Time: im.Time}, CreatedBy: "release/build"}})
	if err != nil {
		return nil, err
	}
	return mutate.ConfigFile(img, configOf(img, im, arch))
}

// configOf returns the configuration of img with the lines of deploy/Dockerfile.
func configOf(img v1.Image, im Image, arch string) *v1.ConfigFile {
	config, err := img.ConfigFile()
	if err != nil {
		config = &v1.ConfigFile{}
	}
	config = config.DeepCopy()
	config.OS, config.Architecture, config.Created = "linux", arch, v1.Time{Time: im.Time}
	config.Config = v1.Config{
		Env:        []string{"PATH=/usr/local/bin", "ZONEINFO=/usr/share/rota/zoneinfo.zip"},
		User:       "65532:65532",
		Entrypoint: []string{"/usr/local/bin/rota"},
		Cmd:        []string{"run", "/etc/rota/jobs.yaml", "--listen", ":8080"},
		Labels: map[string]string{
			"org.opencontainers.image.version":  im.Version,
			"org.opencontainers.image.revision": im.Commit,
			"org.opencontainers.image.source":   im.Source,
			"org.opencontainers.image.licenses": "Apache-2.0",
		},
	}
	return config
}

// certificates returns the roots that the Go project publishes, those of Mozilla, without the ones that hold under conditions only.
func certificates() []byte {
	var text bytes.Buffer
	for root := range bundle.Roots() {
		if root.Constraint == nil {
			_ = pem.Encode(&text, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}) // a buffer does not fail
		}
	}
	return text.Bytes()
}

// tarDirectory writes the files below dir, in lexical order.
func tarDirectory(name, dir string, at time.Time) error {
	var files []File
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(p)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(dir, p)
		files = append(files, File{filepath.ToSlash(rel), data, 0o644})
		return err
	})
	if err != nil {
		return err
	}
	out, err := os.Create(name)
	if err != nil {
		return err
	}
	if err := writeTar(out, files, at); err != nil {
		out.Close()
		return err
	}
	return out.Close()
}
