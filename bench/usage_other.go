//go:build !linux

package main

import (
	"errors"
	"time"
)

var errOnlyLinux = errors.New("bench measures processes through Linux's /proc")

func processCPU(int) (time.Duration, error) { return 0, errOnlyLinux }

func bytesWritten(int) (int64, error) { return 0, errOnlyLinux }

func residentBytes(int) (int64, error) { return 0, errOnlyLinux }

func childrenOf(pid int) []int { return []int{pid} }
