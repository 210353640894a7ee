// SPDX-License-Identifier: Apache-2.0

package main

import (
	"sync"
	"time"
)

func timerStop(n int) {
	for i := 0; i < n; i++ {
		time.NewTimer(time.Hour).Stop()
	}
}

func sleepers(name string, n int) {
	start := time.Now()
	var all sync.WaitGroup
	all.Add(n)
	for i := 0; i < n; i++ {
		go func() {
			time.Sleep(time.Duration(1+i%1000) * time.Millisecond)
			all.Done()
		}()
	}
	all.Wait()
	report(name, float64(time.Since(start).Nanoseconds())/1e6, "ms")
}
