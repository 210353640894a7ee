// SPDX-License-Identifier: Apache-2.0

package main

import (
	"runtime"
	"sync"
	"time"
)

// For `make bench-growth`: n is how many there are at once, and each does the same little.

const turns = 20

func since(name string, start time.Time, operations int) {
	report(name, float64(time.Since(start).Nanoseconds())/float64(operations), "ns")
}

// n goroutines of f, twice; the second time counts.
func crew(name string, n, operations int, f func()) {
	for round := range 2 {
		start := time.Now()
		var all sync.WaitGroup
		all.Add(n)
		for range n {
			go func() {
				f()
				all.Done()
			}()
		}
		all.Wait()
		if round == 1 {
			since(name, start, operations)
		}
	}
}

func yieldOf(name string, n int) {
	crew(name, n, n*turns, func() {
		for range turns {
			runtime.Gosched()
		}
	})
}

func mutexOf(name string, n int) {
	var mu sync.Mutex
	crew(name, n, n*turns, func() {
		for range turns {
			mu.Lock()
			mu.Unlock()
		}
	})
}

func pairsOf(name string, n int) {
	crew(name, n/2, n/2*turns, func() {
		there, back := make(chan int), make(chan int)
		go func() {
			for range turns {
				back <- <-there
			}
		}()
		for i := range turns {
			there <- i
			<-back
		}
	})
}

func timersOf(name string, n int) {
	all := make([]*time.Timer, n)
	start := time.Now()
	for i := range all {
		all[i] = time.NewTimer(time.Hour + time.Duration(i)*time.Second)
	}
	for _, t := range all {
		t.Stop()
	}
	since(name, start, n)
}
