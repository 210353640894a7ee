// SPDX-License-Identifier: Apache-2.0

package main

import "sync"

func spawnJoin(n int) {
	var wg sync.WaitGroup
	for range n {
		wg.Add(1)
		go func() { wg.Done() }()
		wg.Wait()
	}
}

func spawnBatch(n int) {
	var wg sync.WaitGroup
	wg.Add(n)
	for range n {
		go func() { wg.Done() }()
	}
	wg.Wait()
}
