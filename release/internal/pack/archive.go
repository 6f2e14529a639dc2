// Package pack packs the binaries of a release: archives, Debian packages and a container image. The same files and time make the same
// bytes.
package pack

import (
	"archive/tar"
	"archive/zip"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"path"
	"strings"
	"time"
)

// File is a file of an archive.
type File struct {
	Name string // path in the archive
	Data []byte
	Mode int64
}

// WriteArchive writes files below the directory top: a zip file if the name ends so, otherwise a compressed tar file.
func WriteArchive(name, top string, files []File, at time.Time) (err error) {
	out, err := os.Create(name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	var below []File
	for _, f := range files {
		f.Name = path.Join(top, f.Name)
		below = append(below, f)
	}
	if strings.HasSuffix(name, ".zip") {
		return writeZip(out, below, at)
	}
	compressed := gzip.NewWriter(out)
	if err := writeTar(compressed, below, at); err != nil {
		return err
	}
	return compressed.Close()
}

// writeTar writes files of root.
func writeTar(w io.Writer, files []File, at time.Time) error {
	tw := tar.NewWriter(w)
	for _, f := range files {
		header := &tar.Header{Name: f.Name, Mode: f.Mode, Size: int64(len(f.Data)), ModTime: at, Typeflag: tar.TypeReg, Format: tar.FormatPAX}
		if err := tw.WriteHeader(header); err != nil {
			return err
		}
		if _, err := tw.Write(f.Data); err != nil {
			return err
		}
	}
	return tw.Close()
}

func writeZip(w io.Writer, files []File, at time.Time) error {
	zw := zip.NewWriter(w)
	for _, f := range files {
		header := &zip.FileHeader{Name: f.Name, Method: zip.Deflate, Modified: at}
		header.SetMode(os.FileMode(f.Mode))
		fw, err := zw.CreateHeader(header)
		if err != nil {
			return err
		}
		if _, err := fw.Write(f.Data); err != nil {
			return err
		}
	}
	return zw.Close()
}
