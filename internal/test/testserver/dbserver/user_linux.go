package dbserver

import (
	"os"
	"syscall"
)

// asOtherUser makes a process of root appear to itself as another user, with the same access to files.
func asOtherUser() *syscall.SysProcAttr {
	const id = 1000
	return &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: id, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: id, HostID: os.Getgid(), Size: 1}},
	}
}
