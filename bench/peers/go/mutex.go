// SPDX-License-Identifier: Apache-2.0

package main

import "sync"

// n times lock, count, unlock, shared evenly by k goroutines on one mutex; main is parked meanwhile.
func locks(k int) func(n int) {
	return func(n int) {
		var mu sync.Mutex
		count := 0
		var wg sync.WaitGroup
		wg.Add(k)
		for g := range k {
			turns := n / k
			if g < n%k {
				turns++
			}
			go func() {
				for range turns {
					mu.Lock()
					count++
					mu.Unlock()
				}
				wg.Done()
			}()
		}
		wg.Wait()
		if count != n {
			panic("lost count")
		}
	}
}
