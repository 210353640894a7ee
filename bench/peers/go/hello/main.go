// SPDX-License-Identifier: Apache-2.0

// The least program: one goroutine, waited for.
package main

import "sync"

func main() {
	var wg sync.WaitGroup
	wg.Go(func() {})
	wg.Wait()
}
