package dbserver

import (
	"os"
	"syscall"
)

// AsOtherUser makes a process of root appear to itself as another user, with the same access to files.
func AsOtherUser() *syscall.SysProcAttr {
	const id = 1000
	return &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: id, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: id, HostID: os.Getgid(), Size: 1}},
	}
}
