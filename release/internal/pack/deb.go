package pack

import (
	"errors"
	"os"
	"strings"
	"time"

	"github.com/goreleaser/nfpm/v2"
	"github.com/goreleaser/nfpm/v2/deb"
	"github.com/goreleaser/nfpm/v2/files"
)

// Deb describes a Debian package. Fields are paths of files unless they say otherwise.
type Deb struct {
	Arch      string // amd64 or arm64
	Version   string // like v0.1.0
	Binary    string
	Unit      string // of systemd
	Copyright string
	Scripts   string // directory with postinst and prerm
	Homepage  string // an address
	Time      time.Time
}

// WriteDeb writes the package. The service is neither enabled nor started by it: it has no jobs file yet.
func WriteDeb(name string, d Deb) (err error) {
	out, err := os.Create(name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	file := func(source, destination string, mode os.FileMode) *files.Content {
		return &files.Content{
			Source: source, Destination: destination,
			FileInfo: &files.ContentFileInfo{Owner: "root", Group: "root", Mode: mode, MTime: d.Time},
		}
	}
	configDir := file("", "/etc/rota", 0o755)
	configDir.Type = files.TypeDir
	info := nfpm.WithDefaults(&nfpm.Info{
		Name: "rota", Arch: d.Arch, Platform: "linux", Version: strings.TrimPrefix(d.Version, "v"),
		Section: "admin", Priority: "optional", Maintainer: "The rota project", Homepage: d.Homepage,
		Description: "Sharded, scheduled jobs over a fleet\nThe command rota, and a service that runs the jobs of /etc/rota/jobs.yaml.",
		License:     "Apache-2.0", MTime: d.Time,
		Overridables: nfpm.Overridables{
			Contents: files.Contents{
				file(d.Binary, "/usr/bin/rota", 0o755),
				file(d.Unit, "/usr/lib/systemd/system/rota.service", 0o644),
				file(d.Copyright, "/usr/share/doc/rota/copyright", 0o644),
				configDir,
			},
			Scripts: nfpm.Scripts{PostInstall: d.Scripts + "/postinst", PreRemove: d.Scripts + "/prerm"},
			Deb:     nfpm.Deb{Compression: "gzip"},
		},
	})
	if err := nfpm.PrepareForPackager(info, "deb"); err != nil {
		return err
	}
	return deb.Default.Package(info, out)
}
