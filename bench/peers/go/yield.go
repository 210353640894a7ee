// SPDX-License-Identifier: Apache-2.0

package main

import (
	"runtime"
	"sync"
)

// n yields, shared evenly by k goroutines; main is parked meanwhile.
func yields(k int) func(n int) {
	return func(n int) {
		var wg sync.WaitGroup
		wg.Add(k)
		for g := range k {
			turns := n / k
			if g < n%k {
				turns++
			}
			go func() {
				for range turns {
					runtime.Gosched()
				}
				wg.Done()
			}()
		}
		wg.Wait()
	}
}
