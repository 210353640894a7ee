// SPDX-License-Identifier: Apache-2.0

package main

import (
	"runtime"
	"sync"
	"time"
)

// The workloads of the benchmarks that Go ships (list_*), in the form that weft's half has.

// f(turns) in procs × factor goroutines, which share n turns.
func parallelBy(factor, n int, f func(turns int)) {
	k := runtime.GOMAXPROCS(0) * factor
	var all sync.WaitGroup
	for i := range k {
		turns := n / k
		if i < n%k {
			turns++
		}
		all.Go(func() { f(turns) })
	}
	all.Wait()
}

func parallel(n int, f func(turns int)) { parallelBy(1, n, f) }

// A little to do, which the compiler cannot drop.
//
//go:noinline
func work(units int) int {
	x := units
	for range units {
		x = x*2 + 1
	}
	return x
}

func spin(d time.Duration) {
	for start := time.Now(); time.Since(start) < d; {
	}
}
