// SPDX-License-Identifier: Apache-2.0

package main

import (
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// A pair trades a token while a third one asks a channel that never has anything.
func pingPongHog(n int) {
	never, there, back := make(chan struct{}), make(chan struct{}), make(chan struct{})
	var over atomic.Bool
	var all sync.WaitGroup
	all.Go(func() {
		for !over.Load() {
			select {
			case <-never:
			default:
			}
		}
	})
	all.Go(func() {
		for range n {
			<-there
			back <- struct{}{}
		}
	})
	for range n {
		there <- struct{}{}
		<-back
	}
	over.Store(true)
	all.Wait()
}

// Each starts the next one and ends; the last one tells.
func link(left int, done chan struct{}) {
	if left == 0 {
		done <- struct{}{}
		return
	}
	go link(left-1, done)
}

func createChain(n int) {
	done := make(chan struct{})
	go link(n, done)
	<-done
}

func createChains(n int) {
	done, k := make(chan struct{}), runtime.GOMAXPROCS(0)
	for range k {
		go link(n/k, done)
	}
	for range k {
		<-done
	}
}

func createCapture(n int) {
	for i := 0; i < n; i += 4 {
		var sums [4]int
		var wg sync.WaitGroup
		wg.Add(4)
		for k := range 4 {
			go func() {
				sums[k] = i + k
				wg.Done()
			}()
		}
		wg.Wait()
	}
}

//go:noinline
func frames(depth int) int {
	var room [1024]byte
	room[depth%1024] = byte(depth)
	if depth == 0 {
		return int(room[0])
	}
	return frames(depth-1) + int(room[depth%1024])
}

// Recursion on a new stack: frames of 1 KiB.
func stackGrowth(depth int) func(n int) {
	return func(n int) {
		parallel(n, func(turns int) {
			for range turns {
				done := make(chan struct{})
				go func() {
					frames(depth)
					done <- struct{}{}
				}()
				<-done
			}
		})
	}
}

// Two take turns as sender and receiver; both are busy for a while before they act.
func wakeup(us int, inKernel bool) func(n int) {
	busy := func(us int) {
		if !inKernel {
			spin(time.Duration(us) * time.Microsecond)
		} else if us > 0 {
			ts := syscall.Timespec{Nsec: int64(us) * 1000}
			syscall.Nanosleep(&ts, nil)
		}
	}
	return func(n int) {
		ping, pong := make(chan struct{}), make(chan struct{})
		var all sync.WaitGroup
		all.Go(func() {
			for range n {
				busy(us + 5)
				ping <- struct{}{}
				busy(us)
				<-pong
			}
		})
		for range n {
			busy(us)
			<-ping
			busy(us + 5)
			pong <- struct{}{}
		}
		all.Wait()
	}
}

func syscalls(units, factor int) func(n int) {
	return func(n int) {
		parallelBy(factor, n, func(turns int) {
			for range turns {
				syscall.Syscall(syscall.SYS_GETPPID, 0, 0, 0)
				work(units)
			}
		})
	}
}
