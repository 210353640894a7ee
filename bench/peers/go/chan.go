// SPDX-License-Identifier: Apache-2.0

package main

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

func pingPong(n int) {
	there, back := make(chan int), make(chan int)
	done := make(chan bool)
	go func() {
		for i := 0; i < n; i++ {
			back <- <-there
		}
		done <- true
	}()
	for i := 0; i < n; i++ {
		there <- i
		<-back
	}
	<-done
}

func through(k, capacity int) func(n int) {
	return func(n int) {
		c := make(chan int, capacity)
		var producers, consumers sync.WaitGroup
		consumers.Add(k)
		for i := 0; i < k; i++ {
			go func() {
				for range c {
				}
				consumers.Done()
			}()
		}
		producers.Add(k)
		for i := 0; i < k; i++ {
			go func() {
				for j := 0; j < n/k; j++ {
					c <- j
				}
				producers.Done()
			}()
		}
		producers.Wait()
		close(c)
		consumers.Wait()
	}
}

func select4(n int) {
	var c [4]chan int
	for k := range c {
		c[k] = make(chan int)
		go func() {
			for i := 0; i < n/4; i++ {
				c[k] <- i
			}
		}()
	}
	for i := 0; i < n/4*4; i++ {
		select {
		case <-c[0]:
		case <-c[1]:
		case <-c[2]:
		case <-c[3]:
		}
	}
}

func selectDefault(n int) {
	c := make(chan int)
	missed := 0
	for i := 0; i < n; i++ {
		select {
		case <-c:
		default:
			missed++
		}
	}
	if missed != n {
		panic("received from nobody")
	}
}

func closeWakes(name string, n int) {
	gate := make(chan struct{})
	var there atomic.Int64
	var all sync.WaitGroup
	all.Add(n)
	for i := 0; i < n; i++ {
		go func() {
			there.Add(1)
			<-gate
			all.Done()
		}()
	}
	for there.Load() < int64(n) {
		runtime.Gosched()
	}
	start := time.Now()
	close(gate)
	all.Wait()
	report(name, float64(time.Since(start).Nanoseconds())/float64(n), "ns")
}

func skynetNode(out chan int, number, size int) {
	if size == 1 {
		out <- number
		return
	}
	c := make(chan int)
	for i := 0; i < 10; i++ {
		go skynetNode(c, number+i*(size/10), size/10)
	}
	sum := 0
	for i := 0; i < 10; i++ {
		sum += <-c
	}
	out <- sum
}

func skynet(name string, n int) {
	for round := 0; round < 2; round++ { // the first one warms up
		c := make(chan int)
		start := time.Now()
		go skynetNode(c, 0, n)
		if <-c != n*(n-1)/2 {
			panic("wrong sum")
		}
		if round == 1 {
			report(name, float64(time.Since(start).Nanoseconds())/1e6, "ms")
		}
	}
}

func sieve(name string, n int) {
	start := time.Now()
	c := make(chan int)
	go func(c chan int) {
		for i := 2; ; i++ {
			c <- i
		}
	}(c)
	for k := 0; k < n; k++ {
		prime := <-c
		next := make(chan int)
		go func(in, out chan int, prime int) {
			for {
				if i := <-in; i%prime != 0 {
					out <- i
				}
			}
		}(c, next, prime)
		c = next
	}
	report(name, float64(time.Since(start).Nanoseconds())/1e6, "ms")
}
