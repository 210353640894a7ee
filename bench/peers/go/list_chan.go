// SPDX-License-Identifier: Apache-2.0

package main

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

func makeChan(n int) {
	parallel(n, func(turns int) {
		for range turns {
			_ = make(chan int, 8)
		}
	})
}

func chanNonblocking(n int) {
	c := make(chan int)
	parallel(n, func(turns int) {
		for range turns {
			select {
			case <-c:
			default:
			}
		}
	})
}

func chanClosed(n int) {
	c := make(chan int)
	close(c)
	parallel(n, func(turns int) {
		for range turns {
			<-c
		}
	})
}

// Takes from one of two channels and puts into the other.
func exchange(a, b chan int, turns int) {
	for range turns {
		select {
		case <-a:
			b <- 0
		case <-b:
			a <- 0
		}
	}
}

func selectUncontended(n int) {
	parallel(n, func(turns int) {
		a, b := make(chan int, 1), make(chan int, 1)
		a <- 0
		exchange(a, b, turns)
	})
}

func selectAsyncContended(n int) {
	procs := runtime.GOMAXPROCS(0)
	a, b := make(chan int, procs), make(chan int, procs)
	parallel(n, func(turns int) {
		a <- 0
		exchange(a, b, turns)
	})
}

func selectSyncContended(n int) {
	a, b, c, over := make(chan int), make(chan int), make(chan int), make(chan struct{})
	var senders sync.WaitGroup
	parallel(n, func(turns int) {
		senders.Go(func() {
			for {
				select {
				case a <- 0:
				case b <- 0:
				case c <- 0:
				case <-over:
					return
				}
			}
		})
		for range turns {
			select {
			case <-a:
			case <-b:
			case <-c:
			}
		}
	})
	close(over)
	senders.Wait()
}

func selectNonblock(n int) {
	a, b, c, d := make(chan int), make(chan int), make(chan int, 1), make(chan int, 1)
	parallel(n, func(turns int) {
		for range turns {
			select {
			case <-a:
			default:
			}
			select {
			case b <- 0:
			default:
			}
			select {
			case <-c:
			default:
			}
			select {
			case d <- 0:
			default:
			}
		}
	})
}

// 100 in, 100 out; n counts those.
func fillAndDrain(c chan int, turns int) {
	for range turns {
		for k := range 100 {
			c <- k
		}
		for range 100 {
			<-c
		}
	}
}

func chanUncontended(n int) {
	parallel(n, func(turns int) { fillAndDrain(make(chan int, 100), turns) })
}

func chanContended(n int) {
	c := make(chan int, 100*runtime.GOMAXPROCS(0))
	parallel(n, func(turns int) { fillAndDrain(c, turns) })
}

func chanSync(units int) func(n int) {
	return func(n int) {
		c := make(chan int)
		var all sync.WaitGroup
		for side := range 2 {
			all.Go(func() {
				for i := range n {
					if (i+side)%2 == 0 {
						c <- 0
					} else {
						<-c
					}
					work(units)
				}
			})
		}
		all.Wait()
	}
}

func prodCons(capacity, units int) func(n int) {
	return func(n int) {
		c := make(chan int, capacity)
		var consumers sync.WaitGroup
		for range runtime.GOMAXPROCS(0) {
			consumers.Go(func() {
				for range c {
					work(units)
				}
			})
		}
		parallel(n, func(turns int) {
			for range turns {
				work(units)
				c <- 0
			}
		})
		close(c)
		consumers.Wait()
	}
}

func selectProdCons(n int) {
	c, over := make(chan int, 128), make(chan struct{})
	hour := time.NewTimer(time.Hour)
	var consumers sync.WaitGroup
	var left atomic.Int64
	left.Store(int64(n))
	for range runtime.GOMAXPROCS(0) {
		consumers.Go(func() {
			for {
				select {
				case <-c:
					if left.Add(-1) == 0 {
						close(over)
					}
				case <-hour.C:
				case <-over:
					return
				}
			}
		})
	}
	parallel(n, func(turns int) {
		for range turns {
			select {
			case c <- 0:
			case <-hour.C:
			case <-over:
			}
		}
	})
	consumers.Wait()
}

func drainClosed(n int) {
	c := make(chan struct{}, n)
	for range n {
		c <- struct{}{}
	}
	close(c)
	for range c {
	}
}

func chanCreation(n int) {
	parallel(n, func(turns int) {
		for range turns {
			c := make(chan int, 1)
			c <- 0
			<-c
		}
	})
}

func chanSemaphore(n int) {
	c := make(chan struct{}, runtime.GOMAXPROCS(0))
	parallel(n, func(turns int) {
		for range turns {
			c <- struct{}{}
			<-c
		}
	})
}

// 1000 wait for one channel that all share, or their own, through which they are woken.
func chanPopular(n int) {
	shared := make(chan bool)
	var own [1000]chan bool
	var all sync.WaitGroup
	for i := range own {
		c := make(chan bool)
		own[i] = c
		all.Go(func() {
			for range n / 1000 {
				select {
				case <-shared:
				case <-c:
				}
			}
		})
	}
	for range n / 1000 {
		for _, c := range own {
			c <- true
		}
	}
	all.Wait()
}
