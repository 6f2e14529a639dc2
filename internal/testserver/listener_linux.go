package testserver

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// listens reports whether a process listens on a TCP port.
func listens(pid, port int) (bool, error) {
	inodes := map[string]bool{}
	for _, table := range []string{"tcp", "tcp6"} { // Java listens on IPv4 with an IPv6 socket
		if err := addListeners(inodes, table, port); err != nil {
			return false, err
		}
	}
	return hasSocket(pid, inodes)
}

const stateListen = "0A"

// addListeners adds the inodes of the sockets that listen on a port.
func addListeners(inodes map[string]bool, table string, port int) error {
	f, err := os.Open("/proc/net/" + table)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // no IPv6
	}
	if err != nil {
		return err
	}
	defer f.Close()
	suffix := fmt.Sprintf(":%04X", port)
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		// number, local address, remote address, state, five more, inode
		fields := strings.Fields(lines.Text())
		if len(fields) > 9 && strings.HasSuffix(fields[1], suffix) && fields[3] == stateListen {
			inodes["socket:["+fields[9]+"]"] = true
		}
	}
	return lines.Err()
}

// hasSocket reports whether a process has one of these sockets open.
func hasSocket(pid int, inodes map[string]bool) (bool, error) {
	dir := filepath.Join("/proc", strconv.Itoa(pid), "fd")
	files, err := os.ReadDir(dir)
	if err != nil {
		return false, err
	}
	for _, f := range files {
		if target, err := os.Readlink(filepath.Join(dir, f.Name())); err == nil && inodes[target] {
			return true, nil
		}
	}
	return false, nil
}
