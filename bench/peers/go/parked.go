// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"
)

// n goroutines blocked on one channel: what each costs in memory (page tables counted), to start, and to wake by close.
func parked(_ string, n int) {
	gate := make(chan struct{})
	var ready, woken sync.WaitGroup
	ready.Add(n)
	woken.Add(n)
	runtime.GC()
	before := memory()
	start := time.Now()
	for range n {
		go func() {
			ready.Done()
			<-gate
			woken.Done()
		}()
	}
	ready.Wait()
	spawned := time.Since(start)
	bytes := memory() - before
	start = time.Now()
	close(gate)
	woken.Wait()
	took := time.Since(start)
	report("parked_bytes", float64(bytes)/float64(n), "B")
	report("parked_spawn", float64(spawned.Nanoseconds())/float64(n), "ns")
	report("parked_wake", float64(took.Nanoseconds())/float64(n), "ns")
}

// memory is VmRSS + VmPTE in bytes.
func memory() (sum int) {
	status, err := os.Open("/proc/self/status")
	if err != nil {
		panic(err)
	}
	defer status.Close()
	for lines := bufio.NewScanner(status); lines.Scan(); {
		if line := lines.Text(); strings.HasPrefix(line, "VmRSS:") || strings.HasPrefix(line, "VmPTE:") {
			var kib int
			fmt.Sscanf(line[len("VmRSS:"):], "%d", &kib)
			sum += kib << 10
		}
	}
	return sum
}

// What a program costs that does nothing: CPU time while 1000 goroutines are parked.
func idle(name string, milliseconds int) {
	gate := make(chan struct{})
	var woken sync.WaitGroup
	for range 1000 {
		woken.Go(func() { <-gate })
	}
	time.Sleep(300 * time.Millisecond) // until the last spinner has gone to sleep
	before := cpuMicroseconds()
	time.Sleep(time.Duration(milliseconds) * time.Millisecond)
	used := cpuMicroseconds() - before
	close(gate)
	woken.Wait()
	report(name, used*1e3/float64(milliseconds), "us/s")
}

func cpuMicroseconds() float64 {
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		panic(err)
	}
	return float64(r.Utime.Nano()+r.Stime.Nano()) / 1e3
}
