// SPDX-License-Identifier: Apache-2.0
package main

import (
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

func getppid(n int) {
	for range n {
		syscall.Syscall(syscall.SYS_GETPPID, 0, 0, 0)
	}
}

// 200 goroutines, each n times nanosleep(5 ms), in the way of every blocking call of Go.
func sleeps(name string, n int) {
	start := time.Now()
	var wg sync.WaitGroup
	for range 200 {
		wg.Go(func() {
			for range n {
				ts := syscall.Timespec{Nsec: 5_000_000}
				syscall.Nanosleep(&ts, nil)
			}
		})
	}
	wg.Wait()
	report(name, float64(time.Since(start).Nanoseconds())/1e6, "ms")
}

func sleeper(_ string, n int) {
	var over atomic.Bool
	for range 2 {
		go func() {
			for !over.Load() {
			}
		}()
	}
	late := make([]float64, 0, n)
	for range n {
		start := time.Now()
		time.Sleep(time.Millisecond)
		late = append(late, float64(time.Since(start).Nanoseconds())/1e6-1)
	}
	over.Store(true)
	slices.Sort(late)
	report("sleeper_p50", late[len(late)/2], "ms")
	report("sleeper_p99", late[len(late)*99/100], "ms")
}
