// SPDX-License-Identifier: Apache-2.0

package main

import "sync/atomic"

// One wakes another and computes on: how long until the other runs, on a P that has nothing to do.
func handoff(n int) {
	c := make(chan int)
	var seen atomic.Int64
	seen.Store(-1)
	done := make(chan bool)
	go func() {
		for i := range c {
			seen.Store(int64(i))
		}
		done <- true
	}()
	for i := 0; i < n; i++ {
		c <- i
		for seen.Load() != int64(i) {
		}
	}
	close(c)
	<-done
}
