package release

import (
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/mod/module"
	"golang.org/x/mod/zip"
)

// member is a file of a module's zip.
type member struct {
	name string // in the zip
	file string // on the disk
}

func (m member) Path() string                 { return m.name }
func (m member) Lstat() (os.FileInfo, error)  { return os.Lstat(m.file) }
func (m member) Open() (io.ReadCloser, error) { return os.Open(m.file) }

// Pack writes a version of a module into a folder that GOPROXY can name: the zip, go.mod and what the go
// command asks for beside them. The zip is, byte for byte where its checksum looks, the one that the proxy makes of a
// tag: a module without a LICENSE has that of the repository.
func Pack(root string, m Module, version, proxy string) error {
	escaped, err := module.EscapePath(m.Path)
	if err != nil {
		return err
	}
	dir := filepath.Join(proxy, filepath.FromSlash(escaped), "@v")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	members, err := contents(root, m)
	if err != nil {
		return err
	}
	packed, err := os.Create(filepath.Join(dir, version+".zip"))
	if err != nil {
		return err
	}
	err = zip.Create(packed, module.Version{Path: m.Path, Version: version}, members)
	if err := errors.Join(err, packed.Close()); err != nil {
		return err
	}
	mod, err := os.ReadFile(filepath.Join(root, m.Dir, "go.mod"))
	if err != nil {
		return err
	}
	// The time is of no account: a version is looked up by its name.
	info, err := json.Marshal(map[string]any{"Version": version, "Time": time.Unix(0, 0).UTC()})
	if err != nil {
		return err
	}
	for name, body := range map[string][]byte{version + ".mod": mod, version + ".info": info, "list": []byte(version + "\n")} {
		if err := os.WriteFile(filepath.Join(dir, name), body, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// contents returns the files of a module's zip. The go command leaves out what is in a folder named vendor.
func contents(root string, m Module) ([]zip.File, error) {
	var members []zip.File
	licensed := false
	err := files(root, m, func(name string) error {
		inside := strings.TrimPrefix(name, m.Dir+"/")
		licensed = licensed || inside == "LICENSE"
		members = append(members, member{inside, filepath.Join(root, filepath.FromSlash(name))})
		return nil
	})
	if err != nil {
		return nil, err
	}
	if file := filepath.Join(root, "LICENSE"); !licensed {
		if _, err := os.Stat(file); !errors.Is(err, fs.ErrNotExist) {
			members = append(members, member{"LICENSE", file})
		}
	}
	return members, nil
}

// Address is how GOPROXY names a folder.
func Address(dir string) string { return "file://" + path.Clean(filepath.ToSlash(dir)) }
