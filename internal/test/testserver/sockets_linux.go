package testserver

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// listens reports whether a process listens on a local TCP port.
func listens(pid, port int) (bool, error) {
	suffix := fmt.Sprintf(":%04X", port)
	return hasTCPSocket(pid, func(local, _, state string) bool {
		return state == stateListen && strings.HasSuffix(local, suffix)
	})
}

// connected reports whether a process owns the client end of a TCP connection.
func connected(pid int, client, server net.Addr) (bool, error) {
	from, to := procPort(client), procPort(server)
	return hasTCPSocket(pid, func(local, remote, _ string) bool {
		return strings.HasSuffix(local, from) && strings.HasSuffix(remote, to)
	})
}

// procPort returns the port of an address as the kernel's tables end it. All addresses
// share one host, so ports suffice.
func procPort(a net.Addr) string {
	return fmt.Sprintf(":%04X", a.(*net.TCPAddr).Port)
}

const stateListen = "0A"

// hasTCPSocket reports whether a process has a matching TCP socket.
func hasTCPSocket(pid int, like func(local, remote, state string) bool) (bool, error) {
	sockets := map[string]bool{}
	for _, table := range []string{"tcp", "tcp6"} { // Java uses IPv6 sockets for IPv4 too
		if err := addSockets(sockets, table, like); err != nil {
			return false, err
		}
	}
	return hasSocket(pid, sockets)
}

// addSockets adds the matching sockets of a kernel table, by their names in /proc/*/fd.
func addSockets(sockets map[string]bool, table string, like func(local, remote, state string) bool) error {
	f, err := os.Open("/proc/net/" + table)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // no IPv6
	}
	if err != nil {
		return err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		// number, local address, remote address, state, five more, inode
		fields := strings.Fields(lines.Text())
		if len(fields) > 9 && like(fields[1], fields[2], fields[3]) {
			sockets["socket:["+fields[9]+"]"] = true
		}
	}
	return lines.Err()
}

// hasSocket reports whether a process has one of these sockets open.
func hasSocket(pid int, sockets map[string]bool) (bool, error) {
	dir := filepath.Join("/proc", strconv.Itoa(pid), "fd")
	files, err := os.ReadDir(dir)
	if err != nil {
		return false, err
	}
	for _, f := range files {
		if target, err := os.Readlink(filepath.Join(dir, f.Name())); err == nil && sockets[target] {
			return true, nil
		}
	}
	return false, nil
}
